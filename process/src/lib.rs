//! Reads the state of a process from outside: mappings, binaries, threads and memory.
//!
//! [`maps`] and [`status`] read `/proc/PID`, and [`memory`] reads process memory. [`code_image`]
//! collects executable code, and [`module_file`] its files. [`core_dump`] determines the contents
//! of a core, and [`machine`] describes the host. [`beneath`] opens files by names that another
//! user chose, and [`load_segments`] determines load addresses of ELF files. [`thread_context`]
//! reads which request a thread works on, and [`service`] which service a process belongs to.
//! [`symbols`] finds functions of a mapped file by their names, and [`uprobes`] the code below
//! breakpoints of the kernel.
//!
//! A process may end at any moment, and its files may be malformed. Data that cannot be read is
//! reported as absent, and never invented.

pub mod beneath;
pub mod code_image;
pub mod core_dump;
pub mod load_segments;
pub mod machine;
pub mod maps;
pub mod memory;
pub mod module_file;
pub mod service;
pub mod status;
pub mod symbols;
pub mod thread_context;
pub mod uprobes;

/// A process or thread id, as system calls take it.
pub type RawTid = libc::pid_t;

/// The size of an x86-64 page in bytes.
const PAGE: u64 = 4096;
