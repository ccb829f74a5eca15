//! The files that have systemd run the collector, and services under the recorder: texts alone, nothing is written here.
//!
//! [`collector`] is the unit of the daemon, [`directories`] that of its directories, [`example`] a configuration to
//! begin with, and [`Service`] reads another service's files for the drop-in that puts it under the recorder
//! (systemd.service(5), systemd.unit(5)).

mod daemon;
mod drop_in;
mod example;
mod reader;
mod words;

pub use daemon::{DIRECTORIES, NAME, TargetMachine, collector, directories};
pub use drop_in::{DropIn, drop_in};
pub use example::example;
pub use reader::Service;
