//! Reads all processes from procfs: at the start of the history, and after records were lost.

use super::records::FileTable;
use super::world::{ExecutableMapping, MappedFile, ProcessState, World};
use backtrail_process::beneath::FileId;
use backtrail_process::{RawTid, maps, status};
use backtrail_pt::{Avma, FileOffset, Nanos, Pid, Tid};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Reads all processes. `now` returns the time on perf's clock, if it is known.
pub(super) fn take(procfs: &Path, files: &mut FileTable, now: impl Fn() -> Option<Nanos>) -> World {
    let entries = fs::read_dir(procfs).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawTid>().ok());
    let processes = pids
        .filter_map(|pid| Some((Pid(pid as u32), process(pid, files, now().unwrap_or_default())?)))
        .collect();
    World { processes }
}

/// Reads one process. `None`: it has ended, or is a kernel thread.
pub(super) fn process(pid: RawTid, files: &mut FileTable, as_of: Nanos) -> Option<ProcessState> {
    let mappings: Vec<ExecutableMapping> = maps::maps(pid)
        .into_iter()
        .filter(|map| map.executable && map.path != "[vsyscall]")
        .map(|map| ExecutableMapping {
            start: Avma(map.start),
            size: map.size(),
            offset: FileOffset(map.offset),
            file: files.shared(MappedFile {
                path: name(&map.path),
                build_id: None,
                id: (map.inode != 0).then_some(FileId {
                    device: map.device,
                    inode: map.inode,
                }),
            }),
        })
        .collect();
    let threads = status::threads(pid)
        .into_iter()
        .filter_map(|tid| {
            let name = status::thread_name(pid, tid)?;
            Some((Tid(tid as u32), Arc::from(name)))
        })
        .collect();
    let [parent, ..] = status::parent_and_owner(pid);
    let state = ProcessState {
        parent: (parent != 0).then_some(Pid(parent)),
        threads,
        mappings: Arc::new(mappings),
        as_of,
        ended: None,
    };
    (!state.threads.is_empty()).then_some(state)
}

/// Returns the name that perf's record of the same mapping has.
fn name(path: &str) -> String {
    match path.strip_suffix(" (deleted)").unwrap_or(path) {
        "" => "//anon".to_owned(),
        path => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_in_the_snapshot() {
        let mut files = FileTable::default();
        let world = take(Path::new("/proc"), &mut files, || Some(Nanos(7)));
        let own = &world.processes[&Pid(std::process::id())];
        let program = std::env::current_exe().unwrap();
        assert!(
            own.mappings
                .iter()
                .any(|mapped| Path::new(&mapped.file.path) == program)
        );
        assert!(own.threads.contains_key(&Tid(std::process::id())));
        assert_eq!(
            (own.as_of, own.parent),
            (Nanos(7), Some(Pid(std::os::unix::process::parent_id())))
        );
    }
}
