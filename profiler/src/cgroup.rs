//! Control groups by their names.

use crate::{Error, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Opens the directory of a control group. A path is also tried below the root of each hierarchy
/// that perf can use: version 2, or the `perf_event` controller of version 1.
pub(crate) fn open(path: &Path) -> Result<File> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let below = path.strip_prefix("/").unwrap_or(path);
    let candidates = roots(&mounts).into_iter().map(|root| root.join(below));
    let candidates: Vec<_> = std::iter::once(path.to_owned()).chain(candidates).collect();
    let is_group = |path: &&PathBuf| path.join("cgroup.procs").is_file();
    let found = candidates.iter().find(is_group).ok_or_else(|| {
        Error::NoTarget(format!(
            "there is no control group {}; `cat /proc/PID/cgroup` shows that of a process",
            path.display()
        ))
    })?;
    File::open(found).map_err(|error| Error::Call {
        call: "opening the control group",
        error,
    })
}

/// Returns where the hierarchies are mounted that perf can use.
fn roots(mounts: &str) -> Vec<PathBuf> {
    let root = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, path, kind, options, ..] = *words else {
            return None;
        };
        let has_controller = options.split(',').any(|option| option == "perf_event");
        (kind == "cgroup2" || kind == "cgroup" && has_controller).then(|| PathBuf::from(path))
    };
    mounts.lines().filter_map(root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_perf_are_found() {
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup /sys/fs/cgroup/perf_event cgroup rw,perf_event 0 0\nshort\n";
        assert_eq!(
            roots(mounts),
            ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/perf_event"].map(PathBuf::from)
        );
    }

    #[test]
    fn missing_group_is_a_sentence() {
        let error = open(Path::new("/nonexistent/group")).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no control group /nonexistent/group"),
            "{error}"
        );
    }
}
