//! Heartbeats: the builds of services that run on this host.

use super::log;
use backtrail_bundle::module_file;
use backtrail_collector::config::HubConfig;
use backtrail_collector::sender::{self, SenderTask};
use backtrail_report::client::HubClient;
use backtrail_report::{Heartbeat, RunningBuild, VERSION};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file of the first times of builds.
const BUILDS: &str = "builds";
/// The most builds whose first times are kept.
const MAX_BUILDS: usize = 1024;
/// The longest file in bytes.
const MAX_FILE: u64 = 4 << 20;
/// The digits of a build id that name a build, as in reports.
const BUILD_DIGITS: usize = 12;

/// Collects running builds, and sends them from a thread of its own.
pub struct Heartbeats {
    hub: HubConfig,
    found: Mutex<BTreeSet<(String, String)>>,
    thread: Sender<BTreeSet<(String, String)>>,
}

impl Heartbeats {
    /// Starts the thread.
    pub fn start(client: HubClient, task: &SenderTask) -> Self {
        let (thread, builds) = channel();
        let file = task.spool.join(sender::DIRECTORY).join(BUILDS);
        std::thread::spawn(move || send_all(&client, &builds, &file));
        Self {
            hub: task.hub.clone(),
            found: Mutex::default(),
            thread,
        }
    }

    /// Adds a running program. Programs without a build id need a configured build.
    pub fn add(&self, executable: &str, service: String, file: &File) {
        let build_id = || {
            let id = module_file::build_id(file, executable).ok().flatten()?;
            Some(id.to_string().chars().take(BUILD_DIGITS).collect())
        };
        let service = self.hub.service.clone().unwrap_or(service);
        if let Some(build) = self.hub.build.clone().or_else(build_id) {
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = found.insert((service, build));
        }
    }

    /// Sends the programs that were added since the last heartbeat.
    pub fn send(&self) {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = self.thread.send(found);
    }
}

/// Sends heartbeats until no more come. A heartbeat that fails is not repeated, because the next
/// one says the same.
fn send_all(client: &HubClient, builds: &Receiver<BTreeSet<(String, String)>>, file: &Path) {
    let mut known = FirstTimes::read(file);
    let mut is_failing = false;
    while let Ok(mut found) = builds.recv() {
        // After a long request, only the newest list counts.
        while let Ok(newer) = builds.try_recv() {
            found = newer;
        }
        let heartbeat = Heartbeat {
            version: VERSION,
            host: host_name(),
            collector: env!("CARGO_PKG_VERSION").to_owned(),
            running: known.update(found, now()),
        };
        let sent = client.heartbeat(&heartbeat);
        if let (Err(error), false) = (&sent, is_failing) {
            log(&format!("no heartbeat was sent: {error}"));
        }
        is_failing = sent.is_err();
    }
}

/// The times at which this host first ran builds.
struct FirstTimes {
    file: PathBuf,
    builds: Vec<RunningBuild>,
}

impl FirstTimes {
    fn read(file: &Path) -> Self {
        let mut bytes = Vec::new();
        let read = File::open(file).and_then(|opened| opened.take(MAX_FILE).read_to_end(&mut bytes));
        let builds = read.ok().and_then(|_| serde_json::from_slice(&bytes).ok());
        Self {
            file: file.to_owned(),
            builds: builds.unwrap_or_default(),
        }
    }

    /// Returns the running builds with their first times. New ones began to run at `now`.
    fn update(&mut self, running: BTreeSet<(String, String)>, now: u64) -> Vec<RunningBuild> {
        let mut result = Vec::new();
        let before = self.builds.len();
        for (service, build) in running.into_iter().take(MAX_BUILDS) {
            let mut known = self.builds.iter();
            let known = known.find(|known| known.service == service && known.build == build);
            let entry = known.cloned().unwrap_or(RunningBuild {
                service,
                build,
                since: now,
            });
            if entry.since == now && !self.builds.contains(&entry) {
                self.builds.push(entry.clone());
            }
            result.push(entry);
        }
        if self.builds.len() != before {
            // Builds that run stay, and then the newest ones.
            self.builds
                .sort_by_key(|build| (result.contains(build), build.since));
            let excess = self.builds.len().saturating_sub(MAX_BUILDS);
            self.builds.drain(..excess);
            if let Err(error) = self.write() {
                log(&format!("cannot write {}: {error}", self.file.display()));
            }
        }
        result
    }

    fn write(&self) -> std::io::Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&serde_json::to_vec(&self.builds)?)?;
        file.persist(&self.file).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Returns the name of this host.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the time in microseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(builds: &[&str]) -> BTreeSet<(String, String)> {
        builds
            .iter()
            .map(|build| ("ledger".to_owned(), (*build).to_owned()))
            .collect()
    }

    #[test]
    fn first_times_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(BUILDS);
        let mut times = FirstTimes::read(&file);
        assert_eq!(times.update(running(&["a"]), 5)[0].since, 5);
        assert_eq!(times.update(running(&["a", "b"]), 9).len(), 2);
        let mut times = FirstTimes::read(&file);
        let found = times.update(running(&["a", "b"]), 20);
        assert_eq!((found[0].since, found[1].since), (5, 9));
        assert!(times.update(running(&[]), 30).is_empty());
        assert_eq!(times.update(running(&["a"]), 40)[0].since, 5);
    }

    #[test]
    fn kept_builds_are_bounded_and_running_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut times = FirstTimes::read(&folder.path().join(BUILDS));
        for number in 0..(MAX_BUILDS as u64 + 50) {
            let new = number.to_string();
            times.update(running(&["a", &new]), number);
        }
        assert_eq!(times.builds.len(), MAX_BUILDS);
        assert_eq!(times.update(running(&["a"]), 9_999_999)[0].since, 0);
    }
}
