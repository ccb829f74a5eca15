//! The trace bundle: a directory that holds a trace and all that is needed to decode it elsewhere.
//!
//! ```text
//! BUNDLE/
//!   trace.json          LLDB's `intel-pt` schema; our additions stand under keys "backtrail"
//!   meta.json           where the trace comes from, and the crash
//!   core                ELF core of the crash, or of the program when recording or the program was ended
//!   traces/             PT packets, by thread or by processor
//!   sideband/           context switches by processor
//!   modules/ID/NAME     copies of the mapped ELF files, ID being the build id or a hash
//!   code/               code that changed, by process
//! ```
//!
//! LLDB loads such a directory (`trace load BUNDLE/trace.json`). It packs to one `.btz` file, a tar
//! archive compressed with zstd.
//!
//! [`Bundle`] reads, [`Writer`] writes, [`check`] tells everything a reader would refuse, [`import`]
//! makes bundles of other tools' files, [`core`] reads and writes ELF cores. The rest of the project
//! knows a bundle as a [`Manifest`], not as JSON.
//!
//! Bundles come from other machines: nothing outside one is ever opened, nothing is allocated
//! by a number that stands in it, and what is wrong is told as [`Error::Malformed`].

mod archive;
mod bytes;
mod check;
mod code;
mod copy;
pub mod core;
mod durable;
mod elf;
mod error;
pub mod import;
pub mod manifest;
pub mod module_file;
mod module_store;
mod path;
mod reader;
mod schema;
mod stop;
mod unpacked;
pub mod versions;
mod writer;

pub use archive::{pack, unpack, unpack_revised};
pub use backtrail_perf::switch;
pub use bytes::SharedBytes;
pub use check::{Report, check};
pub use copy::copy;
pub use error::{Error, Result};
pub use manifest::Manifest;
pub use path::BundlePath;
pub use reader::{Bundle, CodeSection};
pub use stop::Stop;
pub use unpacked::remove_unpacked;
pub use versions::CodeVersions;
pub use writer::{Overwrite, Writer};

/// Bytes in a page of x86-64.
pub const PAGE_SIZE: u64 = 4096;
