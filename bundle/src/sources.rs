//! Source files in a bundle: an optional part, which readers may ignore.
//!
//! The files are in `sources/` at the paths that the debug information names. `sources.json` lists
//! them, and says which of them the debug information confirms by its MD5.

use crate::schema::parse_json;
use crate::{Bundle, BundlePath, Error, Result};
use serde::{Deserialize, Serialize};

/// The list of source files.
pub const INDEX: &str = "sources.json";
/// The directory of the files.
const DIRECTORY: &str = "sources";
/// The version of the list. Readers ignore a list of a newer version, because it is optional.
const VERSION: u32 = 1;
/// The most source files, and the longest list in bytes.
pub const MAX_FILES: usize = 4096;
const MAX_INDEX: usize = 4 << 20;
/// The longest path in a packed bundle in bytes.
const MAX_PATH: usize = 240;

/// A source file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundledSource {
    /// The path, as the debug information names it.
    pub path: String,
    /// The file in the bundle.
    pub file: String,
    /// The MD5 of its text, in lower-case hexadecimal digits.
    pub md5: String,
    /// Whether the debug information has this MD5, so that the text is that of the build. `false`:
    /// the debug information has none.
    pub verified: bool,
}

/// The list as it is stored.
#[derive(Serialize, Deserialize)]
struct Index {
    version: u32,
    #[serde(default)]
    files: Vec<BundledSource>,
}

/// Returns the place in a bundle of a source file with this path. `None`: a bundle cannot have it.
#[must_use]
pub fn place_of(path: &str) -> Option<BundlePath> {
    let parts = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect::<Vec<_>>();
    let is_plain = !parts.is_empty() && !parts.contains(&"..");
    let place = format!("{DIRECTORY}/{}", parts.join("/"));
    let fits = place.len() <= MAX_PATH && !place.contains(|letter: char| letter.is_control());
    BundlePath::new(&place).ok().filter(|_| is_plain && fits)
}

/// Returns whether a file of a bundle is a source file.
#[must_use]
pub fn is_place(file: &str) -> bool {
    file.strip_prefix(DIRECTORY)
        .is_some_and(|rest| rest.starts_with('/'))
        && BundlePath::new(file).is_ok()
}

/// Returns the list as it is stored at [`INDEX`].
///
/// # Errors
/// Fails if there are too many files.
pub fn encode(files: &[BundledSource]) -> Result<Vec<u8>> {
    let index = Index {
        version: VERSION,
        files: files.to_vec(),
    };
    let bytes = serde_json::to_vec_pretty(&index).map_err(|error| Error::malformed(INDEX, error))?;
    match files.len() <= MAX_FILES && bytes.len() <= MAX_INDEX {
        true => Ok(bytes),
        false => Err(Error::Usage("there are too many source files".to_owned())),
    }
}

impl Bundle {
    /// Returns the list of source files. A bundle without the list, or with a list of a newer
    /// version, has none.
    ///
    /// # Errors
    /// Fails if the list is malformed.
    pub fn sources(&self) -> Result<Vec<BundledSource>> {
        let path = BundlePath::new(INDEX)?;
        if self.root().join(path.as_str()).symlink_metadata().is_err() {
            return Ok(Vec::new());
        }
        let bytes = self.bytes(&path)?;
        if bytes.len() > MAX_INDEX {
            return Err(Error::malformed(INDEX, "the list is too long"));
        }
        let refused = |error: serde_json::Error| Error::malformed(INDEX, error);
        let value = parse_json(&bytes, INDEX)?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        match version {
            None | Some(0) => return Err(Error::malformed(INDEX, "it has no version")),
            Some(version) if version > u64::from(VERSION) => return Ok(Vec::new()),
            Some(_) => {}
        }
        let index: Index = serde_json::from_value(value).map_err(refused)?;
        let is_valid = index.files.iter().all(|source| is_place(&source.file));
        match index.files.len() <= MAX_FILES && is_valid {
            true => Ok(index.files),
            false => Err(Error::malformed(
                INDEX,
                "a file is not in sources/, or there are too many",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_in_the_directory() {
        let place = |path: &str| place_of(path).map(|place| place.as_str().to_owned());
        assert_eq!(place("/usr/src/a.c").as_deref(), Some("sources/usr/src/a.c"));
        assert_eq!(place("./src//a.c").as_deref(), Some("sources/src/a.c"));
        for path in ["", "/", "../a.c", "/src/../a.c", "/a\n.c", &"x".repeat(250)] {
            assert_eq!(place(path), None, "{path:?}");
        }
    }
}
