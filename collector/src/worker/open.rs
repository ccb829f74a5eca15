//! Opens the files of a process while the worker still has privileges. Nothing is parsed here.
//!
//! A file is first opened with `O_PATH`, and then reopened if it is a regular file. A file system
//! with a server (FUSE, NFS) may not answer, so another process opens its files (`opener.rs`).

use super::confine::OPEN_FILES;
use super::history_files::{self, HistoryFiles};
use super::opener;
use super::task::{SHARED, Work};
use crate::error::{Error, Result};
use crate::hardware::RecordedHistory;
use backtrail_process::beneath::{self, FileId, FileStatus};
use backtrail_process::maps::{self, Map};
use backtrail_process::{RawTid, machine, status};
use backtrail_pt::{CpuModel, Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Descriptors that are reserved for other uses.
const SPARE: u64 = 64;

/// File systems whose pages come from this machine only, so that no server can delay a reader.
const LOCAL: &[&str] = &[
    "bcachefs",
    "btrfs",
    "cramfs",
    "devtmpfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "nilfs2",
    "ntfs3",
    "overlay",
    "ramfs",
    "reiserfs",
    "romfs",
    "rootfs",
    "squashfs",
    "tmpfs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];

/// The opened files.
#[derive(Debug)]
pub(super) struct OpenedFiles {
    /// The process, if the task has one.
    pub(super) process: Option<OpenProcess>,
    /// Files that only the history names.
    pub(super) history: HistoryFiles,
    /// The host machine.
    pub(super) machine: HostMachine,
}

/// The properties of the host machine in a bundle.
#[derive(Debug)]
pub(super) struct HostMachine {
    pub(super) cpu: CpuModel,
    pub(super) host: Option<String>,
    pub(super) kernel: Option<String>,
    /// Devices of [`LOCAL`] file systems.
    local: HashSet<(u32, u32)>,
}

impl HostMachine {
    /// Reads the properties. This takes time, so it happens before the task arrives.
    pub(super) fn read() -> Self {
        Self {
            cpu: machine::cpu_model(),
            host: machine::kernel_setting("hostname"),
            kernel: machine::kernel_setting("osrelease"),
            local: local_devices(),
        }
    }

    /// Returns whether a file's pages come from this machine only.
    pub(super) fn is_local(&self, status: &FileStatus) -> bool {
        self.local.contains(&status.id.device)
    }

    /// Updates the local devices, because file systems may have been mounted while the worker
    /// waited.
    pub(super) fn look_again(&mut self) {
        self.local = local_devices();
    }
}

/// The open files of a process.
#[derive(Debug)]
pub(super) struct OpenProcess {
    pub(super) pid: Pid,
    /// `/proc/TID/mem`, or why it cannot be opened.
    pub(super) memory: std::io::Result<File>,
    pub(super) page_map: Option<File>,
    pub(super) maps: Vec<Map>,
    /// Devices of [`LOCAL`] file systems.
    pub(super) local: HashSet<(u32, u32)>,
    pub(super) command_line: Option<File>,
    pub(super) program: Option<String>,
    pub(super) threads: Vec<OpenThread>,
    /// Bytes of memory in use.
    pub(super) in_use: Option<u64>,
    /// The files that are mapped executable.
    pub(super) files: HashMap<FileId, OpenFile>,
    /// Number of files that were not opened because there are too many.
    pub(super) unopened: usize,
}

/// A thread of the process.
#[derive(Debug)]
pub(super) struct OpenThread {
    pub(super) tid: Tid,
    /// Its id in its own pid namespace.
    pub(super) inner: Option<u32>,
    pub(super) name: Option<String>,
}

/// A file that may be a binary.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// The file, or why it cannot be read.
    pub(super) file: std::result::Result<File, String>,
    /// Whether reading it may block forever.
    pub(super) is_remote: bool,
    /// The link to a shared module in the draft directory.
    pub(super) ready: Option<PathBuf>,
    /// Its key among the shared modules.
    pub(super) key: Option<String>,
}

/// Returns the devices of local file systems, in this mount namespace, and the device of shared
/// memory.
fn local_devices() -> HashSet<(u32, u32)> {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut devices = parse_mounts(&String::from_utf8_lossy(&mounts));
    let memory = nix::sys::memfd::memfd_create(c"device", nix::sys::memfd::MFdFlags::MFD_CLOEXEC);
    devices.extend(
        memory
            .ok()
            .and_then(|file| beneath::status(file).ok())
            .map(|found| found.id.device),
    );
    devices
}

/// Parses `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw` (proc_pid_mountinfo(5)).
fn parse_mounts(text: &str) -> HashSet<(u32, u32)> {
    let device = |line: &str| {
        let (handle, kind) = line.split_once(" - ")?;
        let local = LOCAL.contains(&kind.split(' ').next()?);
        let (major, minor) = handle.split(' ').nth(2)?.split_once(':')?;
        local.then_some((major.parse().ok()?, minor.parse().ok()?))
    };
    text.lines().filter_map(device).collect()
}

/// Opens the files for `work`, of a process of `user`. `modules` has the shared modules, and
/// `draft` gets links to the needed ones.
///
/// # Errors
/// When the process does not exist.
pub(super) fn open(
    machine: HostMachine,
    work: &Work,
    user: Option<u32>,
    history: Option<&RecordedHistory>,
    modules: Option<BorrowedFd<'_>>,
    draft: BorrowedFd<'_>,
) -> Result<OpenedFiles> {
    let mut links = Links {
        modules,
        draft,
        count: 0,
    };
    let process = match work {
        Work::Held { pid, witness, .. } => {
            let opened = process(&machine, *pid, *witness, user, &mut links);
            // The files are those of the crashed process only if it still exists.
            Some(opened.if_held(*witness, user))
        }
        Work::Snapshot { pid: Some(pid) } => Some(process(&machine, *pid, *pid, user, &mut links)),
        Work::Snapshot { pid: None } | Work::Unheld | Work::Deposit { .. } => None,
    };
    let maps = process
        .as_ref()
        .map(|process| (process.pid.0, process.maps.as_slice()));
    let limit = usize::try_from(links.left()).unwrap_or(usize::MAX);
    let history =
        history.map(|history| history_files::open(history, maps, limit, &|status| machine.is_local(status)));
    Ok(OpenedFiles {
        process,
        history: history.unwrap_or_default(),
        machine,
    })
}

/// Links from the draft directory to shared modules, and the number of open files.
struct Links<'a> {
    modules: Option<BorrowedFd<'a>>,
    draft: BorrowedFd<'a>,
    count: u64,
}

impl Links<'_> {
    fn left(&self) -> u64 {
        OPEN_FILES.saturating_sub(self.count + SPARE)
    }

    fn is_full(&self) -> bool {
        self.left() == 0
    }

    /// Links the shared module of a file into the draft directory, and returns the link. `None`:
    /// there is none.
    fn link(&self, status: &FileStatus) -> Option<PathBuf> {
        let name = PathBuf::from(format!("{SHARED}{}", self.count));
        let flags = nix::unistd::LinkatFlags::empty();
        let key = super::drafts::key(status);
        nix::unistd::linkat(self.modules?, key.as_str(), self.draft, &name, flags).ok()?;
        Some(name)
    }
}

fn process(
    machine: &HostMachine,
    pid: u32,
    witness: u32,
    user: Option<u32>,
    links: &mut Links<'_>,
) -> OpenProcess {
    let (raw, tid) = (pid as RawTid, witness as RawTid);
    let tid = status::thread_with_memory(tid);
    let maps = maps::maps(tid);
    let local = machine.local.clone();
    let mut opened = OpenProcess {
        pid: Pid(pid),
        memory: File::open(format!("/proc/{tid}/mem")),
        page_map: File::open(format!("/proc/{tid}/pagemap")).ok(),
        command_line: File::open(format!("/proc/{tid}/cmdline")).ok(),
        program: status::program(tid),
        threads: threads(raw),
        in_use: status::memory_in_use(tid),
        files: HashMap::new(),
        unopened: 0,
        maps,
        local,
    };
    let mut remote = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for map in opened.maps.iter().filter(|map| map.executable && map.is_file()) {
        let id = FileId {
            device: map.device,
            inode: map.inode,
        };
        if !seen.insert(id) {
            continue;
        }
        if links.is_full() {
            opened.unopened += 1;
            continue;
        }
        links.count += 1;
        if !opened.local.contains(&map.device) {
            match by_mapping(tid, map) {
                Ok(handle) => {
                    remote.0.push(id);
                    remote.1.push(handle);
                }
                Err(error) => drop(opened.files.insert(id, OpenFile::missing(error.to_string()))),
            }
            continue;
        }
        let file = match mapped_file(tid, map) {
            Err(why) => OpenFile::missing(why),
            Ok((handle, status)) => OpenFile {
                file: beneath::reopen(&handle).map_err(|error| error.to_string()),
                is_remote: false,
                ready: links.link(&status),
                key: Some(super::drafts::key(&status)),
            },
        };
        opened.files.insert(id, file);
    }
    let files = opener::open(&remote.1, identity(tid, user));
    for (id, file) in remote.0.into_iter().zip(files) {
        let file = OpenFile {
            file,
            is_remote: true,
            ready: None,
            key: None,
        };
        opened.files.insert(id, file);
    }
    opened
}

impl OpenProcess {
    /// Returns the process if the kernel still holds it (`CoreDumping` of proc_pid_status(5)) and
    /// it is of `user`. Otherwise returns it without files, because another process may have its
    /// number.
    fn if_held(self, witness: u32, user: Option<u32>) -> Self {
        let tid = status::thread_with_memory(witness as RawTid);
        let is_its = user.is_none_or(|user| status::user_ids(tid).contains(&user));
        if is_its && status::is_dumping_core(tid) {
            return self;
        }
        Self {
            memory: Err(std::io::Error::other("the process has ended")),
            page_map: None,
            maps: Vec::new(),
            command_line: None,
            program: None,
            threads: Vec::new(),
            files: HashMap::new(),
            ..self
        }
    }
}

impl OpenFile {
    fn missing(why: String) -> Self {
        Self {
            file: Err(why),
            is_remote: false,
            ready: None,
            key: None,
        }
    }
}

/// Returns the user and group of a process, or the overflow ids if they are unknown.
fn identity(tid: RawTid, user: Option<u32>) -> opener::Identity {
    const NOBODY: u32 = 65534;
    let [_, owner, group] = status::parent_and_owner(tid);
    let is_known = !status::user_ids(tid).is_empty() && user.is_none_or(|user| user == owner);
    let [user, group] = if is_known { [owner, group] } else { [NOBODY; 2] };
    opener::Identity { user, group }
}

/// Returns the threads of a process, by their outer ids.
fn threads(pid: RawTid) -> Vec<OpenThread> {
    let tids = status::threads(pid).into_iter();
    tids.map(|tid| OpenThread {
        tid: Tid(tid as u32),
        inner: status::innermost_id(tid),
        name: status::thread_name(pid, tid),
    })
    .collect()
}

/// Opens the mapped file itself, by its mapping. This contacts no file system.
fn by_mapping(tid: RawTid, map: &Map) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/{tid}/map_files/{:x}-{:x}", map.start, map.end);
    beneath::open_path(File::open("/")?.as_fd(), Path::new(&path), 0)
}

/// Opens the mapped file by its name below the process's root, if it is still the same file.
fn by_name(tid: RawTid, map: &Map) -> std::io::Result<OwnedFd> {
    let host = File::open("/")?;
    let root = beneath::open_path(host.as_fd(), Path::new(&format!("/proc/{tid}/root")), 0)?;
    // The kernel resolves links when it names a file, and keeps the names of mapped files in its
    // cache.
    let handle = beneath::cached_in_root(root.as_fd(), Path::new(&map.path))?;
    match beneath::status(&handle)?.id {
        id if (id.device, id.inode) == (map.device, map.inode) => Ok(handle),
        _ => Err(std::io::Error::other("another file has its name now")),
    }
}

/// Opens the mapped file of a local file system, by its mapping or else by its name.
fn mapped_file(tid: RawTid, map: &Map) -> std::result::Result<(OwnedFd, FileStatus), String> {
    let handle = by_mapping(tid, map)
        .or_else(|_| by_name(tid, map))
        .map_err(|error| error.to_string())?;
    let status = beneath::status(&handle).map_err(|error| error.to_string())?;
    match status.is_regular() {
        true => Ok((handle, status)),
        false => Err("it is not a regular file".to_owned()),
    }
}

/// Reads the data and the bytes of a history.
///
/// # Errors
/// When they are not in the daemon's format.
pub(super) fn read_history(file: File) -> Result<(RecordedHistory, Vec<u8>)> {
    use std::io::{BufRead, BufReader, Read};
    let failed = || Error::system("read the history");
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).map_err(failed())?;
    let recorded = serde_json::from_slice(&line).map_err(|error| failed()(error.into()))?;
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(failed())?;
    Ok((recorded, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_file_systems_count_as_local() {
        let text = "36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw\n\
                    37 35 0:41 / /home/x rw - fuse.sshfs x@y: rw\n\
                    38 35 0:42 / /run rw shared:2 - tmpfs tmpfs rw\n\
                    39 35 0:43 / /nfs rw - nfs4 server:/ rw\nbroken\n";
        assert_eq!(parse_mounts(text), HashSet::from([(98, 0), (0, 42)]));
        assert!(!local_devices().is_empty());
    }

    #[test]
    fn own_files_are_opened_once() {
        let draft = tempfile::tempdir().unwrap();
        let directory = File::open(draft.path()).unwrap();
        let pid = std::process::id();
        let work = Work::Snapshot { pid: Some(pid) };
        let opened = open(HostMachine::read(), &work, None, None, None, directory.as_fd()).unwrap();
        let process = opened.process.unwrap();
        let program = std::env::current_exe().unwrap();
        let map = process
            .maps
            .iter()
            .find(|map| map.executable && Path::new(&map.path) == program);
        let map = map.unwrap();
        let id = FileId {
            device: map.device,
            inode: map.inode,
        };
        assert!(process.files[&id].file.is_ok(), "{:?}", process.files[&id]);
        assert!(process.memory.is_ok() && process.page_map.is_some());
        assert!(process.threads.iter().any(|thread| thread.tid.0 == pid));
        assert_eq!(
            (process.unopened, process.program),
            (0, Some(program.to_string_lossy().into_owned()))
        );
    }

    #[test]
    fn process_that_is_not_held_is_ignored() {
        let draft = tempfile::tempdir().unwrap();
        let directory = File::open(draft.path()).unwrap();
        let pid = std::process::id();
        let work = Work::Held {
            pid,
            witness: pid,
            received: 0,
        };
        let opened = open(HostMachine::read(), &work, None, None, None, directory.as_fd()).unwrap();
        let process = opened.process.unwrap();
        assert!(process.memory.is_err() && process.maps.is_empty() && process.files.is_empty());
    }
}
