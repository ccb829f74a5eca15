//! Secrets: values of environment variables leave neither the host nor the upload, if rules say so.

use super::{User, outcome};
use backtrail_bundle::{Bundle, CancelToken, unpack};
use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::hub_process::{HubProcess, token, until};
use backtrail_tests::hub_server::HubServer;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SECRET: &str = "tok-5e81f0c29a7d";

/// Records the crash of a program that has a secret in its environment, in a copy, and in a changed
/// variable.
fn crash(folder: &Path) -> PathBuf {
    let source = folder.join("ledger.c");
    fs::write(
        &source,
        "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         char *kept, *header;\n\
         int main(void) { kept = strdup(getenv(\"API_TOKEN\")); header = malloc(100);\n\
         snprintf(header, 100, \"Authorization: Bearer %s;\", kept);\n\
         setenv(\"API_TOKEN\", \"later\", 1); return *(volatile int *)0; }\n",
    )
    .unwrap();
    let program = folder.join("ledger");
    let built = Command::new("cc")
        .args(["-g", "-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    let bundle = folder.join("ledger.bundle");
    let mut record = command().unwrap();
    record
        .args(["record", "--exit-zero", "-o"])
        .arg(&bundle)
        .arg("--")
        .arg(&program)
        .arg(format!("--key={SECRET}"))
        .env("API_TOKEN", SECRET)
        .env("CITY", "Amsterdam-Noord");
    let _ = outcome(&mut record).exited(0);
    bundle
}

/// Returns the files below a directory that have a text.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else {
            let bytes = fs::read(&path).unwrap();
            if bytes.windows(text.len()).any(|part| part == text.as_bytes()) {
                found.push(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found
}

/// Unpacks a bundle, and checks that it lacks the secret and nothing else.
fn check(packed: &Path, original: &Path) {
    let unpacked = packed.with_extension("unpacked");
    unpack(packed, &unpacked, &CancelToken::default()).unwrap();
    assert!(files_with(&unpacked, SECRET).is_empty());
    let core = fs::read(unpacked.join("core")).unwrap();
    let has = |text: &str| core.windows(text.len()).any(|part| part == text.as_bytes());
    let removed = "x".repeat(SECRET.len());
    for wanted in [
        &format!("API_TOKEN={removed}\0"),
        &format!("Authorization: Bearer {removed};"),
        "API_TOKEN=xxxxx\0",
        "CITY=Amsterdam-Noord\0",
    ] {
        assert!(has(wanted), "{wanted:?}");
    }
    assert!(!has("API_TOKEN=later"));
    let (before, after) = (Bundle::open(original).unwrap(), Bundle::open(&unpacked).unwrap());
    let meta = &after.manifest().meta;
    assert_eq!(meta.command_line.last().unwrap(), &format!("--key={removed}"));
    let note = meta.notes.last().unwrap();
    assert!(
        note.starts_with("values of environment variables were removed from")
            && note.ends_with(": API_TOKEN"),
        "{note}"
    );
    assert_eq!(before.manifest().processes, after.manifest().processes);
    // The crash is the same in the debugger.
    let run = backtrail([
        "debug".as_ref(),
        unpacked.as_os_str(),
        "-e".as_ref(),
        "print (char *)kept".as_ref(),
    ])
    .unwrap()
    .exited(0);
    let shown = format!("'x' <repeats {} times>", SECRET.len());
    assert!(run.stdout.contains(&shown), "{}", run.stdout);
}

#[test]
fn pushed_core_lacks_the_values_of_named_variables() {
    let (hub, user) = (HubServer::start().unwrap(), User::new());
    user.login(&hub);
    let bundle = crash(user.home());
    let mut original = files_with(&bundle, SECRET);
    original.sort();
    assert_eq!(original, [PathBuf::from("core"), PathBuf::from("meta.json")]);
    let path = bundle.to_str().unwrap();
    let run = user
        .run(&["push", path, "--redact-environment", "*_TOKEN"])
        .exited(0);
    let id = run.stdout.trim().rsplit('/').next().unwrap().to_owned();
    let received = user.home().join("received.btz");
    fs::write(&received, &hub.state().bundles[&id]).unwrap();
    check(&received, &bundle);
    let run = user.run(&["push", path, "--redact-environment", "A=B"]).exited(2);
    assert!(run.sentence().contains("is no pattern"), "{}", run.stderr);
}

#[test]
fn hub_removes_the_values_of_named_variables() {
    let (folder, user) = (tempfile::tempdir().unwrap(), User::new());
    let data = folder.path().join("data");
    let config = folder.path().join("hub.toml");
    fs::write(&config, "[redact]\nenvironment = [\"API_*\"]\n").unwrap();
    let token = token(&data, &["ingest", "read"]).unwrap();
    let hub = HubProcess::start(&data, &["--config", config.to_str().unwrap()]).unwrap();
    let file = user.home().join("token");
    fs::write(&file, &token).unwrap();
    let _ = user
        .run(&["login", &hub.address, "--token-file", file.to_str().unwrap()])
        .exited(0);
    let bundle = crash(user.home());
    let run = user.run(&["push", bundle.to_str().unwrap()]).exited(0);
    let id = run.stdout.trim().rsplit('/').next().unwrap().to_owned();
    let get = |path: String| hub.request("GET", &path, Some(&token), b"").unwrap();
    until("the bundle is stored", || {
        let crash = get(format!("/api/v1/crashes/{id}")).json();
        assert_ne!(crash["bundle"], "refused", "{crash}");
        (crash["bundle"] == "stored").then_some(())
    });
    let downloaded = user.home().join("downloaded.btz");
    fs::write(&downloaded, get(format!("/crash/{id}.btz")).body).unwrap();
    check(&downloaded, &bundle);
    for page in [format!("/c/{id}"), format!("/api/v1/crashes/{id}")] {
        let answer = get(page);
        assert!(answer.status == 200 && !answer.text().contains(SECRET));
    }
    // The upload itself is removed.
    until("the upload is removed", || {
        files_with(&data.join("objects"), "\"uploads\"")
            .is_empty()
            .then_some(())
    });
}

#[test]
fn crash_of_a_host_that_keeps_its_memory_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), &["ingest", "read"]).unwrap();
    let hub = HubProcess::start(folder.path(), &[]).unwrap();
    let id = "0123456789abcdefghjk";
    let mut report = json!({
        "version": 1, "id": id, "time": 1, "host": "web-17", "service": "ledger", "build": "1.0",
        "executable": "/srv/ledger", "signal": 11, "code": 1, "pid": 1, "tid": 1,
        "frames": [{"module": "/srv/ledger", "build_id": "a1b2", "offset": 16}],
    });
    let send = |report: &serde_json::Value| {
        let body = json!([report]).to_string();
        hub.request("POST", "/api/v1/reports", Some(&token), body.as_bytes())
            .unwrap()
            .json()[0]
            .clone()
    };
    assert!(send(&report)["wants"].is_null());
    let page = |id: &str| {
        let path = format!("/c/{id}");
        hub.request("GET", &path, Some(&token), b"").unwrap().text()
    };
    assert!(page(id).contains("the host sends stacks only, and keeps memory and history"));
    // Of another crash, the bundle was only not asked for.
    for number in 0..4 {
        report["id"] = json!(format!("{number}123456789abcdefghjm"));
        report["bundle_size"] = json!(7);
        let _ = send(&report);
    }
    let text = page("3123456789abcdefghjm");
    assert!(!text.contains("keeps memory and history"), "{text}");
}
