//! The tables of queries.

mod crashes;
mod prune;
mod schema;
mod segments;

pub(crate) use crashes::crashes;
pub(crate) use segments::{ScanLog, SegmentTable};
