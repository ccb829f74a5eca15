//! A bundle in the spool: its name, and what is told of it.

use backtrail_bundle::Bundle;
use backtrail_bundle::manifest::{Collected, Crash};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A bundle in the spool.
#[derive(Clone, Debug)]
pub struct StoredBundle {
    /// Its name.
    pub id: String,
    /// Where it stands.
    pub path: PathBuf,
    /// The crashed program's file.
    pub executable: Option<String>,
    /// The crash, if it was one.
    pub crash: Option<Crash>,
    /// How the collector came by it.
    pub collected: Collected,
    /// Why it cannot be read, if it cannot.
    pub unreadable: Option<String>,
    /// Whether a sender has taken it.
    pub sent: bool,
}

impl StoredBundle {
    pub(super) fn read(path: &Path) -> Self {
        let id = path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let (meta, unreadable) = match Bundle::open(path) {
            Ok(bundle) => (bundle.manifest().meta.clone(), None),
            Err(error) => (Default::default(), Some(error.to_string())),
        };
        Self {
            id,
            path: path.to_owned(),
            executable: meta.program,
            crash: meta.crash,
            collected: meta.collected.unwrap_or_default(),
            unreadable,
            sent: false,
        }
    }

    /// What should be there and is not, a sentence each; empty: the bundle is complete.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.collected.missing.iter();
        missing.chain(&self.unreadable).map(String::as_str)
    }
}

/// `000042-worker-4231`.
pub(super) fn name(number: u64, program: &str, pid: u32) -> String {
    let plain: String = program
        .chars()
        .take(32)
        .map(|char| {
            if char.is_ascii_alphanumeric() || "._+".contains(char) {
                char
            } else {
                '_'
            }
        })
        .collect();
    let plain = if plain.is_empty() { "unknown" } else { &plain };
    format!("{number:06}-{plain}-{pid}")
}

/// The number that such a name begins with.
pub(super) fn number(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once('-')?;
    (number.len() >= 6 && rest.contains('-'))
        .then(|| number.parse().ok())
        .flatten()
}

/// Bytes on disk of a file or of all under a directory; a file with several names counts nowhere.
pub(super) fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else {
        return 0;
    };
    if !metadata.is_dir() {
        // Shared modules are counted where they are kept.
        let shared = metadata.nlink() > 1 && !is_kept(path);
        return if shared { 0 } else { metadata.blocks() * 512 };
    }
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    inside.map(|entry| size(&entry.path())).sum()
}

/// The inodes of a bundle's files that have exactly one other name, which is that of a shared module.
pub(super) fn last_links(bundle: &Path) -> Vec<u64> {
    let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    inside(&bundle.join("modules"))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .flat_map(|entry| inside(&entry.path()))
        .filter(|entry| entry.metadata().is_ok_and(|found| found.nlink() == 2))
        .map(|entry| entry.ino())
        .collect()
}

fn is_kept(path: &Path) -> bool {
    let above = path.parent().and_then(Path::parent);
    above.is_some_and(|above| above.ends_with(super::MODULES))
}
