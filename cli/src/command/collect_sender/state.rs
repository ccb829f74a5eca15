//! The state of each crash on disk, so that a restart repeats nothing.

use backtrail_report::ReportId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The longest state in bytes.
const MAX_STATE: u64 = 1 << 20;
/// The endings of the files of a crash: its state, and its packed bundle.
const STATE: &str = ".json";
const PACKED: &str = ".btz";

/// The state of one crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashState {
    /// The identifier, stored before the report is sent for the first time.
    pub id: Option<ReportId>,
    /// The next step.
    pub stage: Stage,
    /// The number of failed tries.
    pub attempts: u32,
    /// Whether source files were searched, which may end the process that does so.
    #[serde(default)]
    pub has_searched_sources: bool,
}

/// The next step of a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The report is to be sent.
    #[default]
    Report,
    /// The hub asked for the bundle.
    Bundle {
        /// The build ids of the modules that the hub needs.
        modules: Vec<String>,
        /// The location of an upload that did not finish.
        location: Option<String>,
    },
    /// Everything was sent.
    Sent,
    /// The crash cannot be sent.
    Refused,
}

/// The states of all crashes, in the sender's directory.
#[derive(Debug)]
pub struct StateStore {
    directory: PathBuf,
    states: BTreeMap<String, CrashState>,
}

impl StateStore {
    /// Reads the states in a directory. Damaged ones count as new.
    pub fn open(directory: &Path) -> Self {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let states = names.filter_map(|name| {
            let crash = name.strip_suffix(STATE)?.to_owned();
            let state = read(&directory.join(&name)).unwrap_or_default();
            Some((crash, state))
        });
        Self {
            directory: directory.to_owned(),
            states: states.collect(),
        }
    }

    /// Returns the state of a crash.
    pub fn get(&self, crash: &str) -> CrashState {
        self.states.get(crash).cloned().unwrap_or_default()
    }

    /// Stores the state of a crash.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn put(&mut self, crash: &str, state: CrashState) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(&serde_json::to_vec(&state)?)?;
        file.as_file().sync_data()?;
        file.persist(self.directory.join(format!("{crash}{STATE}")))
            .map_err(|error| error.error)?;
        self.states.insert(crash.to_owned(), state);
        Ok(())
    }

    /// Returns the path of a crash's packed bundle.
    pub fn packed(&self, crash: &str) -> PathBuf {
        self.directory.join(format!("{crash}{PACKED}"))
    }

    /// Forgets the crashes that are not in `unsent`. Returns those that were
    /// neither sent nor refused.
    pub fn retain(&mut self, unsent: &[String]) -> Vec<String> {
        let known: BTreeSet<&str> = unsent.iter().map(String::as_str).collect();
        let gone: Vec<String> = self
            .states
            .keys()
            .filter(|crash| !known.contains(crash.as_str()))
            .cloned()
            .collect();
        let mut lost = Vec::new();
        for crash in gone {
            let state = self.states.remove(&crash).unwrap_or_default();
            for path in [
                self.packed(&crash),
                self.directory.join(format!("{crash}{STATE}")),
            ] {
                let _ = fs::remove_file(path);
            }
            if !matches!(state.stage, Stage::Sent | Stage::Refused) {
                lost.push(crash);
            }
        }
        lost
    }
}

fn read(path: &Path) -> Option<CrashState> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(MAX_STATE)
        .read_to_end(&mut bytes)
        .ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_a_restart_and_end_with_their_crash() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = StateStore::open(folder.path());
        assert_eq!(store.get("000001-x-1"), CrashState::default());
        let state = CrashState {
            id: Some(ReportId::of_digest(&[1; 32])),
            stage: Stage::Bundle {
                modules: vec!["ab12".to_owned()],
                location: Some("https://hub.example.com/u".to_owned()),
            },
            attempts: 3,
            has_searched_sources: true,
        };
        store.put("000001-x-1", state.clone()).unwrap();
        let sent = CrashState {
            stage: Stage::Sent,
            ..CrashState::default()
        };
        store.put("000002-x-2", sent).unwrap();
        fs::write(store.packed("000001-x-1"), "x").unwrap();
        fs::write(folder.path().join("000003-x-3.json"), "{").unwrap();
        let mut store = StateStore::open(folder.path());
        assert_eq!(store.get("000001-x-1"), state);
        assert_eq!(store.retain(&["000003-x-3".to_owned()]), ["000001-x-1"]);
        let left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["000003-x-3.json"]);
    }
}
