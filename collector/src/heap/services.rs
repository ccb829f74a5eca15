//! The processes of the configured services.

use crate::config::HeapConfig;
use backtrail_process::{RawTid, service, status};
use backtrail_pt::Pid;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process is checked often: a new process may soon execute another program.
const NEW: Duration = Duration::from_secs(5);
/// How often an older process is checked again.
const OFTEN: Duration = Duration::from_secs(10);
/// The maximum number of known processes.
const MAX_KNOWN: usize = 1 << 16;

/// Finds processes of services by patterns.
#[derive(Debug, Default)]
pub(super) struct ServiceProcesses {
    known: HashMap<u32, Known>,
}

#[derive(Debug)]
struct Known {
    found: Instant,
    looked: Instant,
}

impl ServiceProcesses {
    /// Returns processes of the services. Processes that have run for a while are returned less
    /// often.
    pub(super) fn find(&mut self, config: &HeapConfig, now: Instant) -> Vec<Pid> {
        let pids: Vec<u32> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        self.known.retain(|pid, _| pids.contains(pid));
        let mut found = Vec::new();
        for pid in pids {
            if !self.is_due(pid, now) {
                continue;
            }
            if is_of(pid, config) {
                found.push(Pid(pid));
            }
        }
        found
    }

    fn is_due(&mut self, pid: u32, now: Instant) -> bool {
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&pid) {
            return false;
        }
        let mut is_new = false;
        let known = self.known.entry(pid).or_insert_with(|| {
            is_new = true;
            Known {
                found: now,
                looked: now,
            }
        });
        let is_due = is_new || now - known.found < NEW || now - known.looked >= OFTEN;
        if is_due {
            known.looked = now;
        }
        is_due
    }
}

/// Returns whether the service of a process matches a pattern. A program without a service has the
/// name of its file.
fn is_of(pid: u32, config: &HeapConfig) -> bool {
    let raw = pid as RawTid;
    let name = service::of_process(raw).or_else(|| {
        let program = status::program(raw)?;
        let program = program.strip_suffix(" (deleted)").unwrap_or(&program);
        Some(Path::new(program).file_name()?.to_str()?.to_owned())
    });
    name.is_some_and(|name| config.includes(&name))
}
