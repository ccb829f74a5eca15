//! Writes a core file as the kernel would for the crashing thread (core(5)).

use super::crashed_thread::{CrashedThread, Directories};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// The kernel writes no core file if `RLIMIT_CORE` is below this.
const MIN_LIMIT: u64 = 4096;

/// Writes a core file of at most `limit` bytes, relative to the thread's working or root directory
/// and with its permissions. The last path component must not be a link, and the file must be new.
/// Writes nothing where the kernel would write nothing.
///
/// # Errors
/// When the thread has ended or lacks the permission, or the file cannot be written.
pub(super) fn write(name: &OsStr, thread: CrashedThread, limit: u64, core: impl Read) -> io::Result<()> {
    if limit < MIN_LIMIT {
        return Ok(());
    }
    let directories = thread.assume()?;
    match create(name, &directories)? {
        Some(file) => copy_sparse(core.take(limit), file),
        None => Ok(()),
    }
}

/// Appends the process id if `core_uses_pid` requires it and the pattern does not contain it.
pub(super) fn with_pid(name: OsString, inner_pid: u32) -> OsString {
    let asked = std::fs::read_to_string("/proc/sys/kernel/core_uses_pid").unwrap_or_default();
    let suffix = format!(".{inner_pid}");
    if asked.trim() != "1" || name.as_bytes().ends_with(suffix.as_bytes()) {
        return name;
    }
    let mut name = name;
    name.push(suffix);
    name
}

/// Creates the file and replaces an existing one. `None`: the kernel would not write to it either.
fn create(name: &OsStr, directories: &Directories) -> io::Result<Option<File>> {
    let bytes = name.as_bytes();
    let (parent, file) = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => bytes.split_at(slash + 1),
        None => (&b"."[..], bytes),
    };
    if [&b""[..], b".", b".."].contains(&file) {
        return Ok(None);
    }
    let file = OsStr::from_bytes(file);
    let (start, resolve) = if bytes.starts_with(b"/") {
        (
            &directories.root,
            ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_IN_ROOT,
        )
    } else {
        (&directories.working, ResolveFlag::RESOLVE_NO_MAGICLINKS)
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(resolve);
    let parent: OwnedFd = openat2(start, OsStr::from_bytes(parent), how)?;
    // Like the kernel, this replaces an older core even if another process has it open.
    let _ = unlinkat(&parent, file, UnlinkatFlags::NoRemoveDir);
    let flags = OFlag::O_CREAT
        | OFlag::O_EXCL
        | OFlag::O_WRONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_CLOEXEC;
    let file = File::from(openat(&parent, file, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    let found = file.metadata()?;
    // File systems may change the owner or mode of a new file.
    let is_its_own = found.uid() == directories.user.as_raw() && found.mode() & 0o677 == 0o600;
    Ok((found.is_file() && found.nlink() == 1 && is_its_own).then_some(file))
}

/// Copies the core and leaves holes for pages of zeros.
fn copy_sparse(mut from: impl Read, mut to: File) -> io::Result<()> {
    const PAGE: usize = 4096;
    let mut buffer = vec![0; 64 * PAGE];
    let mut len = 0;
    loop {
        let mut filled = 0;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match from.read(room)? {
                0 => break,
                got => filled += got,
            }
        }
        if filled == 0 {
            return to.set_len(len);
        }
        for page in buffer.get(..filled).unwrap_or_default().chunks(PAGE) {
            if page.iter().all(|byte| *byte == 0) {
                to.seek_relative(page.len() as i64)?;
            } else {
                to.write_all(page)?;
            }
            len += page.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::open;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn sparse_copy_has_the_same_content() {
        let mut bytes = vec![0; 4096 * 70];
        bytes[4096 * 3 + 5] = 7;
        bytes.extend([1, 2, 3]);
        bytes.extend([0; 5000]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("core");
        copy_sparse(&bytes[..], File::create(&path).unwrap()).unwrap();
        assert!(fs::read(&path).unwrap() == bytes);
    }

    fn directories(root: &Path, working: &Path) -> Directories {
        let directory = |path: &Path| open(path, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        Directories {
            root: directory(root),
            working: directory(working),
            user: nix::unistd::geteuid(),
        }
    }

    #[test]
    fn absolute_names_stay_below_the_root_directory() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["jail/inside", "outside"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink("/inside", at("jail/absolute")).unwrap();
        symlink("../../../inside", at("jail/upward")).unwrap();
        symlink(at("outside"), at("jail/escape")).unwrap();
        symlink("/proc/self/cwd", at("jail/magic")).unwrap();
        let inside = directories(&at("jail"), &at("jail"));
        for (name, created) in [("/absolute/a", "a"), ("/upward/b", "b"), ("/../../inside/c", "c")] {
            create(name.as_ref(), &inside).unwrap().unwrap();
            assert!(at("jail/inside").join(created).is_file(), "{name}");
        }
        for name in ["/escape/d", "/magic/e", "/none/f"] {
            assert!(create(name.as_ref(), &inside).is_err(), "{name}");
        }
        for name in ["/inside/", "/inside/..", "", "."] {
            assert!(create(name.as_ref(), &inside).unwrap().is_none(), "{name}");
        }
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
    }

    #[test]
    fn existing_file_is_replaced_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let inside = directories(folder.path(), folder.path());
        fs::write(at("other"), "theirs").unwrap();
        fs::hard_link(at("other"), at("core")).unwrap();
        create("core".as_ref(), &inside).unwrap().unwrap();
        symlink(at("other"), at("core.2")).unwrap();
        create("core.2".as_ref(), &inside).unwrap().unwrap();
        assert_eq!(fs::read(at("other")).unwrap(), b"theirs");
        assert!(at("core.2").symlink_metadata().unwrap().is_file());
        fs::create_dir(at("core.3")).unwrap();
        assert!(create("core.3".as_ref(), &inside).is_err());
    }
}
