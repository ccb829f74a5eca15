//! What Linux tells of a process from outside: its mappings, binaries, threads and memory.
//!
//! [`maps`] and [`status`] read `/proc/PID`, [`memory`] copies what a process has in memory,
//! [`code_image`] keeps everything that it could execute, [`module_file`] the files of it, [`core_dump`] says what
//! its core would hold, [`machine`] is what it runs on. [`beneath`] opens files by names that another user chose,
//! [`load_segments`] says where an ELF file is loaded.
//! A process may end at any moment, and its files may lie: what cannot be read is absent, and nothing is
//! made up in its place.

pub mod beneath;
pub mod code_image;
pub mod core_dump;
pub mod load_segments;
pub mod machine;
pub mod maps;
pub mod memory;
pub mod module_file;
pub mod status;

/// A process or thread id as the kernel's calls take it.
pub type RawTid = libc::pid_t;

/// Bytes in a page of x86-64.
const PAGE: u64 = 4096;
