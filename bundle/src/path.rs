//! Paths inside a bundle, which cannot lead out of it.

use crate::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};

/// A relative path of plain names separated by `/`. It has no root, no `.` or `..`, and no empty
/// name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundlePath(String);

impl BundlePath {
    /// The longest accepted path in bytes (`PATH_MAX`).
    pub const MAX_LEN: usize = 4096;

    /// Parses a path from a manifest or an archive.
    ///
    /// # Errors
    /// Fails if the path could lead out of the bundle, or if it is not a path.
    pub fn new(path: &str) -> Result<Self> {
        let refuse = |problem: &str| Err(Error::malformed(format!("path {path:?}"), problem));
        if path.is_empty() || path.len() > Self::MAX_LEN {
            return refuse("a path in a bundle has between 1 and 4096 bytes");
        }
        if path.starts_with('/') {
            return refuse("an absolute path leads out of the bundle");
        }
        if path.split('/').any(|name| name == "..") {
            return refuse("\"..\" leads out of the bundle");
        }
        if path.contains(['\0', '\\']) || path.split('/').any(|name| name.is_empty() || name == ".") {
            return refuse("a path in a bundle is plain names separated by \"/\"");
        }
        Ok(Self(path.to_owned()))
    }

    /// Returns the path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last name of the path.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns the regular file at this path below `root`.
    ///
    /// # Errors
    /// Fails if the file is missing, if it is not a regular file, or if a symbolic link leads out
    /// of `root`.
    pub fn resolve(&self, root: &Path) -> Result<PathBuf> {
        let missing = |error: std::io::Error| {
            Error::malformed(
                root.join(&self.0).display(),
                format!("the bundle names this file, but it {}", {
                    if error.kind() == std::io::ErrorKind::NotFound {
                        "does not exist".to_owned()
                    } else {
                        format!("cannot be read ({error})")
                    }
                }),
            )
        };
        let root = root.canonicalize().map_err(Error::io("open", root))?;
        let file = root.join(&self.0).canonicalize().map_err(missing)?;
        if !file.starts_with(&root) {
            return Err(Error::malformed(self, "a symbolic link leads out of the bundle"));
        }
        if !file.metadata().map_err(missing)?.is_file() {
            return Err(Error::malformed(self, "this is not a regular file"));
        }
        Ok(file)
    }
}

impl fmt::Display for BundlePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_paths_are_accepted() {
        for good in ["core", "modules/ab/libc.so.6", "a..b/...", "sideband/cpu 3"] {
            assert_eq!(BundlePath::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a/..",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            "a\\b",
        ] {
            assert!(BundlePath::new(bad).unwrap_err().is_malformed(), "{bad:?}");
        }
        assert!(BundlePath::new(&"a".repeat(BundlePath::MAX_LEN + 1)).is_err());
    }

    #[test]
    fn links_leading_out_and_non_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("bundle");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(dir.path().join("outside"), "x").unwrap();
        std::fs::write(root.join("sub/inside"), "x").unwrap();
        std::os::unix::fs::symlink("../outside", root.join("out")).unwrap();
        std::os::unix::fs::symlink("sub/inside", root.join("in")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let resolve = |path: &str| BundlePath::new(path).unwrap().resolve(&root);
        assert!(resolve("in").is_ok());
        for bad in ["out", "loop", "sub", "none"] {
            assert!(resolve(bad).unwrap_err().is_malformed(), "{bad}");
        }
    }
}
