//! Bundles made of other tools' files.
//!
//! Each importer reads the user's own files, which it may follow anywhere, and writes a bundle
//! that needs none of them. Whatever [`crate::check`] would find in the result, an importer refuses.

mod crash;
mod image;
mod lldb;
mod perf;
mod raw;

pub use image::{ImageArg, ParseImageArgError, parse_address_filter};
pub use lldb::lldb;
pub use perf::{PerfImport, perf};
pub use raw::{RawImport, raw};
