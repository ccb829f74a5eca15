//! Services under the recorder, by the drop-ins of `backtrail install --service`, of root and
//! another user.

use crate::systemd::{crash_of, crashes, is_whole, journal, property, said, systemctl, unit, until};
use crate::{Outcome, Test};
use std::fs;

pub const TESTS: &[Test] = &[
    Test {
        name: "systemd/recorded",
        run: || recorded("ours", ""),
    },
    Test {
        name: "systemd/recorded-as-user",
        run: || recorded("theirs", "User=bank\n"),
    },
    Test {
        name: "systemd/recorded-confined",
        run: || recorded("confined", CONFINED),
    },
];

/// The settings of confined services.
const CONFINED: &str = "\
User=bank
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
SystemCallFilter=@system-service
RestrictAddressFamilies=AF_INET AF_INET6
";

/// The service crashes, and its history is in the spool once.
fn recorded(name: &str, settings: &str) -> Outcome {
    let go = format!("/run/{name}.go");
    let service = format!("{name}.service");
    unit(
        &service,
        &format!("[Service]\nExecStart=/usr/bin/teller {go}\n{settings}"),
    )?;
    said("backtrail", &["install", "--service", name])?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", &service])?;
    let recorder: u32 = property(&service, "MainPID")?
        .parse()
        .map_err(|error| format!("no process: {error}"))?;
    let teller = until("the recorder has started the program", || Ok(program(recorder)))?;
    fs::write(&go, "").map_err(|error| format!("cannot write {go}: {error}"))?;
    let crash = crash_of(teller).map_err(|why| format!("{why}: {}", journal(&["--unit", &service])))?;
    is_whole(&crash)?;
    if crash["history_bytes"].as_u64().unwrap_or(0) == 0 {
        return Err(format!("it has no history: {crash}"));
    }
    let bundle = crash["bundle"].as_str().unwrap_or_default();
    let back = said(
        "backtrail",
        &[
            "debug",
            bundle,
            "--batch",
            "-e",
            "reverse-step",
            "-e",
            "backtrace 3",
        ],
    )?;
    if !back.contains("pay") {
        return Err(format!("the way back is: {back}"));
    }
    // The program's own exit status, in the form of shells.
    until("the service has ended", || {
        Ok((property(&service, "ExecMainStatus")? == "139").then_some(()))
    })?;
    let said = journal(&["--unit", &service, "--output=cat"]);
    if !said.contains("SIGSEGV ended process") {
        return Err(format!("the recorder says: {said}"));
    }
    match crashes()?.iter().filter(|crash| crash["pid"] == teller).count() {
        1 => Ok(()),
        several => Err(format!("{several} bundles of one crash")),
    }
}

/// Returns the child of a process that has become `teller`.
fn program(recorder: u32) -> Option<u32> {
    let parent = format!("PPid:\t{recorder}\n");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let is_it = status.starts_with("Name:\tteller\n") && status.contains(&parent);
        is_it
            .then(|| entry.file_name().to_string_lossy().parse().ok())
            .flatten()
    })
}
