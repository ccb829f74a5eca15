//! The data of processes and threads that the session stores until it writes the bundle.

use crate::program_filter::program_name;
use crate::ptrace::RawTid;
use crate::shared_ranges::SharedRanges;
use crate::standard_error::OutputTail;
use crate::stored_images::StoredImages;
use crate::unique_names::UniqueNames;
use crate::{Ending, Engine, Golden};
use backtrail_bundle::BundlePath;
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::manifest::Crash;
use backtrail_bundle::versions::{Boundary, Fragment};
use backtrail_process::code_image::CodeImage;
use backtrail_process::module_file::ModuleFiles;
use backtrail_process::status;
use backtrail_pt::Avma;
use std::collections::BTreeMap;

/// The packets of a thread.
#[derive(Debug)]
pub(crate) enum Packets {
    InMemory(Vec<u8>),
    /// This number of bytes, in the file of the thread.
    InFile(u64),
}

impl Packets {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::InMemory(packets) => packets.len() as u64,
            Self::InFile(len) => *len,
        }
    }
}

/// A thread whose packet stream has ended.
#[derive(Debug)]
pub(crate) struct RecordedThread {
    pub(crate) tid: RawTid,
    pub(crate) name: Option<String>,
    /// The path of the packets in the bundle.
    pub(crate) file: BundlePath,
    pub(crate) packets: Packets,
    pub(crate) dropped: u64,
    /// Control transfers that no packet describes.
    pub(crate) gaps: u64,
    pub(crate) golden: Vec<Avma>,
    /// Positions in the packets where code changed.
    pub(crate) boundaries: Vec<Boundary>,
    /// The value log, if values were recorded.
    pub(crate) values: Option<Vec<u8>>,
}

/// A recorded process.
#[derive(Debug, Default)]
pub(crate) struct RecordedProcess {
    pub(crate) image: CodeImage,
    pub(crate) recorded: Vec<RecordedThread>,
    /// Old code from pages whose code has changed.
    pub(crate) fragments: Vec<Fragment>,
    /// The number of changes of the code so far.
    pub(crate) code_version: u32,
    pub(crate) program: Option<String>,
    /// The name of the program.
    pub(crate) name: String,
    pub(crate) command_line: Vec<String>,
    /// The process has executed another program since recording began.
    pub(crate) replaced: bool,
    /// The number of ended threads whose packets were dropped.
    pub(crate) left_out: u64,
    /// The last bytes that the process wrote to standard error.
    pub(crate) standard_error: OutputTail,
    /// The memory that the process shares with others. Known only if values are recorded.
    pub(crate) shared_memory: SharedRanges,
}

impl RecordedProcess {
    /// Reads the current state of a process. `added` is the memory that the recorder added; `files`
    /// are the open module files.
    pub(crate) fn new(pid: RawTid, added: Vec<(u64, u64)>, files: &ModuleFiles) -> Self {
        let mut process = Self::named(pid);
        process.image.added = added;
        process.image.files = files.clone();
        process.image.update(pid, 0, None);
        process
    }

    /// Reads the current state of a process that a recorded one has forked.
    pub(crate) fn forked(pid: RawTid, added: Vec<(u64, u64)>, parent: &Self) -> Self {
        Self {
            image: parent.image.of_child(pid, added),
            shared_memory: parent.shared_memory.inherited(),
            ..Self::named(pid)
        }
    }

    fn named(pid: RawTid) -> Self {
        Self {
            program: status::program(pid),
            name: program_name(pid),
            command_line: status::command_line(pid),
            ..Self::default()
        }
    }

    /// Updates the code image of a process whose threads are stepped. Their code changes only by
    /// modules that replace others.
    pub(crate) fn update_stepped(&mut self, pid: RawTid, mapped: Option<u64>) {
        let next = self.code_version.saturating_add(1);
        if !self.image.update(pid, next, mapped).is_empty() {
            self.code_version = next;
        }
    }
}

/// The recorded packets of a thread, and their counters.
#[derive(Debug)]
pub(crate) struct FinishedStream {
    pub(crate) packets: Packets,
    pub(crate) dropped: u64,
    /// The number of executed instructions, or `None` if they were not counted.
    pub(crate) instructions: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) gaps: u64,
    pub(crate) golden: Vec<Avma>,
    /// Positions in the packets where code changed.
    pub(crate) boundaries: Vec<Boundary>,
    /// The value log, if values were recorded.
    pub(crate) values: Option<Vec<u8>>,
    /// The reason that packets were lost, if any were.
    pub(crate) failure: Option<std::io::Error>,
}

/// A finished recording, to be written as one bundle.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) engine: Engine,
    /// Whether the packets contain heap events.
    pub(crate) heap: bool,
    /// The main process.
    pub(crate) root: RawTid,
    pub(crate) processes: BTreeMap<RawTid, RecordedProcess>,
    pub(crate) ending: Ending,
    pub(crate) crash: Option<Crash>,
    pub(crate) core: Option<BundlePath>,
    /// The context that the process of the core published.
    pub(crate) context: Option<PublishedContext>,
    pub(crate) notes: Vec<String>,
    pub(crate) gaps: u64,
    /// The number of threads whose packets were dropped.
    pub(crate) left_out: u64,
    pub(crate) names: UniqueNames,
}

/// Totals over all saved threads.
#[derive(Debug, Default)]
pub(crate) struct SaveTotals {
    /// The number of threads whose packets are stored.
    pub(crate) threads: usize,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) golden: Vec<Golden>,
    pub(crate) images: StoredImages,
}
