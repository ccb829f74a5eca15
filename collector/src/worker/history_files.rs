//! Files that only the history names: a process unmapped them, or has ended.

use crate::hardware::{RecordedHistory, RecordedMapping, candidates};
use backtrail_process::beneath::{FileId, FileStatus};
use backtrail_process::maps::Map;
use backtrail_pt::Pid;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Open files that may be those of a history, by process and path. They are identified after
/// privileges are dropped.
pub(super) type HistoryFiles = HashMap<(u32, String), Vec<File>>;

/// Opens the files of a history that `process` (id and mappings) does not map now, at most `limit`.
/// Files that `admits` refuses are left out.
pub(super) fn open(
    history: &RecordedHistory,
    process: Option<(u32, &[Map])>,
    limit: usize,
    admits: &dyn Fn(&FileStatus) -> bool,
) -> HistoryFiles {
    let mut files = HistoryFiles::new();
    let mut count = 0;
    for recorded in &history.processes {
        let maps = match process {
            Some((pid, maps)) if pid == recorded.pid => maps,
            _ => &[],
        };
        let mappings = recorded.mappings.iter();
        let by_name = mappings.filter(|mapping| mapping.path.starts_with('/'));
        for mapping in by_name.filter(|mapping| !maps.iter().any(|map| is_of(map, mapping))) {
            let key = (recorded.pid, mapping.path.clone());
            // There are at most two files for each mapping.
            if count + 2 > limit || files.contains_key(&key) {
                continue;
            }
            let found = candidates(Path::new("/proc"), Pid(recorded.pid), mapping, admits);
            count += found.len();
            files.insert(key, found);
        }
    }
    files
}

/// Returns whether a current mapping is of the file that the history names.
fn is_of(map: &Map, mapping: &RecordedMapping) -> bool {
    let is_same = |id: FileId| (id.device, id.inode) == (map.device, map.inode);
    map.path == mapping.path && mapping.id().is_none_or(is_same)
}
