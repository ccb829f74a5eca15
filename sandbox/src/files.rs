//! A list of files and directories that a process may open (Landlock).

use crate::Error;
use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};
use std::path::Path;

/// The newest version whose kinds of access are limited. An older kernel limits those it knows.
const VERSION: ABI = ABI::V5;

/// The extent to which the kernel limits files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLimit {
    /// All kinds of access are limited.
    Whole,
    /// The kernel knows some kinds of access only.
    Partial,
    /// The kernel has no Landlock, or it is turned off.
    Absent,
}

/// Permits reading below the paths of `readable` only, and every access but execution below those
/// of `writable`. Files that are open stay usable. A path that does not exist permits nothing.
///
/// # Errors
/// Fails if the kernel has Landlock and refuses the list.
pub fn limit_files(readable: &[&Path], writable: &[&Path]) -> Result<FileLimit, Error> {
    match restrict(readable, writable) {
        Ok(RulesetStatus::FullyEnforced) => Ok(FileLimit::Whole),
        Ok(RulesetStatus::PartiallyEnforced) => Ok(FileLimit::Partial),
        Ok(RulesetStatus::NotEnforced) => Ok(FileLimit::Absent),
        Err(error) => Err(Error::Files(error.to_string())),
    }
}

fn restrict(readable: &[&Path], writable: &[&Path]) -> Result<RulesetStatus, RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let all = AccessFs::from_all(VERSION);
    let status = Ruleset::default()
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(writable, all & !AccessFs::Execute))?
        .restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;

    /// The limits hold for the calling thread, so that a test has a thread of its own.
    #[test]
    fn files_outside_of_the_list_cannot_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["read", "write", "other"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("a"), name).unwrap();
        }
        let open = fs::File::open(path("other").join("a")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (read, write, absent) = (path("read"), path("write"), path("absent"));
                if limit_files(&[&read, &absent], &[&write]).unwrap() == FileLimit::Absent {
                    return println!("left out: the kernel has no Landlock");
                }
                let refused = |result: std::io::Result<()>| {
                    assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
                };
                assert_eq!(fs::read_to_string(read.join("a")).unwrap(), "read");
                refused(fs::write(read.join("b"), "x"));
                refused(fs::remove_file(read.join("a")));
                fs::write(write.join("b"), "x").unwrap();
                fs::rename(write.join("b"), write.join("c")).unwrap();
                assert_eq!(fs::read_dir(&write).unwrap().count(), 2);
                refused(fs::read(path("other").join("a")).map(|_| ()));
                refused(fs::read_dir(folder.path()).map(|_| ()));
                refused(fs::read("/etc/passwd").map(|_| ()));
                refused(fs::rename(write.join("c"), read.join("c")));
                // An open file stays usable.
                assert_eq!(std::io::read_to_string(&open).unwrap(), "other");
                // A thread that it starts has the limits too.
                let inherited = std::thread::spawn(|| fs::read("/etc/passwd").is_err());
                assert!(inherited.join().unwrap());
            });
        });
        // The other threads have no limit.
        assert!(fs::read_dir(folder.path()).is_ok());
    }
}
