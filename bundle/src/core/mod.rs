//! ELF cores: what is left of a crashed process.
//!
//! [`Core`] reads one, [`write()`] writes one that GDB and LLDB load; both speak in
//! [`CoreContents`]. The layout of the notes stands in one place for both, `layout`.

mod layout;
mod reader;
mod registers;
mod siginfo;
mod writer;

pub use reader::Core;
pub use registers::Registers;
pub use siginfo::SigInfo;
pub use writer::{Memory, write};

use backtrail_pt::{Avma, FileOffset, Tid};

/// All of a core but the memory itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreContents {
    /// The process (`NT_PRPSINFO`).
    pub process: ProcessInfo,
    /// Its threads, the one that took the signal first.
    pub threads: Vec<CoreThread>,
    /// The auxiliary vector (`NT_AUXV`): pairs of `AT_…` type and value.
    pub auxv: Vec<(u64, u64)>,
    /// What files were mapped (`NT_FILE`).
    pub files: Vec<MappedFile>,
    /// The memory areas, in order of address.
    pub segments: Vec<Segment>,
}

/// A process, as `NT_PRPSINFO` tells.
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
    /// Its id.
    pub tid: Tid,
    /// The signal it took (`pr_cursig`), or 0.
    pub signal: i32,
    /// Its general registers (`NT_PRSTATUS`).
    pub registers: Registers,
    /// What the signal said (`NT_SIGINFO`).
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
    /// The address after the last.
    pub end: Avma,
    /// The file offset at `start`.
    pub offset: FileOffset,
    /// The file.
    pub path: String,
}

/// A memory area (`PT_LOAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The first address.
    pub start: Avma,
    /// In bytes.
    pub size: u64,
    /// How many of its first bytes are in the core. The writer takes it as how many to save.
    pub saved: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
}
