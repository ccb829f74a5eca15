//! The identity of a module, and where its file can be opened.

use backtrail_perf::record::MappedFile;
use backtrail_pt::{BuildId, Pid};
use std::ops::Range;
use std::rc::Rc;

/// The key of a module: equal keys are one module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModuleKey {
    /// The path as the process sees it, or a name in brackets.
    pub path: Rc<str>,
    /// The build id, if the file has one.
    pub build_id: Option<BuildId>,
    /// The device and inode of a file without a build id.
    pub file: Option<FileKey>,
}

/// The device and inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    /// The major and minor number of the device.
    pub device: (u32, u32),
    /// The inode.
    pub inode: u64,
}

impl From<MappedFile> for FileKey {
    fn from(file: MappedFile) -> Self {
        Self {
            device: (file.major, file.minor),
            inode: file.inode,
        }
    }
}

/// A mapping through which the file of a module can be opened.
#[derive(Clone, Debug)]
pub(crate) struct MappedAt {
    /// The process.
    pub pid: Pid,
    /// The addresses.
    pub range: Range<u64>,
}
