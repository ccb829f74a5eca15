//! Where debug files are searched, and their largest accepted size.

use std::path::{Path, PathBuf};

/// The directories to search for debug files. No file outside of them is opened.
#[derive(Clone, Debug)]
pub struct DebugSearch {
    /// Debug roots (`/usr/lib/debug`). In each one, `.build-id/xx/yyyy.debug`, `.dwz/` and split
    /// DWARF (`.dwo`, `.build-id/xx/yyyy.dwp`) are searched.
    pub roots: Vec<PathBuf>,
    /// Directories that may contain the file named by `.gnu_debuglink`, directly or in `.debug/`.
    pub beside: Vec<PathBuf>,
    /// Split DWARF packages (`program.dwp`) that may belong to the module.
    pub packages: Vec<PathBuf>,
    /// The largest accepted file in bytes.
    pub max_file_size: u64,
}

impl DebugSearch {
    /// The debug root of Debian and most other distributions.
    pub const DEFAULT_ROOT: &str = "/usr/lib/debug";

    /// Builds a search without directories: only the file itself is used.
    #[must_use]
    pub fn none() -> Self {
        Self {
            roots: Vec::new(),
            beside: Vec::new(),
            packages: Vec::new(),
            max_file_size: 8 << 30,
        }
    }

    /// Adds the directory of the program at `path`, and that path below each root, as GDB does for
    /// `.gnu_debuglink`.
    #[must_use]
    pub fn beside_file(mut self, path: &Path) -> Self {
        let Some(directory) = path.parent().and_then(|parent| parent.canonicalize().ok()) else {
            return self;
        };
        if let Ok(below_root) = directory.strip_prefix("/") {
            let mirrored: Vec<_> = self.roots.iter().map(|root| root.join(below_root)).collect();
            self.beside.extend(mirrored);
        }
        if let Some(name) = path.file_name() {
            let mut package = name.to_owned();
            package.push(".dwp");
            self.packages.push(directory.join(package));
        }
        self.beside.push(directory);
        self
    }
}

impl Default for DebugSearch {
    /// Searches [`Self::DEFAULT_ROOT`] only.
    fn default() -> Self {
        Self {
            roots: vec![PathBuf::from(Self::DEFAULT_ROOT)],
            ..Self::none()
        }
    }
}
