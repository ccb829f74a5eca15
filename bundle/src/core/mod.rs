//! ELF cores: the registers and memory of a crashed process.
//!
//! [`Core`] reads a core. [`write()`] writes one that GDB and LLDB load. Both use [`CoreContents`].
//! The module `layout` encodes and decodes the notes for both.

mod build;
mod compressed;
mod layout;
mod lz4;
mod reader;
mod registers;
mod siginfo;
mod writer;

pub use build::{FileBuild, MappedBuild};
pub use compressed::{CoreFile, UnpackLimits, is_core_file, open_core_file};
pub(crate) use layout::{NT_FILE, NT_PRPSINFO, command_line_range};
pub use reader::Core;
pub use registers::Registers;
pub use siginfo::SigInfo;
pub use writer::{Memory, write};

use backtrail_pt::{Avma, FileOffset, Tid};

/// Everything in a core except the memory contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreContents {
    /// The process (`NT_PRPSINFO`).
    pub process: ProcessInfo,
    /// The threads. The first one received the signal.
    pub threads: Vec<CoreThread>,
    /// The auxiliary vector (`NT_AUXV`): pairs of `AT_…` type and value.
    pub auxv: Vec<(u64, u64)>,
    /// The mapped files (`NT_FILE`).
    pub files: Vec<MappedFile>,
    /// The memory areas, in address order.
    pub segments: Vec<Segment>,
}

/// A process, as `NT_PRPSINFO` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// Real group id.
    pub gid: u32,
    /// The program's name, at most 15 bytes.
    pub name: String,
    /// The start of the command line, at most 79 bytes.
    pub arguments: String,
}

/// A thread in a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreThread {
    /// The thread id.
    pub tid: Tid,
    /// The signal that the thread received (`pr_cursig`), or 0.
    pub signal: i32,
    /// The general registers (`NT_PRSTATUS`).
    pub registers: Registers,
    /// The signal information (`NT_SIGINFO`).
    pub siginfo: Option<SigInfo>,
    /// x87 and SSE state (`NT_FPREGSET`, the 512 bytes of `struct user_fpregs_struct`), or empty.
    pub fpregs: Vec<u8>,
    /// The XSAVE area (`NT_X86_XSTATE`), or empty.
    pub xstate: Vec<u8>,
}

/// A file mapped by the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappedFile {
    /// The first address.
    pub start: Avma,
    /// The address after the last one.
    pub end: Avma,
    /// The file offset at `start`.
    pub offset: FileOffset,
    /// The file's path.
    pub path: String,
}

/// A memory area (`PT_LOAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The first address.
    pub start: Avma,
    /// The size in bytes.
    pub size: u64,
    /// The number of leading bytes that the core contains. The writer saves that many bytes.
    pub saved: u64,
    /// Whether the area may be read.
    pub readable: bool,
    /// Whether the area may be written.
    pub writable: bool,
    /// Whether the area may be executed.
    pub executable: bool,
}
