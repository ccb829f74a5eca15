//! The content of what the collector's sender sends: service, source files, and no secrets.

use crate::collector::{Collector, cannot, until};
use backtrail_bundle::{Bundle, CancelToken, unpack};
use backtrail_tests::backtrail::command;
use backtrail_tests::hub_server::{HubServer, TOKEN};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SECRET: &str = "tok-5e81f0c29a7d";

/// Starts a collector that sends to a hub.
fn sending(hub: &HubServer, settings: &str) -> Collector {
    let mut collector = Collector::new("");
    // The sender is another user, and must reach the spool and the sources.
    fs::set_permissions(collector.folder(), Permissions::from_mode(0o755)).unwrap();
    let token = collector.folder().join("token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    collector.configure(&format!(
        "[hub]\nurl = {:?}\ntoken_file = {token:?}\n{settings}\n",
        hub.address
    ));
    collector.start();
    collector
}

/// Builds a program that crashes, beside its source.
fn program(folder: &Path) -> (PathBuf, PathBuf) {
    fs::create_dir_all(folder).unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let (source, program) = (folder.join("ledger.c"), folder.join("ledger"));
    fs::write(
        &source,
        "/* An unmistakable comment. */\nint main(void)\n{\n    return *(volatile int *)0;\n}\n",
    )
    .unwrap();
    let built = Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    (source, program)
}

/// Returns the command that runs a service under the recorder.
fn service(collector: &Collector, program: &Path) -> Command {
    let mut command = command().unwrap();
    command
        .args(["record", "--daemon", "--config"])
        .arg(collector.config())
        .arg("--")
        .arg(program)
        .env("API_TOKEN", SECRET)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Waits for the only bundle that the hub gets, unpacks it, and returns it with its report.
fn received(hub: &HubServer, collector: &Collector) -> (Value, PathBuf) {
    until(&format!("a bundle comes: {}", collector.log()), || {
        hub.state().bundles.len() == 1
    });
    let state = hub.state();
    let (id, bytes) = state.bundles.iter().next().unwrap();
    let packed = collector.folder().join("received.btz");
    fs::write(&packed, bytes).unwrap();
    let unpacked = collector.folder().join("received");
    unpack(&packed, &unpacked, &CancelToken::default()).unwrap();
    (state.reports[id].clone(), unpacked)
}

#[test]
fn sources_are_sent_and_secrets_are_not() {
    if cannot() {
        return;
    }
    let hub = HubServer::start().unwrap();
    let sources = tempfile::Builder::new()
        .prefix("btsrc")
        .tempdir_in("/tmp")
        .unwrap();
    fs::set_permissions(sources.path(), Permissions::from_mode(0o755)).unwrap();
    let collector = sending(
        &hub,
        &format!(
            "sources = [{:?}]\nredact_environment = [\"*_TOKEN\"]",
            sources.path()
        ),
    );
    let (source, program) = program(&sources.path().join("work"));
    let status = service(&collector, &program).status().unwrap();
    assert_eq!(status.code(), Some(128 + 11));
    let (_, bundle) = received(&hub, &collector);
    let listed = Bundle::open(&bundle).unwrap().sources().unwrap();
    let [own] = listed.as_slice() else {
        panic!("{listed:?}\n{}", collector.log());
    };
    assert_eq!(own.path, source.to_str().unwrap());
    let text = fs::read_to_string(bundle.join(&own.file)).unwrap();
    assert!(text.starts_with("/* An unmistakable comment. */"), "{text}");
    let has = |folder: &Path| {
        let core = fs::read(folder.join("core")).unwrap();
        core.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
    };
    assert!(!has(&bundle));
    // The spool keeps everything, and nothing of the packing is left.
    let crash = &collector.list()[0];
    assert!(has(Path::new(crash["bundle"].as_str().unwrap())));
    until("the crash is sent", || collector.list()[0]["sent"] == true);
    let left = fs::read_dir(collector.spool().join(".hub")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        left.iter().all(|name| {
            !name.to_string_lossy().contains("btz") && !name.to_string_lossy().starts_with(".tmp")
        }),
        "{left:?}"
    );
}

/// A control group with the name of a systemd service; `None` if there can be none here.
struct Unit(PathBuf);

impl Unit {
    fn new() -> Option<Self> {
        let name = format!("bt{}-ledger@blue.service", std::process::id());
        // One hierarchy (version 2), or one of several (version 1).
        ["", "systemd", "unified", "pids"].iter().find_map(|hierarchy| {
            let folder = Path::new("/sys/fs/cgroup").join(hierarchy).join(&name);
            fs::create_dir(&folder).ok()?;
            let unit = Self(folder);
            unit.0.join("cgroup.procs").exists().then_some(unit)
        })
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn service_of_a_crash_is_its_systemd_unit() {
    if cannot() {
        return;
    }
    let Some(unit) = Unit::new() else {
        eprintln!("left out: no control group can be created here");
        return;
    };
    let hub = HubServer::start().unwrap();
    let collector = sending(&hub, "");
    let (_, program) = program(&collector.folder().join("work"));
    // One crash with the recorder, and one that the kernel holds.
    let enter = |command: &Command| {
        let mut entered = Command::new("sh");
        entered
            .arg("-c")
            .arg(format!(
                "echo $$ > {}/cgroup.procs && exec \"$@\"",
                unit.0.display()
            ))
            .arg("sh")
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        entered
    };
    let _ = enter(&service(&collector, &program)).status().unwrap();
    let held = collector.crash(&mut enter(&Command::new(&program)));
    until(&format!("two reports: {}", collector.log()), || {
        hub.state().reports.len() == 2
    });
    let expected = format!("bt{}-ledger", std::process::id());
    let state = hub.state();
    for report in state.reports.values() {
        assert_eq!(report["service"], *expected, "{held}");
    }
}
