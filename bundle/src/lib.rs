//! The trace bundle: a directory with a trace, and everything needed to decode it elsewhere.
//!
//! ```text
//! BUNDLE/
//!   trace.json          LLDB's `intel-pt` schema; our additions are under keys "backtrail"
//!   meta.json           the origin of the trace, and the crash
//!   core                ELF core of the crash, or of the program at the end of recording
//!   traces/             PT packets, by thread or by processor
//!   sideband/           context switches by processor
//!   modules/ID/NAME     copies of the mapped ELF files; ID is the build id or a hash
//!   code/               code that changed, by process
//! ```
//!
//! LLDB loads such a directory (`trace load BUNDLE/trace.json`). It can be packed into one `.btz`
//! file, a tar archive compressed with zstd.
//!
//! [`Bundle`] reads a bundle, [`Writer`] writes one, and [`check`] lists everything that a reader
//! would refuse. [`import`] converts files of other tools. [`core`] reads and writes ELF cores.
//! Other crates use the description of a bundle as a [`Manifest`](manifest::Manifest), not as JSON.
//!
//! Bundles are untrusted input. No file outside of a bundle is opened, no allocation has an
//! unchecked size, and faults are reported as [`Error::Malformed`].
//!
//! # Example
//!
//! Convert raw PT packets to a bundle, and read it:
//!
//! ```
//! use backtrail_bundle::import::{RawImport, raw};
//! use backtrail_bundle::{Bundle, CancelToken, Overwrite, check};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let packets = folder.path().join("packets");
//! std::fs::write(&packets, [0x02, 0x82].repeat(8))?; // a PSB packet
//!
//! let target = folder.path().join("demo.bundle");
//! let import = RawImport {
//!     pt: packets,
//!     images: Vec::new(),
//!     pages: Vec::new(),
//!     filters: Vec::new(),
//!     cpu: None,
//!     timing: Default::default(),
//!     core: None,
//! };
//! raw(&import, &target, Overwrite::Never, &CancelToken::default())?;
//!
//! let bundle = Bundle::open(&target)?;
//! for thread in bundle.manifest().processes.iter().flat_map(|process| &process.threads) {
//!     if let Some(trace) = &thread.trace {
//!         println!("thread {}: {} bytes of packets", thread.tid, bundle.bytes(trace)?.len());
//!     }
//! }
//! assert!(check(&target)?.is_clean());
//! # Ok(())
//! # }
//! ```

mod archive;
mod bytes;
mod cancel;
mod check;
mod code;
pub mod context;
mod copy;
pub mod core;
mod durable;
mod elf;
mod error;
mod file_lock;
pub mod heap;
pub mod heap_records;
pub mod import;
pub mod manifest;
pub mod module_file;
#[cfg(target_os = "linux")]
mod module_store;
mod pack;
mod path;
mod platform;
mod reader;
pub mod redact;
mod schema;
pub mod sources;
mod sparse;
mod supplementary;
mod unpacked;
pub mod value_log;
pub mod versions;
mod writer;

pub use backtrail_perf::switch;
pub use bytes::SharedBytes;
pub use cancel::CancelToken;
pub use check::{Report, check};
pub use code::CodeSection;
pub use copy::copy;
pub use error::{Error, Result};
pub use pack::{
    MissingModule, PackChanges, pack, pack_changed, pack_without, unpack, unpack_partial, unpack_revised,
};
pub use path::BundlePath;
pub use reader::Bundle;
pub use unpacked::remove_unpacked;
pub use writer::{Overwrite, Writer};

/// The page size of x86-64 in bytes.
pub const PAGE_SIZE: u64 = 4096;
