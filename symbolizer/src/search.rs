//! Where separate debug files may be, and how large a file is believed.

use std::path::{Path, PathBuf};

/// The places where debug files are looked for; nothing is opened outside them.
#[derive(Clone, Debug)]
pub struct DebugSearch {
    /// Debug roots (`/usr/lib/debug`): `.build-id/xx/yyyy.debug` and `.dwz/` are looked up below each, and what was split off
    /// the DWARF (`.dwo`, `.build-id/xx/yyyy.dwp`).
    pub roots: Vec<PathBuf>,
    /// Directories that may hold the file named by `.gnu_debuglink`, directly or in `.debug/`.
    pub beside: Vec<PathBuf>,
    /// Packages of DWARF that was split off (`program.dwp`) that may be the module's.
    pub packages: Vec<PathBuf>,
    /// The largest file opened, in bytes.
    pub max_file_size: u64,
}

impl DebugSearch {
    /// Debian's root of debug files, which most distributions share.
    pub const DEFAULT_ROOT: &str = "/usr/lib/debug";

    /// Looks nowhere: only the file itself is used.
    #[must_use]
    pub fn none() -> Self {
        Self {
            roots: Vec::new(),
            beside: Vec::new(),
            packages: Vec::new(),
            max_file_size: 8 << 30,
        }
    }

    /// Also looks beside the program at `path`, and below each root at the program's directory,
    /// as GDB does for `.gnu_debuglink`.
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
    /// [`Self::DEFAULT_ROOT`] and nothing else.
    fn default() -> Self {
        Self {
            roots: vec![PathBuf::from(Self::DEFAULT_ROOT)],
            ..Self::none()
        }
    }
}
