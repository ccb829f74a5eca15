//! Where debug files are searched, and their largest accepted size.

use backtrail_pt::BuildId;
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
    /// A debug root whose files may come from another machine. A link that leads out of it is not
    /// followed.
    pub confined: Option<PathBuf>,
    /// The module's own file, if it is one of this machine. A supplementary file is then also
    /// opened at the path that the module or its debug file states.
    pub module: Option<PathBuf>,
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
            confined: None,
            module: None,
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
        self.module = path.canonicalize().ok();
        self.beside.push(directory);
        self
    }

    /// Adds the directory of a file that another machine had at `path`, below each root, and below
    /// `usr/lib/debug` in each root.
    #[must_use]
    pub fn recorded_at(mut self, path: &str) -> Self {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some((name, directories)) = parts.split_last() else {
            return self;
        };
        if parts.iter().any(|part| matches!(*part, "." | "..")) {
            return self;
        }
        let below: PathBuf = directories.iter().collect();
        for root in &self.roots {
            let directory = root.join(&below);
            self.packages.push(directory.join(format!("{name}.dwp")));
            self.beside.push(directory);
            self.beside.push(root.join(DEBUG_BELOW_ROOT).join(&below));
        }
        self
    }

    /// Returns the paths of a file that belongs to a build id: `DIR/.build-id/xx/yyyySUFFIX`, in
    /// each root and in its `usr/lib/debug`. A file with the suffix `.debug` has the debug
    /// information, and one without a suffix is the binary.
    #[must_use]
    pub fn by_build_id(&self, id: &BuildId, suffix: &str) -> Vec<PathBuf> {
        let digits = id.to_string();
        let Some((first, rest)) = digits.split_at_checked(2) else {
            return Vec::new();
        };
        let below = Path::new(".build-id").join(first).join(format!("{rest}{suffix}"));
        let directories = self
            .roots
            .iter()
            .flat_map(|root| [root.clone(), root.join(DEBUG_BELOW_ROOT)]);
        directories.map(|directory| directory.join(&below)).collect()
    }
}

/// The debug root in the root directory of a system.
const DEBUG_BELOW_ROOT: &str = "usr/lib/debug";

impl Default for DebugSearch {
    /// Searches [`Self::DEFAULT_ROOT`] only.
    fn default() -> Self {
        Self {
            roots: vec![PathBuf::from(Self::DEFAULT_ROOT)],
            ..Self::none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_searched_in_each_root_and_its_debug_root() {
        let search = DebugSearch {
            roots: vec![PathBuf::from("/symfs")],
            ..DebugSearch::none()
        };
        let id = BuildId::new(&[0xab, 0xcd, 0xef]).unwrap();
        let expected = |suffix: &str| {
            let below = format!(".build-id/ab/cdef{suffix}");
            ["/symfs/", "/symfs/usr/lib/debug/"].map(|root| PathBuf::from(format!("{root}{below}")))
        };
        assert_eq!(search.by_build_id(&id, ""), expected(""));
        assert_eq!(search.by_build_id(&id, ".debug"), expected(".debug"));
    }

    #[test]
    fn recorded_paths_stay_below_the_roots() {
        let search = DebugSearch {
            roots: vec![PathBuf::from("/symfs")],
            ..DebugSearch::none()
        };
        let beside = |path: &str| search.clone().recorded_at(path).beside;
        let expected = ["/symfs/opt/app", "/symfs/usr/lib/debug/opt/app"].map(PathBuf::from);
        assert_eq!(beside("/opt/app/tool (deleted)"), expected);
        for bad in ["", "/", "/opt/../../tool"] {
            assert_eq!(beside(bad), Vec::<PathBuf>::new(), "{bad}");
        }
    }
}
