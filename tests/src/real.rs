//! Real programs, unmodified from a distribution's packages, which must behave the same with and
//! without the recorder.
//!
//! [`PROGRAMS`] is the table. A row has the command, its input, and the parts of its output that
//! differ between any two runs. [`measure`] runs a row with and without the recorder and compares.
//! The tests and `cargo xtask bench` share it.

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

/// Returns the row of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static RealProgram> {
    PROGRAMS.iter().find(|program| program.name == name)
}
