//! A bundle in the spool, with its name and properties.

use backtrail_bundle::Bundle;
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::manifest::{Collected, Crash};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of modules that bundles share.
pub(super) const MODULES: &str = ".modules";

/// A bundle in the spool.
#[derive(Clone, Debug)]
pub struct StoredBundle {
    /// Its name.
    pub id: String,
    /// Its path.
    pub path: PathBuf,
    /// The crashed program's file.
    pub executable: Option<String>,
    /// The crash, if the bundle is of a crash.
    pub crash: Option<Crash>,
    /// The context that the process published.
    pub context: Option<PublishedContext>,
    /// The collector's data about the bundle.
    pub collected: Collected,
    /// Why the bundle cannot be read, if it cannot.
    pub unreadable: Option<String>,
    /// Whether it was sent.
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
            context: meta.context,
            collected: meta.collected.unwrap_or_default(),
            unreadable,
            sent: false,
        }
    }

    /// Returns what is missing in the bundle, one sentence each. Empty: the bundle is complete.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.collected.missing.iter();
        missing.chain(&self.unreadable).map(String::as_str)
    }
}

/// Returns a name such as `000042-worker-4231`.
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

/// Returns the number at the start of such a name.
pub(super) fn number(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once('-')?;
    (number.len() >= 6 && rest.contains('-'))
        .then(|| number.parse().ok())
        .flatten()
}

/// Returns the bytes on disk of a file or a directory. Files with several links do not count.
pub(super) fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else {
        return 0;
    };
    if !metadata.is_dir() {
        // Shared modules count in their own directory.
        let shared = metadata.nlink() > 1 && !is_kept(path);
        return if shared { 0 } else { metadata.blocks() * 512 };
    }
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    inside.map(|entry| size(&entry.path())).sum()
}

/// Returns the inodes of a bundle's files with exactly one other link, which is the shared module.
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
    above.is_some_and(|above| above.ends_with(MODULES))
}
