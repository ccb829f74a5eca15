//! The tables of queries.

mod answers;
mod crashes;
mod prune;
mod schema;
mod segments;
mod within;

pub(crate) use answers::answers;
pub(crate) use crashes::crashes;
pub(crate) use segments::{ScanLog, SegmentTable};
pub(crate) use within::within;
