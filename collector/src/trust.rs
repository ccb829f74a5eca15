//! Checks files that root executes or trusts: no other user may have been able to write them.

use nix::fcntl::OFlag;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Write permission of the group or of all users.
const OTHERS_WRITE: u32 = 0o022;
/// Only their owners may remove names in the directory.
const STICKY: u32 = 0o1000;

/// A file or directory that another user than root can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UntrustedPath {
    path: PathBuf,
    /// Its owner, if that is not root.
    owner: Option<u32>,
}

impl fmt::Display for UntrustedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.owner {
            Some(owner) => write!(f, "{path} belongs to user {owner}"),
            None => write!(f, "other users than root can write to {path}"),
        }
    }
}

/// Returns the first directory on the path, or the file itself, that another user than root can
/// change. A sticky directory is accepted, because root's files in it stay.
///
/// # Errors
/// When a part of the path does not exist.
pub(crate) fn first_untrusted(path: &Path) -> io::Result<Option<UntrustedPath>> {
    let path = std::path::absolute(path)?;
    let mut links = 0;
    let mut done = PathBuf::from("/");
    let mut rest = names(&path);
    if let Some(found) = check(&done, &fs::symlink_metadata(&done)?, rest.is_empty()) {
        return Ok(Some(found));
    }
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        let metadata = fs::symlink_metadata(&next)?;
        if let Some(found) = check(&next, &metadata, rest.is_empty()) {
            return Ok(Some(found));
        }
        if !metadata.is_symlink() {
            done = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            rest.push_front(name);
        }
    }
    Ok(None)
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

fn check(path: &Path, metadata: &fs::Metadata, is_last: bool) -> Option<UntrustedPath> {
    let mode = metadata.mode();
    let protected = metadata.is_symlink()
        || mode & OTHERS_WRITE == 0
        || (metadata.is_dir() && mode & STICKY != 0 && !is_last);
    let owner = Some(metadata.uid()).filter(|owner| *owner != 0);
    (owner.is_some() || !protected).then(|| UntrustedPath {
        path: path.to_owned(),
        owner,
    })
}

/// Reads a file of at most `limit` bytes that only root, or the user of this process, can have
/// written.
///
/// # Errors
/// When the file does not exist or does not fulfill this.
pub(crate) fn read_trusted(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    let is_ours = found.uid() == 0 || found.uid() == nix::unistd::geteuid().as_raw();
    if !found.is_file() || !is_ours || found.mode() & OTHERS_WRITE != 0 || found.len() > limit {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user than root could have written it",
        ));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn is_root() -> bool {
        let is_root = nix::unistd::geteuid().is_root();
        if !is_root {
            eprintln!("left out: only root has files that are root's");
        }
        is_root
    }

    #[test]
    fn each_directory_on_the_path_is_checked() {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "x").unwrap();
        let found = |name: &str| first_untrusted(&at(name)).unwrap().map(|found| found.to_string());
        assert_eq!(found("a/b/file"), None, "below a sticky directory");
        for part in ["a", "a/b", "a/b/file"] {
            for mode in [0o775, 0o757] {
                set_mode(&at(part), mode);
                assert!(found("a/b/file").unwrap().contains("other users"), "{part}");
            }
            set_mode(&at(part), 0o755);
            chown(at(part), Some(1), None).unwrap();
            assert!(found("a/b/file").unwrap().contains("user 1"), "{part}");
            chown(at(part), Some(0), None).unwrap();
        }
        set_mode(&at("a"), 0o1777);
        assert_eq!(found("a/b/file"), None);
        assert!(found("a").is_some(), "others may add names to it");
    }

    #[test]
    fn links_on_the_path_are_followed_and_checked() {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("open/safe")).unwrap();
        fs::create_dir(at("safe")).unwrap();
        symlink("open/safe", at("way")).unwrap();
        symlink(at("safe"), at("open/back")).unwrap();
        symlink("round", at("round")).unwrap();
        assert_eq!(first_untrusted(&at("way")).unwrap(), None);
        set_mode(&at("open"), 0o777);
        assert!(first_untrusted(&at("way")).unwrap().is_some());
        assert!(first_untrusted(&at("open/back")).unwrap().is_some());
        assert_eq!(
            first_untrusted(&at("open/../safe")).unwrap().unwrap().path,
            at("open")
        );
        assert_eq!(
            first_untrusted(&at("round")).unwrap_err().raw_os_error(),
            Some(libc::ELOOP)
        );
        assert!(first_untrusted(&at("none")).is_err());
    }

    #[test]
    fn file_writable_by_others_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        set_mode(&at("file"), 0o644);
        assert_eq!(read_trusted(&at("file"), 4).unwrap(), b"text");
        assert!(read_trusted(&at("file"), 3).is_err());
        symlink(at("file"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "pipe", "none", "."] {
            assert!(read_trusted(&at(name), 4).is_err(), "{name}");
        }
        set_mode(&at("file"), 0o664);
        assert!(read_trusted(&at("file"), 4).is_err());
        if is_root() {
            set_mode(&at("file"), 0o644);
            chown(at("file"), Some(1), None).unwrap();
            assert!(read_trusted(&at("file"), 4).is_err());
        }
    }
}
