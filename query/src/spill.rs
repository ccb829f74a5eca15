//! The folder for rows that do not fit into memory.

use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The beginning of the folders' names. The id of the process follows.
const PREFIX: &str = "backtrail-query-";

/// A folder that is removed with the value.
#[derive(Debug)]
pub(crate) struct SpillFolder {
    path: PathBuf,
}

impl SpillFolder {
    /// Creates the folder of this process, and removes those of killed processes.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        remove_abandoned(parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        // A killed process may have had the same id.
        let _ = fs::remove_dir_all(&path);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| Error::System {
            action: "create a folder for rows that do not fit into memory",
            reason: format!("{}: {error}", path.display()),
        })?;
        Ok(Self { path })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        // A folder that stays is removed by a later query.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of processes that do not exist. Those of other users stay.
fn remove_abandoned(parent: &Path) {
    if !Path::new("/proc/self").exists() {
        return;
    }
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        // Process ids are at most 2^22.
        let abandoned = parent.path().join(format!("{PREFIX}{}", u32::MAX));
        let other = parent.path().join("backtrail-query-notes");
        fs::create_dir(&abandoned).unwrap();
        fs::create_dir(&other).unwrap();
        let own = SpillFolder::create(parent.path()).unwrap();
        assert!(!abandoned.exists() && other.exists() && own.path().is_dir());
        let path = own.path().to_owned();
        drop(own);
        assert!(!path.exists());
    }
}
