//! Many crashes from one recording, and what a hub has of them.

use super::{User, crash};
use backtrail_tests::hub_process::{HubProcess, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bundles of different crashes at the same place.
pub struct Fleet {
    user: User,
    recorded: PathBuf,
    made: usize,
}

impl Fleet {
    /// Records a crash.
    pub fn new() -> Self {
        let user = User::new();
        let recorded = crash(user.home());
        Self {
            user,
            recorded,
            made: 0,
        }
    }

    /// Returns the user who pushes.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Returns the bundle of one more crash. Its identifier is that of its descriptions.
    pub fn bundle(&mut self) -> PathBuf {
        self.made += 1;
        let bundle = self.user.home().join(format!("crash-{}.bundle", self.made));
        copy_linked(&self.recorded, &bundle);
        let meta = bundle.join("meta.json");
        let mut text = fs::read(&meta).unwrap();
        fs::remove_file(&meta).unwrap();
        text.extend(std::iter::repeat_n(b' ', self.made));
        fs::write(&meta, text).unwrap();
        bundle
    }
}

/// Copies a directory. Its files are other names of the same files.
fn copy_linked(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_linked(&entry.path(), &target);
        } else {
            fs::hard_link(entry.path(), target).unwrap();
        }
    }
}

/// Pushes a bundle to a hub at an address, and returns the identifier of its crash. `None`: the
/// push failed.
pub fn push(user: &User, hub: &str, token: &str, bundle: &Path) -> Option<String> {
    let mut command = push_command(user, hub, token, bundle);
    let output = command.output().unwrap();
    let pushed: Value = serde_json::from_slice(&output.stdout).ok()?;
    let id = pushed["id"].as_str()?.to_owned();
    output.status.success().then_some(id)
}

/// Returns the command that pushes a bundle.
pub fn push_command(user: &User, hub: &str, token: &str, bundle: &Path) -> std::process::Command {
    let arguments = ["push".as_ref(), bundle.as_os_str(), "--json".as_ref()];
    let mut command = user.command(&arguments);
    command
        .env("BACKTRAIL_HUB", hub)
        .env("BACKTRAIL_HUB_TOKEN", token);
    command
}

/// Returns a JSON answer of a hub.
#[track_caller]
pub fn get(hub: &HubProcess, token: &str, path: &str) -> Value {
    let answer = hub.request("GET", path, Some(token), b"").unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Returns all crashes of a hub, by identifier.
#[track_caller]
pub fn crashes(hub: &HubProcess, token: &str) -> BTreeMap<String, Value> {
    let found = get(hub, token, "/api/v1/crashes?limit=200");
    let listed = found.as_array().unwrap().iter();
    listed
        .map(|crash| (crash["id"].as_str().unwrap().to_owned(), crash.clone()))
        .collect()
}

/// Waits until no bundle of a hub is being checked.
#[track_caller]
pub fn wait_for_checks(hub: &HubProcess, token: &str) {
    until("all bundles are checked", || {
        let crashes = crashes(hub, token);
        let is_checked = |crash: &Value| crash["bundle"] != "checking";
        crashes.values().all(is_checked).then_some(())
    });
}

/// Returns the index of a hub: its groups, and its crashes with their reports and analyses.
#[track_caller]
pub fn index(hub: &HubProcess, token: &str) -> Vec<String> {
    let groups = get(hub, token, "/api/v1/groups?limit=200&sort=first-seen");
    let mut lines = Vec::new();
    for group in groups["groups"].as_array().unwrap() {
        lines.push(format!("group {}", without_links(group.clone())));
    }
    for id in crashes(hub, token).keys() {
        let mut crash = without_links(get(hub, token, &format!("/api/v1/crashes/{id}")));
        // No hub has the bundle in either state.
        if crash["bundle"] == "wanted" {
            crash["bundle"] = "none".into();
        }
        lines.push(format!("crash {crash}"));
    }
    lines.sort_unstable();
    lines
}

/// Removes addresses of a hub, whose port another start changes.
fn without_links(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("link");
        for field in fields.values_mut() {
            *field = without_links(field.take());
        }
    }
    value
}

/// Checks that a hub counts exactly these crashes, and has each of their bundles as a whole.
#[track_caller]
pub fn check_whole(hub: &HubProcess, token: &str, ids: &[String]) {
    wait_for_checks(hub, token);
    let crashes = crashes(hub, token);
    for id in ids {
        let crash = crashes.get(id).unwrap_or_else(|| panic!("crash {id} is lost"));
        assert_eq!(crash["bundle"], "stored", "{crash}");
    }
    let groups = get(hub, token, "/api/v1/groups?limit=200");
    let counted: i64 = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["reports"].as_i64().unwrap())
        .sum();
    assert_eq!(counted, crashes.len() as i64, "{groups}");
    // The download of one has all modules.
    if let Some(id) = ids.last() {
        let answer = hub
            .request("GET", &format!("/crash/{id}.btz"), Some(token), b"")
            .unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = hub.request("GET", &format!("/c/{id}"), Some(token), b"").unwrap();
        assert!(page.status == 200 && page.text().contains("settle"));
    }
}
