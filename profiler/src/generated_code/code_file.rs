//! The file in which a process lists the functions that it generated.
//!
//! Another user's process chooses its contents. The file is only used if it belongs to the user of
//! the process or to root, and was written since the process started. It is read, never mapped.

use backtrail_process::beneath::{open_path, reopen};
use backtrail_process::status;
use nix::time::{ClockId, clock_gettime};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// The difference that clocks of files and of processes may have.
const CLOCK_SLACK: i64 = 2;
/// `USER_HZ`, which is 100 on x86-64.
const TICKS: u64 = 100;

/// The root directory and user of a process, which stay known after its end.
#[derive(Debug)]
pub(crate) struct ProcessFiles {
    root: OwnedFd,
    users: Vec<u32>,
    /// The id of the process in its own pid namespace.
    own_id: u32,
    /// The seconds since 1970 at which the process started.
    started: i64,
}

impl ProcessFiles {
    /// Opens the root directory of a running process.
    pub fn open(pid: i32) -> Option<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        let root = options.open(format!("/proc/{pid}/root")).ok()?;
        let mut users = status::user_ids(pid);
        users.push(0);
        Some(Self {
            root: root.into(),
            users,
            own_id: status::innermost_id(pid)?,
            started: start_time(pid)?,
        })
    }

    /// Opens the perf map of the process.
    pub fn perf_map(&self) -> Option<CodeFile> {
        self.file(&format!("/tmp/perf-{}.map", self.own_id))
    }

    /// Opens a file by the path that the process knows it by. Symbolic links are refused.
    pub fn file(&self, path: &str) -> Option<CodeFile> {
        let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_SYMLINKS;
        let path = open_path(self.root.as_fd(), Path::new(path), resolve).ok()?;
        let file = reopen(path).ok()?;
        let metadata = file.metadata().ok()?;
        let is_own = self.users.contains(&metadata.uid());
        let is_new = metadata.mtime() + CLOCK_SLACK >= self.started;
        (is_own && is_new).then_some(CodeFile { file })
    }
}

/// Returns the time at which a process started.
fn start_time(pid: i32) -> Option<i64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have spaces. The start is field 22, and the state after it is 3.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split(' ').nth(19)?.parse().ok()?;
    let seconds = |clock| {
        let time = clock_gettime(clock).ok()?;
        i64::try_from(Duration::from(time).as_secs()).ok()
    };
    let age = seconds(ClockId::CLOCK_BOOTTIME)? - i64::try_from(ticks / TICKS).ok()?;
    Some(seconds(ClockId::CLOCK_REALTIME)? - age)
}

/// A list of functions that may grow.
#[derive(Debug)]
pub(crate) struct CodeFile {
    file: File,
}

impl CodeFile {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Returns whether both are the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
        key(&self.file).is_some_and(|this| Some(this) == key(&other.file))
    }

    /// Reads up to `limit` bytes at a position, fewer at the end of the file.
    pub fn read(&self, at: u64, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; limit];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    #[test]
    fn other_files_are_refused() {
        let own = ProcessFiles::open(std::process::id().cast_signed()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("list"), "1 2 f\n").unwrap();
        symlink(path("list"), path("link")).unwrap();
        nix::unistd::mkfifo(path("pipe").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(own.file(&path("list")).unwrap().read(2, 9).unwrap(), b"2 f\n");
        for name in ["link", "pipe", "none", "."] {
            assert!(own.file(&path(name)).is_none(), "{name}");
        }
        let other = ProcessFiles {
            users: vec![4_000_000_000],
            ..own
        };
        assert!(other.file(&path("list")).is_none());
    }

    /// A file of an earlier process with the same id would give wrong names.
    #[test]
    fn file_from_before_the_process_is_refused() {
        let own = ProcessFiles::open(std::process::id().cast_signed()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let file = File::create(&path).unwrap();
        assert!(own.file(path.to_str().unwrap()).is_some());
        file.set_modified(SystemTime::now() - Duration::from_hours(1000))
            .unwrap();
        assert!(own.file(path.to_str().unwrap()).is_none());
    }
}
