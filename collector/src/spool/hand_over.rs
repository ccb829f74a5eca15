//! Gives a finished bundle to the spool's owner, and makes it readable for the spool's group.
//!
//! The writer may be another, hostile user. So no link is followed, and only files and directories
//! of the writer are changed.

use crate::error::{Error, Result};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchownat};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Maximum depth of a bundle.
const DEPTH: usize = 16;
/// Maximum number of files and directories of a bundle.
const MAX_ENTRIES: usize = 100_000;
/// The group's permissions for reading and searching.
const GROUP_READS: u32 = 0o050;

/// Gives a bundle to the owner and group of `spool`. The group can read it exactly if it can read
/// the spool.
///
/// # Errors
/// When the bundle has invalid content, or the kernel refuses. A part may have been changed by
/// then.
pub(super) fn hand_over(bundle: &Path, spool: &Path, modules: &Path) -> Result<()> {
    let found = fs::metadata(spool).map_err(Error::file("look at", spool))?;
    let give = || -> io::Result<()> {
        let directory = openat(AT_FDCWD, bundle, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())?;
        let mut walk = Walk {
            writer: fstat(&directory)?.st_uid,
            user: found.uid(),
            group: found.gid(),
            group_reads: found.mode() & GROUP_READS == GROUP_READS,
            modules,
            shared: None,
            entries: 0,
        };
        walk.directory(directory, DEPTH)
    };
    give().map_err(Error::file("give to the spool's owner", bundle))
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

struct Walk<'a> {
    /// The user who wrote the bundle.
    writer: u32,
    user: u32,
    group: u32,
    group_reads: bool,
    /// The directory of shared modules.
    modules: &'a Path,
    /// Their inodes, read when the first is found.
    shared: Option<HashSet<u64>>,
    entries: usize,
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it contains {what}"))
}

impl Walk<'_> {
    /// Changes a directory before its content, so that its writer can no longer modify it.
    fn directory(&mut self, directory: OwnedFd, depth: usize) -> io::Result<()> {
        let depth = depth.checked_sub(1).ok_or(Errno::ELOOP)?;
        self.give(&directory, &fstat(&directory)?, 0o700, 0o050)?;
        let mut names: Vec<CString> = Vec::new();
        for entry in Dir::from_fd(directory.try_clone()?)?.iter() {
            let entry = entry?;
            if ![&b"."[..], b".."].contains(&entry.file_name().to_bytes()) {
                names.push(entry.file_name().to_owned());
                self.entries += 1;
            }
            if self.entries > MAX_ENTRIES {
                return Err(refused("more entries than a bundle has"));
            }
        }
        for name in names {
            self.entry(&directory, &name, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, directory: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(
                ResolveFlag::RESOLVE_BENEATH
                    | ResolveFlag::RESOLVE_NO_SYMLINKS
                    | ResolveFlag::RESOLVE_NO_XDEV,
            );
        let entry = openat2(directory, name, how)?;
        let found = fstat(&entry)?;
        match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => self.directory(openat(&entry, ".", DIRECTORY, Mode::empty())?, depth),
            SFlag::S_IFREG => {
                if found.st_nlink != 1 && !self.is_shared(&found)? {
                    return Err(refused("a file with another link"));
                }
                self.give(&entry, &found, 0o600, 0o040)
            }
            _ => Err(refused("an entry that is neither a file nor a directory")),
        }
    }

    /// Returns whether a file is a shared module.
    fn is_shared(&mut self, found: &FileStat) -> io::Result<bool> {
        if fs::symlink_metadata(self.modules).is_ok_and(|modules| modules.dev() != found.st_dev) {
            return Ok(false);
        }
        if self.shared.is_none() {
            let entries = fs::read_dir(self.modules)?.flatten();
            self.shared = Some(entries.map(|entry| entry.ino()).collect());
        }
        Ok(self
            .shared
            .as_ref()
            .is_some_and(|shared| shared.contains(&found.st_ino)))
    }

    fn give(&self, file: &impl AsFd, found: &FileStat, owner: u32, group: u32) -> io::Result<()> {
        if found.st_uid != self.writer && found.st_uid != self.user {
            return Err(refused("an entry of another user"));
        }
        if (found.st_uid, found.st_gid) != (self.user, self.group) {
            let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
            fchownat(file, c"", Some(user), Some(group), AtFlags::AT_EMPTY_PATH)?;
        }
        let mode = owner | if self.group_reads { group } else { 0 };
        // This path leads to the open file, whatever its name is.
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;

    struct SpoolFixture {
        directory: tempfile::TempDir,
    }

    impl SpoolFixture {
        /// Creates a spool of user 0 and group 7 that its group may read, and a bundle of user 1.
        fn new() -> Option<Self> {
            if !Uid::effective().is_root() {
                eprintln!("left out: only root can give files away");
                return None;
            }
            let fixture = Self {
                directory: tempfile::tempdir().unwrap(),
            };
            fs::create_dir_all(fixture.at("spool/.modules")).unwrap();
            fs::create_dir_all(fixture.at("bundle/modules/id")).unwrap();
            fs::write(fixture.at("bundle/core"), "core").unwrap();
            fs::write(fixture.at("bundle/modules/id/tool"), "tool").unwrap();
            fs::set_permissions(
                fixture.at("bundle/modules/id/tool"),
                fs::Permissions::from_mode(0o6777),
            )
            .unwrap();
            chown(fixture.at("spool"), None, Some(7)).unwrap();
            fixture.set_mode("spool", 0o2750);
            for name in [
                "bundle",
                "bundle/core",
                "bundle/modules",
                "bundle/modules/id",
                "bundle/modules/id/tool",
            ] {
                chown(fixture.at(name), Some(1), Some(1)).unwrap();
            }
            Some(fixture)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn set_mode(&self, name: &str, mode: u32) {
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
        }

        fn give(&self) -> Result<()> {
            hand_over(&self.at("bundle"), &self.at("spool"), &self.at("spool/.modules"))
        }

        fn found(&self, name: &str) -> (u32, u32, u32) {
            let found = self.at(name).symlink_metadata().unwrap();
            (found.uid(), found.gid(), found.mode() & 0o7777)
        }
    }

    #[test]
    fn group_permissions_follow_the_spool() {
        let Some(fixture) = SpoolFixture::new() else {
            return;
        };
        fixture.give().unwrap();
        assert_eq!(fixture.found("bundle"), (0, 7, 0o750));
        assert_eq!(fixture.found("bundle/modules/id"), (0, 7, 0o750));
        assert_eq!(fixture.found("bundle/core"), (0, 7, 0o640));
        assert_eq!(fixture.found("bundle/modules/id/tool"), (0, 7, 0o640));
        fixture.set_mode("spool", 0o700);
        fixture.give().unwrap();
        assert_eq!(fixture.found("bundle/modules"), (0, 7, 0o700));
        assert_eq!(fixture.found("bundle/modules/id/tool"), (0, 7, 0o600));
    }

    #[test]
    fn shared_modules_may_have_several_names() {
        let Some(fixture) = SpoolFixture::new() else {
            return;
        };
        fs::write(fixture.at("spool/.modules/lib"), "lib").unwrap();
        fs::hard_link(
            fixture.at("spool/.modules/lib"),
            fixture.at("bundle/modules/id/lib"),
        )
        .unwrap();
        fixture.give().unwrap();
        assert_eq!(fixture.found("bundle/modules/id/lib"), (0, 7, 0o640));
    }

    #[test]
    fn invalid_content_is_refused_and_unchanged() {
        type Plant = fn(&Path, &Path);
        let plants: [(&str, Plant); 6] = [
            ("another name", |at, outside| fs::hard_link(outside, at).unwrap()),
            ("a link", |at, outside| symlink(outside, at).unwrap()),
            ("a pipe", |at, _| mkfifo(at, Mode::S_IRWXU).unwrap()),
            ("a socket", |at, _| {
                std::os::unix::net::UnixListener::bind(at).map(drop).unwrap();
            }),
            ("a file of somebody else's", |at, _| {
                fs::write(at, "x").unwrap();
                chown(at, Some(2), Some(2)).unwrap();
            }),
            ("too deep", |at, _| {
                fs::create_dir_all(at.join("d/".repeat(DEPTH))).unwrap()
            }),
        ];
        for (what, plant) in plants {
            let Some(fixture) = SpoolFixture::new() else {
                return;
            };
            let outside = fixture.at("outside");
            fs::write(&outside, "secret").unwrap();
            chown(&outside, Some(1), Some(1)).unwrap();
            plant(&fixture.at("bundle/modules/planted"), &outside);
            assert!(fixture.give().is_err(), "{what}");
            assert_eq!(fixture.found("outside"), (1, 1, 0o644), "{what}");
        }
        let Some(fixture) = SpoolFixture::new() else {
            return;
        };
        symlink(fixture.at("bundle"), fixture.at("way")).unwrap();
        assert!(hand_over(&fixture.at("way"), &fixture.at("spool"), &fixture.at("x")).is_err());
    }
}
