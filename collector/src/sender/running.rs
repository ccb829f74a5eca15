//! The programs of the services that run on this machine, for heartbeats.
//!
//! The daemon reads only the kernel's data: control groups, and the links to programs. It opens the
//! programs, and parses none.

use backtrail_process::service;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

/// The most processes that are read.
const MAX_PROCESSES: usize = 65_536;
/// The most different programs.
const MAX_PROGRAMS: usize = 256;
/// The ending that the kernel appends to the path of a removed program.
const DELETED: &str = " (deleted)";

/// A program that a service runs.
#[derive(Debug)]
pub(super) struct RunningProgram {
    /// The path.
    pub executable: String,
    /// The service.
    pub service: String,
    /// The file that runs, even if another file has its path now.
    pub file: File,
}

/// Returns the programs of all services, each once for a service. A file system that does not
/// answer blocks the caller.
pub(super) fn programs(proc: &Path) -> Vec<RunningProgram> {
    let mut found: BTreeMap<(String, String), File> = BTreeMap::new();
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let processes = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    for process in processes.take(MAX_PROCESSES).map(|entry| entry.path()) {
        if found.len() >= MAX_PROGRAMS {
            break;
        }
        let Some(service) = service::of_directory(&process) else {
            continue;
        };
        let exe = process.join("exe");
        let Some(path) = fs::read_link(&exe)
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok())
        else {
            continue;
        };
        // A program that was replaced has another build than the file that has its path.
        if let std::collections::btree_map::Entry::Vacant(entry) = found.entry((path, service))
            && let Ok(file) = File::open(&exe)
        {
            entry.insert(file);
        }
    }
    let programs = found.into_iter().map(|((path, service), file)| RunningProgram {
        executable: path.strip_suffix(DELETED).unwrap_or(&path).to_owned(),
        service,
        file,
    });
    programs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn programs_of_services_are_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for program in ["ledger", "other"] {
            fs::write(at(program), "x").unwrap();
        }
        for (pid, group, program) in [
            ("1", "0::/init.scope", "other"),
            ("20", "0::/system.slice/ledger.service", "ledger"),
            (
                "21",
                "12:cpu:/x\n0::/system.slice/ledger.service/worker",
                "ledger",
            ),
            ("22", "0::/user.slice/session-1.scope", "other"),
            ("x1", "0::/system.slice/other.service", "other"),
        ] {
            fs::create_dir(at(pid)).unwrap();
            fs::write(at(pid).join("cgroup"), format!("{group}\n")).unwrap();
            symlink(at(program), at(pid).join("exe")).unwrap();
        }
        let found = programs(folder.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].executable, at("ledger").display().to_string());
        assert_eq!(found[0].service, "ledger");
    }
}
