//! Changes the owner of files that another user may modify at the same time. It works on
//! descriptors and follows no link.

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, fchown, fchownat};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Maximum depth of a bundle.
const DEPTH: usize = 64;
/// Maximum number of entries in all directories together.
const MAX_ENTRIES: usize = 1_000_000;

/// The new owner. `None`: the group stays the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) user: Uid,
    pub(crate) group: Option<Gid>,
}

/// Changes the owner of a directory and everything in it. The directory must not be a link, and is
/// changed first.
///
/// # Errors
/// When the path is not a directory, the tree is too deep, or the kernel refuses.
pub(crate) fn chown_recursively(directory: &Path, owner: Owner) -> io::Result<()> {
    let mut left = MAX_ENTRIES;
    walk(open(nix::fcntl::AT_FDCWD, directory)?, owner, DEPTH, &mut left)
}

fn open<P: ?Sized + nix::NixPath>(above: impl AsFd, name: &P) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    nix::fcntl::openat(above, name, flags, Mode::empty())
}

fn walk(directory: OwnedFd, owner: Owner, depth: usize, left: &mut usize) -> io::Result<()> {
    let depth = depth.checked_sub(1).ok_or(Errno::ELOOP)?;
    // The directory first: from then on no other user changes its content, and it can be removed.
    fchown(&directory, Some(owner.user), owner.group)?;
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::from_fd(directory.try_clone()?)?.iter() {
        *left = left.checked_sub(1).ok_or(Errno::E2BIG)?;
        names.push(entry?.file_name().to_owned());
    }
    names.retain(|name| ![&b"."[..], b".."].contains(&name.to_bytes()));
    for name in names {
        match open(&directory, name.as_c_str()) {
            Ok(inner) => walk(inner, owner, depth, left)?,
            Err(Errno::ENOTDIR | Errno::ELOOP) => fchownat(
                &directory,
                name.as_c_str(),
                Some(owner.user),
                owner.group,
                AtFlags::AT_SYMLINK_NOFOLLOW,
            )?,
            // A daemon that is ending may still remove unfinished files.
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn user(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().uid()
    }

    #[test]
    fn chown_covers_directory_but_not_link_targets() {
        if !Uid::effective().is_root() {
            return eprintln!("left out: only root can give files away");
        }
        let owner = Owner {
            user: Uid::from_raw(12345),
            group: None,
        };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("spool/bundle/modules")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        for file in ["spool/bundle/modules/a", "spool/bundle/core", "outside/file"] {
            fs::write(at(file), "x").unwrap();
        }
        symlink(at("outside"), at("spool/directory")).unwrap();
        symlink(at("outside/file"), at("spool/file")).unwrap();
        symlink(at("spool"), at("way")).unwrap();
        chown_recursively(&at("spool"), owner).unwrap();
        for given in [
            "spool",
            "spool/bundle",
            "spool/bundle/modules/a",
            "spool/bundle/core",
            "spool/directory",
        ] {
            assert_eq!(user(&at(given)), 12345, "{given}");
        }
        assert_eq!((user(&at("outside")), user(&at("outside/file"))), (0, 0));
        assert!(chown_recursively(&at("way"), owner).is_err(), "a link");
        assert!(
            chown_recursively(&at("outside/file"), owner).is_err(),
            "no directory"
        );
    }

    #[test]
    fn too_deep_tree_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("d/".repeat(DEPTH))).unwrap();
        let owner = Owner {
            user: Uid::effective(),
            group: None,
        };
        assert_eq!(
            chown_recursively(folder.path(), owner)
                .unwrap_err()
                .raw_os_error(),
            Some(libc::ELOOP)
        );
    }
}
