//! Real programs, unmodified from a distribution's packages: the same with the recorder as without.
//!
//! [`PROGRAMS`] is the table: a row says what is run, on which input, and what of its output differs
//! between any two runs. [`measure`] runs a row without and with the recorder and compares; the tests
//! and `cargo xtask bench` share it.

mod child;
mod input;
mod mask;
mod measure;
mod program;
mod recording;
mod report;
mod server;
mod table;
mod workspace;

pub use child::{Child, Ended, Limit};
pub use input::Input;
pub use mask::Mask;
pub use measure::{Measurement, measure, missing};
pub use program::{Pace, RealProgram, Requirement, Run, Server, Size};
pub use recording::{Decoded, History, Recorded, Recorder, Report};
pub use report::{markdown, row};
pub use table::PROGRAMS;
pub use workspace::Workspace;

/// The row of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static RealProgram> {
    PROGRAMS.iter().find(|program| program.name == name)
}
