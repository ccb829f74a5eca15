//! What a worker opens while it still has privileges. Nothing that is opened here is parsed here.
//!
//! A file is first named (`O_PATH`), then opened if it is a regular one. A file system that asks a
//! server (FUSE, NFS) may never answer; its files are opened in a process of their own, which is
//! given up after a moment.

use super::confine::OPEN_FILES;
use super::task::{SHARED, Work};
use crate::error::{Error, Result};
use crate::hardware::{Recorded, find_by_path};
use crate::wire::Connection;
use backtrail_process::beneath::{self, FileId, FileStatus};
use backtrail_process::maps::{self, Map};
use backtrail_process::{RawTid, machine, status};
use backtrail_pt::{CpuModel, Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long file systems that ask a server may take with all files of a process together.
const ASIDE: Duration = Duration::from_millis(300);
/// Descriptors that are kept for other uses.
const SPARE: u64 = 64;

/// File systems whose pages come from this machine alone: nobody can make a reader wait for them.
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

/// What was opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// The process, if one is read.
    pub(super) process: Option<OpenProcess>,
    /// Files that only the history names, by process and path.
    pub(super) history: HashMap<(u32, String), OpenFile>,
    /// The machine.
    pub(super) machine: Machine,
}

/// What a bundle says of this machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) cpu: CpuModel,
    pub(super) host: Option<String>,
    pub(super) kernel: Option<String>,
    /// Devices of [`LOCAL`] file systems.
    local: HashSet<(u32, u32)>,
}

impl Machine {
    /// Reads it. That takes a while, so it is done before there is a task.
    pub(super) fn read() -> Self {
        Self {
            cpu: machine::cpu_model(),
            host: machine::kernel_setting("hostname"),
            kernel: machine::kernel_setting("osrelease"),
            local: local_devices(),
        }
    }

    /// File systems may have been mounted while there was no task.
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
    /// Files that were not opened, for there are too many.
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
    /// Reading it may take for ever.
    pub(super) is_remote: bool,
    /// The name of a shared copy in the draft directory.
    pub(super) ready: Option<PathBuf>,
    /// The name that a copy of it has among the shared ones.
    pub(super) key: Option<String>,
}

/// The devices of local file systems, as this process sees them, and that of memory that processes
/// share.
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

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw` (proc_pid_mountinfo(5)).
fn parse_mounts(text: &str) -> HashSet<(u32, u32)> {
    let device = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let local = LOCAL.contains(&kind.split(' ').next()?);
        let (major, minor) = place.split(' ').nth(2)?.split_once(':')?;
        local.then_some((major.parse().ok()?, minor.parse().ok()?))
    };
    text.lines().filter_map(device).collect()
}

/// Opens what `work` needs, of a process of `user`. `modules` has the shared copies, `draft` gets links to those that are
/// wanted.
///
/// # Errors
/// When there is no such process.
pub(super) fn open(
    machine: Machine,
    work: &Work,
    user: Option<u32>,
    history: Option<&Recorded>,
    modules: Option<BorrowedFd<'_>>,
    draft: BorrowedFd<'_>,
) -> Result<Opened> {
    let mut links = Links {
        modules,
        draft,
        count: 0,
    };
    let process = match work {
        Work::Held { pid, witness, .. } => {
            let opened = process(&machine, *pid, *witness, &mut links);
            // What was opened is of the process that crashed only if that still is there.
            Some(opened.if_kept(*witness, user))
        }
        Work::Snapshot { pid: Some(pid) } => Some(process(&machine, *pid, *pid, &mut links)),
        Work::Snapshot { pid: None } | Work::Seen | Work::Deposit { .. } => None,
    };
    let mut of_history = HashMap::new();
    for recorded in history.iter().flat_map(|history| &history.processes) {
        let known = process.as_ref().filter(|process| process.pid.0 == recorded.pid);
        for mapping in recorded
            .mappings
            .iter()
            .filter(|mapping| mapping.path.starts_with('/'))
        {
            let key = (recorded.pid, mapping.path.clone());
            let mapped = known.is_some_and(|process| process.maps.iter().any(|map| map.path == mapping.path));
            if mapped || of_history.contains_key(&key) || links.is_full() {
                continue;
            }
            if let Some(file) = find_by_path(Path::new("/proc"), Pid(recorded.pid), mapping) {
                links.count += 1;
                let file = OpenFile {
                    file: Ok(file),
                    is_remote: false,
                    ready: None,
                    key: None,
                };
                of_history.insert(key, file);
            }
        }
    }
    Ok(Opened {
        process,
        history: of_history,
        machine,
    })
}

/// Links from the draft directory to shared copies, and how many files are open.
struct Links<'a> {
    modules: Option<BorrowedFd<'a>>,
    draft: BorrowedFd<'a>,
    count: u64,
}

impl Links<'_> {
    fn is_full(&self) -> bool {
        self.count + SPARE >= OPEN_FILES
    }

    /// The name of a link in the draft directory to the shared copy of a file, if there is one.
    fn link(&self, status: &FileStatus) -> Option<PathBuf> {
        let name = PathBuf::from(format!("{SHARED}{}", self.count));
        let flags = nix::unistd::LinkatFlags::empty();
        let key = super::drafts::key(status);
        nix::unistd::linkat(self.modules?, key.as_str(), self.draft, &name, flags).ok()?;
        Some(name)
    }
}

fn process(machine: &Machine, pid: u32, witness: u32, links: &mut Links<'_>) -> OpenProcess {
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
    let mut remote = Vec::new();
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
        match place(tid, map) {
            Err(why) => {
                opened.files.insert(id, OpenFile::missing(why));
            }
            Ok((place, status)) if opened.local.contains(&map.device) => {
                let file = OpenFile {
                    file: beneath::reopen(&place).map_err(|error| error.to_string()),
                    is_remote: false,
                    ready: links.link(&status),
                    key: Some(super::drafts::key(&status)),
                };
                opened.files.insert(id, file);
            }
            Ok((place, _)) => remote.push((id, place)),
        }
    }
    let files = open_aside(remote);
    opened.files.extend(files);
    opened
}

impl OpenProcess {
    /// This, if its process is kept by the kernel while its core is dumped (`CoreDumping` of
    /// proc_pid_status(5)) and is of `user`; else nothing of it: another process may have its number.
    fn if_kept(self, witness: u32, user: Option<u32>) -> Self {
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

/// The threads of a process, by their ids outside.
fn threads(pid: RawTid) -> Vec<OpenThread> {
    let tids = status::threads(pid).into_iter();
    tids.map(|tid| OpenThread {
        tid: Tid(tid as u32),
        inner: status::innermost_id(tid),
        name: status::thread_name(pid, tid),
    })
    .collect()
}

/// The mapped file itself: by its mapping, or by its name below the process's root where that still
/// is the same file.
fn place(tid: RawTid, map: &Map) -> std::result::Result<(OwnedFd, FileStatus), String> {
    let host = File::open("/").map_err(|error| error.to_string())?;
    let by_mapping = format!("/proc/{tid}/map_files/{:x}-{:x}", map.start, map.end);
    let by_mapping = beneath::open_path(host.as_fd(), Path::new(&by_mapping), 0);
    let by_name = || {
        let root = beneath::open_path(host.as_fd(), Path::new(&format!("/proc/{tid}/root")), 0)?;
        let place = beneath::in_root(root.as_fd(), Path::new(&map.path))?;
        match beneath::status(&place)?.id {
            id if (id.device, id.inode) == (map.device, map.inode) => Ok(place),
            _ => Err(std::io::Error::other("another file has its name now")),
        }
    };
    let place = by_mapping
        .or_else(|_| by_name())
        .map_err(|error| error.to_string())?;
    let status = beneath::status(&place).map_err(|error| error.to_string())?;
    match status.is_regular() {
        true => Ok((place, status)),
        false => Err("it is not a regular file".to_owned()),
    }
}

/// Opens files whose file system may never answer, in a process of its own. What has not come after
/// a moment does not come.
fn open_aside(places: Vec<(FileId, OwnedFd)>) -> HashMap<FileId, OpenFile> {
    let mut files: HashMap<FileId, OpenFile> = places
        .iter()
        .map(|(id, _)| {
            (
                *id,
                OpenFile::missing("its file system does not answer".to_owned()),
            )
        })
        .collect();
    if places.is_empty() {
        return files;
    }
    let Ok((ours, theirs)) = Connection::pair() else {
        return files;
    };
    // SAFETY: this process has one thread, so the child may do whatever this one may.
    match unsafe { nix::unistd::fork() } {
        Ok(nix::unistd::ForkResult::Child) => {
            for (index, (_, place)) in places.iter().enumerate() {
                let (file, why) = match beneath::reopen(place) {
                    Ok(file) => (Some(file), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                let sent = theirs.send(&(index, why), file.as_ref().map(AsFd::as_fd));
                if sent.is_err() {
                    break;
                }
            }
            // SAFETY: ends this process at once; nothing of the other is run at its end.
            unsafe { libc::_exit(0) }
        }
        Ok(nix::unistd::ForkResult::Parent { child }) => {
            drop(theirs);
            let deadline = std::time::Instant::now() + ASIDE;
            loop {
                let left = deadline.saturating_duration_since(std::time::Instant::now());
                if left.is_zero() || ours.set_timeout(left.max(Duration::from_millis(1))).is_err() {
                    break;
                }
                let Ok(((index, why), file)) = ours.receive::<(usize, Option<String>)>() else {
                    break;
                };
                if let Some((id, _)) = places.get(index) {
                    let file = match (file, why) {
                        (Some(file), _) => Ok(File::from(file)),
                        (None, why) => Err(why.unwrap_or_default()),
                    };
                    let file = OpenFile {
                        file,
                        is_remote: true,
                        ready: None,
                        key: None,
                    };
                    files.insert(*id, file);
                }
            }
            let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
            let _ = nix::sys::wait::waitpid(child, Some(nix::sys::wait::WaitPidFlag::WNOHANG));
        }
        Err(_) => {}
    }
    files
}

/// Reads the data and the bytes of a history.
///
/// # Errors
/// When they are not what the daemon writes.
pub(super) fn read_history(file: File) -> Result<(Recorded, Vec<u8>)> {
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
    fn our_own_files_are_opened_once_each() {
        let draft = tempfile::tempdir().unwrap();
        let directory = File::open(draft.path()).unwrap();
        let pid = std::process::id();
        let work = Work::Snapshot { pid: Some(pid) };
        let opened = open(Machine::read(), &work, None, None, None, directory.as_fd()).unwrap();
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
    fn files_opened_in_another_process_come_back() {
        let here = File::open("/").unwrap();
        let program = std::env::current_exe().unwrap();
        let good = beneath::open_path(here.as_fd(), &program, 0).unwrap();
        let bad = beneath::open_path(here.as_fd(), Path::new("/dev/null"), 0).unwrap();
        let id = |inode| FileId {
            device: (0, 0),
            inode,
        };
        let mut files = open_aside(vec![(id(1), good), (id(2), bad)]);
        let good = files.remove(&id(1)).unwrap();
        assert!(good.is_remote && good.file.unwrap().metadata().unwrap().is_file());
        assert!(
            files[&id(2)]
                .file
                .as_ref()
                .unwrap_err()
                .contains("not a regular file")
        );
    }

    #[test]
    fn nothing_is_believed_of_a_process_that_is_not_kept() {
        let draft = tempfile::tempdir().unwrap();
        let directory = File::open(draft.path()).unwrap();
        let pid = std::process::id();
        let work = Work::Held {
            pid,
            witness: pid,
            received: 0,
        };
        let opened = open(Machine::read(), &work, None, None, None, directory.as_fd()).unwrap();
        let process = opened.process.unwrap();
        assert!(process.memory.is_err() && process.maps.is_empty() && process.files.is_empty());
    }
}
