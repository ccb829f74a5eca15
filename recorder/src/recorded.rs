//! What is kept of processes and threads until the bundle is written.

use crate::ptrace::RawTid;
use backtrail_bundle::BundlePath;
use backtrail_bundle::versions::{Boundary, Fragment};
use backtrail_process::code_image::CodeImage;
use backtrail_process::module_file::ModuleFiles;
use backtrail_process::status;
use backtrail_pt::Avma;

/// Packets of a thread.
#[derive(Debug)]
pub(crate) enum Packets {
    Kept(Vec<u8>),
    /// So many bytes, in the file that was made for them.
    Filed(u64),
}

impl Packets {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Kept(packets) => packets.len() as u64,
            Self::Filed(len) => *len,
        }
    }
}

/// A thread whose stream has ended.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) tid: RawTid,
    pub(crate) name: Option<String>,
    /// Where the packets are in the bundle.
    pub(crate) file: BundlePath,
    pub(crate) packets: Packets,
    pub(crate) dropped: u64,
    /// Places where control went in a way that no packet tells.
    pub(crate) gaps: u64,
    pub(crate) golden: Vec<Avma>,
    /// Where code has changed, in the packets.
    pub(crate) boundaries: Vec<Boundary>,
}

/// A recorded process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) image: CodeImage,
    pub(crate) recorded: Vec<Recorded>,
    /// Code that was executed where code has changed.
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) program: Option<String>,
    pub(crate) command_line: Vec<String>,
    /// It has executed another program since recording began.
    pub(crate) replaced: bool,
    /// Threads of it that have ended, and of which nothing is kept any more.
    pub(crate) left_out: u64,
}

impl Process {
    /// What a process is now; `added` is what the recorder has added to its memory already, `files` are those open.
    pub(crate) fn new(pid: RawTid, added: Vec<(u64, u64)>, files: &ModuleFiles) -> Self {
        let mut process = Self {
            program: status::program(pid),
            command_line: status::command_line(pid),
            ..Self::default()
        };
        process.image.added = added;
        process.image.files = files.clone();
        process.image.update(pid);
        process
    }
}
