//! Foreign programs use the hub by its documents: generated requests, a validator of answers, and
//! two clients of resumable uploads.

use super::filled::Filled;
use backtrail_tests::backtrail::repository;
use backtrail_tests::hub_process::until;
use serde_json::json;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Returns a command for one of the scripts beside this file.
pub fn script(program: &OsStr, name: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(repository().join("tests/tests/hub/clients").join(name));
    command
}

/// Runs a script to its end, and returns what it printed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

/// Returns whether Python has a package.
pub fn has_package(package: &str) -> bool {
    let import = format!("import {package}");
    let found = Command::new("python3").args(["-c", &import]).output();
    let is_there = found.is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("left out: Python has no {package}; cargo xtask readers installs it");
    }
    is_there
}

#[test]
fn answers_are_those_of_the_document() {
    if !has_package("jsonschema_rs") {
        return;
    }
    let filled = Filled::new();
    let mut validator = script("python3".as_ref(), "answers.py");
    validator.args([&filled.hub.address, &filled.token, &filled.crash, &filled.group]);
    let text = run(&mut validator);
    let count: usize = text.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(count >= 40, "{text}");
}

/// Sends generated requests with a token of each scope, and without one.
fn generate(filled: &Filled, examples: u32, seed: u32) {
    let (spare, _) = filled.token("read");
    let identifiers = json!({
        "/api/v1/groups/": [filled.group],
        "/api/v1/crashes/": [filled.crash],
        "/api/v1/tokens/": [spare],
        "/buildid/": ["a1b2"],
    });
    let [ingest, read, admin] = ["ingest", "read", "admin"].map(|scope| filled.token(scope).1);
    for (token, name) in [
        (&ingest, "ingest"),
        (&read, "read"),
        (&admin, "admin"),
        (&String::new(), "none"),
    ] {
        let text = run(script("python3".as_ref(), "fuzz.py")
            .args([&filled.hub.address, token])
            .args([examples.to_string(), seed.to_string()])
            .arg(identifiers.to_string())
            .current_dir(filled.folder.path()));
        println!(
            "scope {name}: {}",
            text.lines().rev().take(12).collect::<Vec<_>>().join(" | ")
        );
        let number = |label: &str| -> Option<u32> {
            let rest = text.split_once(label)?.1.trim_start();
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let (selected, tested) = (number("Selected:"), number("Tested:"));
        assert!(selected >= Some(20) && tested == selected, "{text}");
    }
    // The requests revoked no token that they were sent with.
    for token in [&ingest, &read, &admin] {
        let caller = filled.hub.request("GET", "/api/v1/whoami", Some(token), b"");
        assert_eq!(caller.unwrap().status, 200);
    }
}

#[test]
fn generated_requests_find_no_failure() {
    if has_package("schemathesis") {
        generate(&Filled::new(), 5, 1);
    }
}

#[test]
#[ignore = "takes minutes"]
fn many_generated_requests_find_no_failure() {
    if has_package("schemathesis") {
        let filled = Filled::new();
        for seed in [2, 3] {
            generate(&filled, 300, seed);
        }
    }
}

/// Checks that the hub has a bundle whose upload a client interrupted and resumed.
fn check_stored(filled: &Filled, crash: &str, printed: &str) {
    let words: Vec<u64> = printed
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert!(0 < words[0] && words[0] < words[1], "{printed}");
    let stored = until("the bundle is checked", || {
        let crash = filled.get(&format!("/api/v1/crashes/{crash}")).json();
        (!["wanted", "checking"].contains(&crash["bundle"].as_str().unwrap())).then_some(crash)
    });
    assert_eq!(stored["bundle"], "stored", "{stored}");
    assert_eq!(stored["analysis"]["cause"]["name"], "SIGSEGV", "{stored}");
}

#[test]
fn tuspy_resumes_an_upload_that_was_cut() {
    if !has_package("tusclient") {
        return;
    }
    let filled = Filled::new();
    let (packed, id, digest) = filled.wanted();
    let printed = run(script("python3".as_ref(), "tus.py")
        .args([&filled.hub.address, &filled.token])
        .arg(&packed)
        .args(["bundle", &id, &digest]));
    check_stored(&filled, &id, &printed);
}

#[test]
fn tus_js_client_resumes_an_aborted_upload() {
    let found = std::env::var_os("BACKTRAIL_NODE").zip(std::env::var_os("BACKTRAIL_TUS_CLIENT"));
    let Some((node, client)) = found else {
        eprintln!("left out: no BACKTRAIL_NODE and BACKTRAIL_TUS_CLIENT; cargo xtask readers names them");
        return;
    };
    let filled = Filled::new();
    let (packed, id, sha256) = filled.wanted();
    let upload = |file: &Path, kind: &str, subject: &str, digest: &str| {
        let mut upload = script(&node, "tus.mjs");
        upload.arg(Path::new(&client).join("node_modules"));
        upload.args([&filled.hub.address, &filled.token]).arg(file);
        upload.args([kind, subject, digest]);
        upload
    };
    let printed = run(&mut upload(&packed, "bundle", &id, &sha256));
    check_stored(&filled, &id, &printed);
    // The reason of a refusal reaches the client, which printed none before.
    let wrong = upload(&packed, "debug", "a1b2", &sha256).output().unwrap();
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && text.contains("ELF"), "{text}");
}

#[test]
fn bytes_with_another_digest_are_refused() {
    if !has_package("tusclient") {
        return;
    }
    let filled = Filled::new();
    let (packed, id, _) = filled.wanted();
    let printed = run(script("python3".as_ref(), "tus.py")
        .args([&filled.hub.address, &filled.token])
        .arg(&packed)
        .args(["bundle", &id, &"0".repeat(64)]));
    assert!(!printed.is_empty());
    let refused = until("the bundle is refused", || {
        let crash = filled.get(&format!("/api/v1/crashes/{id}")).json();
        (crash["bundle"] == "refused").then_some(crash)
    });
    let problem = refused["bundle_problem"].as_str().unwrap();
    assert!(problem.contains("announced SHA-256"), "{problem}");
}
