//! Opens files by names that another user chose, without leaving the root, blocking, or opening
//! devices.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The device and inode of a file, which identify it on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The major and minor number of the file system's device.
    pub device: (u32, u32),
    /// The inode number.
    pub inode: u64,
}

/// The metadata of a file that the kernel has cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The identity of the file.
    pub id: FileId,
    /// The file type (`S_IFMT`) and permissions.
    pub mode: u32,
    /// The size in bytes.
    pub size: u64,
    /// The times of the last change of the contents and of the inode, in seconds and nanoseconds.
    pub times: [(i64, u32); 2],
}

impl FileStatus {
    /// Returns whether this is a regular file.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Opens a directory or file as a path only (`O_PATH`), which calls neither its file system nor a
/// device driver.
///
/// # Errors
/// The errors of openat2(2).
pub fn open_path(root: BorrowedFd<'_>, path: &Path, resolve: u64) -> io::Result<OwnedFd> {
    openat2(root, path, libc::O_PATH | libc::O_CLOEXEC, resolve)
}

/// Opens `path` below `root`, as a process with that root directory would. Absolute names and links
/// stay below the root, and procfs links that lead out are refused. The result is a path only;
/// [`reopen`] opens it for reading.
///
/// # Errors
/// The errors of openat2(2).
pub fn in_root(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    open_path(root, path, libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS)
}

/// Opens `path` like [`in_root`], if it has no symbolic links and every part of it is in the
/// kernel's cache of directories. No file system is asked, so no other process can make the caller
/// wait. A kernel without `RESOLVE_CACHED` (before Linux 5.12) asks the file systems.
///
/// # Errors
/// The errors of openat2(2); `WouldBlock`: the name is not in the cache.
pub fn cached_in_root(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    const TRIES: usize = 4;
    let plain = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_SYMLINKS;
    let mut found = Err(io::ErrorKind::WouldBlock.into());
    // A directory that changes at this moment fails a lookup, too.
    for _ in 0..TRIES {
        found = open_path(root, path, plain | libc::RESOLVE_CACHED);
        match &found {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return open_path(root, path, plain),
            _ => break,
        }
    }
    found
}

fn openat2(root: BorrowedFd<'_>, path: &Path, flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros are a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags as u64;
    how.resolve = resolve;
    // SAFETY: `path` ends with a zero byte, and `how` has the given size. The kernel writes to
    // neither.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the cached metadata of an open file, without a request to its file system
/// (`AT_STATX_DONT_SYNC`). Servers of FUSE or network file systems that do not answer
/// therefore block no caller.
///
/// # Errors
/// The errors of statx(2).
pub fn status(file: impl AsFd) -> io::Result<FileStatus> {
    let wanted = libc::STATX_BASIC_STATS;
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: all zeros are a valid `statx`.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty name, and a buffer of the right type, which the kernel fills.
    let failed = unsafe {
        libc::statx(
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            wanted,
            &raw mut found,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(FileStatus {
        id: FileId {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
        },
        mode: found.stx_mode.into(),
        size: found.stx_size,
        times: [found.stx_mtime, found.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec)),
    })
}

/// Opens a path for reading, if it is a regular file. Other files are not opened, because a FIFO
/// would block and a device may act.
///
/// # Errors
/// Fails if this is not a regular file, or if it cannot be read.
pub fn reopen(path: impl AsFd) -> io::Result<File> {
    if !status(&path)?.is_regular() {
        return Err(io::Error::other("this is not a regular file"));
    }
    let link = format!("/proc/self/fd/{}", path.as_fd().as_raw_fd());
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn names_cannot_leave_the_root() {
        let folder = std::env::temp_dir().join(format!("backtrail-beneath-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("jail/lib")).unwrap();
        std::fs::write(folder.join("secret"), "outside").unwrap();
        std::fs::write(folder.join("jail/lib/real"), "inside").unwrap();
        symlink("/lib/real", folder.join("jail/absolute")).unwrap();
        symlink(folder.join("secret"), folder.join("jail/out")).unwrap();
        symlink("../../secret", folder.join("jail/lib/up")).unwrap();
        symlink("/proc/self/root", folder.join("jail/magic")).unwrap();
        let root = File::open(folder.join("jail")).unwrap();
        let read = |name: &str| {
            let file = reopen(in_root(root.as_fd(), name.as_ref())?)?;
            let mut text = String::new();
            { file }.read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        assert_eq!(read("/absolute").unwrap(), "inside");
        assert_eq!(read("/lib/real").unwrap(), "inside");
        for name in ["/out", "/lib/up", "/../secret", "/magic/etc/passwd", "/lib"] {
            assert!(read(name).is_err(), "{name}");
        }
        let cached = |name: &str| cached_in_root(root.as_fd(), name.as_ref());
        let real = status(cached("/lib/real").unwrap()).unwrap();
        assert_eq!(
            real.id,
            status(File::open(folder.join("jail/lib/real")).unwrap())
                .unwrap()
                .id
        );
        for name in ["/absolute", "/out", "/lib/up", "/magic/etc/passwd", "/lib/none"] {
            assert!(cached(name).is_err(), "{name}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn status_agrees_with_a_plain_stat() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let (found, plain) = (status(&file).unwrap(), file.metadata().unwrap());
        assert!(found.is_regular() && found.size == plain.len());
        assert_eq!(found.id.inode, plain.ino());
        assert_eq!(found.times[0], (plain.mtime(), plain.mtime_nsec() as u32));
        let device = libc::makedev(found.id.device.0, found.id.device.1);
        assert_eq!(device, plain.dev());
    }

    #[test]
    fn devices_and_fifos_are_not_opened() {
        let here = File::open("/").unwrap();
        let zero = in_root(here.as_fd(), "/dev/null".as_ref()).unwrap();
        assert!(reopen(zero).is_err());
    }
}
