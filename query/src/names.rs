//! The names of the functions on stacks, by segment.

mod build;
mod cache;
mod lists;
mod read;
mod segment;
mod symbols;
mod texts;

pub(crate) use cache::NameSource;
pub(crate) use segment::SegmentNames;
