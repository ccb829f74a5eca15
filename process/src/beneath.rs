//! Opening files by names that another user chose, without ending up elsewhere, blocking, or
//! touching a device.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Device and inode of a file: its identity on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// The inode.
    pub inode: u64,
}

/// What the kernel knows of a file without asking its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which file it is.
    pub id: FileId,
    /// `S_IFMT` and permissions.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of the contents, and of the inode: seconds and nanoseconds.
    pub times: [(i64, u32); 2],
}

impl Status {
    /// Whether it is a regular file.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Opens a directory or file as a place only (`O_PATH`): neither its file system nor a device's
/// driver is asked.
///
/// # Errors
/// Those of openat2(2).
pub fn place(root: BorrowedFd<'_>, path: &Path, resolve: u64) -> io::Result<OwnedFd> {
    openat2(root, path, libc::O_PATH | libc::O_CLOEXEC, resolve)
}

/// Opens `path` below `root`, as a process whose root directory `root` is would: absolute names and
/// links stay below it, and links of procfs that lead elsewhere are refused. The result is a place
/// only; [`reopen`] reads it.
///
/// # Errors
/// Those of openat2(2).
pub fn in_root(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    place(root, path, libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS)
}

/// Like [`in_root`], for a name without symbolic links of which every part is in the kernel's cache of
/// directories: no file system is asked, so nobody can make the caller wait. A kernel without
/// `RESOLVE_CACHED` (before Linux 5.12) asks the file systems.
///
/// # Errors
/// Those of openat2(2); `WouldBlock`: the name is not in the cache.
pub fn cached_in_root(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    const TRIES: usize = 4;
    let plain = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_SYMLINKS;
    let mut found = Err(io::ErrorKind::WouldBlock.into());
    // A directory that changes at this moment fails a lookup, too.
    for _ in 0..TRIES {
        found = place(root, path, plain | libc::RESOLVE_CACHED);
        match &found {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return place(root, path, plain),
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
    // SAFETY: `path` ends with a zero and `how` has the size that is given; the kernel writes to
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
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns what the kernel knows of an open file without asking its file system
/// (`AT_STATX_DONT_SYNC`): a server of FUSE or of the network that does not answer blocks nobody.
///
/// # Errors
/// Those of statx(2).
pub fn status(file: impl AsFd) -> io::Result<Status> {
    let wanted = libc::STATX_BASIC_STATS;
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: all zeros are a valid `statx`.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty name and a buffer of the right type, which the kernel fills.
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
    Ok(Status {
        id: FileId {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
        },
        mode: found.stx_mode.into(),
        size: found.stx_size,
        times: [found.stx_mtime, found.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec)),
    })
}

/// Opens for reading what a place names, if it is a regular file: nothing else is ever opened, for
/// a FIFO would block and a device may act.
///
/// # Errors
/// When it is no regular file, or may not be read.
pub fn reopen(place: impl AsFd) -> io::Result<File> {
    if !status(&place)?.is_regular() {
        return Err(io::Error::other("this is not a regular file"));
    }
    let path = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn names_stay_below_the_root() {
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
