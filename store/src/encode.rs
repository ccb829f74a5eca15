//! Arrow arrays of rows and contents.

mod dictionary;
mod frames;
mod samples;
mod stacks;

pub(crate) use dictionary::{constant, texts};
pub(crate) use frames::{KINDS, contexts, frames};
pub(crate) use samples::SampleEncoder;
pub(crate) use stacks::stacks;
