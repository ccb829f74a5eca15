//! Imports recordings of other tools as bundles.
//!
//! Each importer reads the user's own files, and may follow any path in them. The bundle that it
//! writes needs none of them. An importer refuses everything that [`crate::check`] would report.

mod crash;
mod image;
mod lldb;
mod pages;
mod perf;
mod raw;

pub use image::{ImageArg, ParseImageArgError, parse_address_filter};
pub use lldb::lldb;
pub use perf::{PerfImport, perf};
pub use raw::{RawImport, raw};
