//! The source files of a bundle.

use super::{MAX_SOURCE, without_dots};
use backtrail_bundle::sources::BundledSource;
use backtrail_bundle::{Bundle, BundlePath, Result};
use md5::{Digest, Md5};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The source files of a bundle, which are found by their whole paths alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundledSources {
    /// The root directory of the bundle.
    root: Option<PathBuf>,
    /// Entries of the list by their paths without `.` and `..`.
    by_path: BTreeMap<String, BundledSource>,
    digests: DigestCache,
}

impl BundledSources {
    /// Reads the list of a bundle.
    ///
    /// # Errors
    /// Fails if the list is malformed.
    pub fn of(bundle: &Bundle) -> Result<Self> {
        Ok(Self::new(bundle.root(), bundle.sources()?))
    }

    /// Returns the source files of a list below the root of a bundle.
    pub(super) fn new(root: &Path, listed: Vec<BundledSource>) -> Self {
        let listed = listed.into_iter();
        Self {
            root: Some(root.to_owned()),
            by_path: listed
                .map(|source| (without_dots(&source.path), source))
                .collect(),
            digests: DigestCache::default(),
        }
    }

    /// Returns the copy of a source file and its entry.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<(PathBuf, &BundledSource)> {
        let entry = self.by_path.get(&without_dots(path))?;
        let file = BundlePath::new(&entry.file).ok()?;
        Some((file.resolve(self.root.as_ref()?).ok()?, entry))
    }

    /// Returns whether a path is that of a copy. Only [`Self::find`] knows of which file it is one.
    #[must_use]
    pub(super) fn has_copy(&self, path: &Path) -> bool {
        let root = self.root.as_ref();
        root.is_some_and(|root| path.starts_with(root.join("sources")))
    }

    /// Returns whether the debug information has the MD5 of the bundle's copy, and a file of this
    /// machine has another one.
    #[must_use]
    pub(super) fn replaces(&self, path: &str, found: &Path) -> bool {
        let entry = self.by_path.get(&without_dots(path));
        let entry = entry.filter(|entry| entry.verified);
        entry.is_some_and(|entry| self.digests.of(found).is_some_and(|md5| md5 != entry.md5))
    }
}

/// Returns the MD5 of a text, in lower-case hexadecimal digits.
#[must_use]
pub fn md5_of(text: &[u8]) -> String {
    let mut digits = String::new();
    for byte in Md5::digest(text) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// The size of a file, and the time of its last change.
type FileVersion = (u64, Option<SystemTime>);

/// The MD5s of files of this machine, which are computed once for each version of a file.
#[derive(Clone, Debug, Default)]
struct DigestCache(RefCell<HashMap<PathBuf, (FileVersion, String)>>);

impl DigestCache {
    fn of(&self, path: &Path) -> Option<String> {
        let metadata = path.metadata().ok()?;
        let version = (metadata.len(), metadata.modified().ok());
        if let Some((known, digest)) = self.0.borrow().get(path)
            && *known == version
        {
            return Some(digest.clone());
        }
        if version.0 > MAX_SOURCE {
            return None;
        }
        let digest = md5_of(&std::fs::read(path).ok()?);
        let known = (version, digest.clone());
        let _ = self.0.borrow_mut().insert(path.to_owned(), known);
        Some(digest)
    }
}

/// Known digests change no result.
impl PartialEq for DigestCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for DigestCache {}
