//! Texts of systemd units for the collector and for services under the recorder. Nothing is written
//! to disk here.
//!
//! [`collector`] returns the unit of the daemon, [`directories`] that of its directories, and
//! [`example`] an example configuration. [`Service`] reads another service's files, for the drop-in
//! that runs it under the recorder (systemd.service(5), systemd.unit(5)).

mod daemon;
mod drop_in;
mod example;
mod reader;
mod words;

pub use daemon::{DIRECTORIES, Installer, NAME, TargetMachine, collector, directories};
pub use drop_in::{DropIn, drop_in};
pub use example::example;
pub use reader::Service;
