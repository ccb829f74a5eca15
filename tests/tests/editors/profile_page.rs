//! The pages of `backtrail profile`, opened in a headless browser.
//!
//! `tests/web/drive.mjs` has the steps and the expected views. `cargo xtask vscode` installs what
//! drives the browser, and prints the variables that name it.

use crate::bakery::variable;
use crate::profiles;
use backtrail_tests::backtrail::{backtrail, repository};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The browser, Node.js and the folder of its packages, or `None` with a message.
fn installed() -> Option<(PathBuf, PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    let browser = programs.find(|program| program.is_file());
    let found = || {
        Some((
            browser?,
            variable("BACKTRAIL_NODE")?,
            variable("BACKTRAIL_VSCODE")?,
        ))
    };
    let found = found();
    if found.is_none() {
        eprintln!(
            "skipped: a browser or what drives it is missing; cargo xtask vscode installs and names them"
        );
    }
    found
}

/// Two events: three waits, and ten samples of processor time.
const SERVER: [(&str, u64, &str); 13] = [
    ("off-cpu", 0, "main:7;wait:8"),
    ("off-cpu", 1, "main:7;wait:8"),
    ("off-cpu", 2, "main:9;handle:20"),
    ("cpu", 0, "main:9;handle:21;parse:30;copy:40"),
    ("cpu", 1, "main:9;handle:21;parse:31;decode:50"),
    ("cpu", 2, "main:9;handle:22"),
    ("cpu", 3, "main:9;handle:21;parse:30;copy:41"),
    ("cpu", 4, "main:7;wait:8"),
    ("cpu", 5, "main:9;handle:21;parse:30;copy:40"),
    ("cpu", 6, "main:9;handle:21;parse:31;decode:50"),
    ("cpu", 7, "main:9;handle:22"),
    ("cpu", 8, "main:9;handle:21;parse:30;copy:41"),
    ("cpu", 9, "main:7;wait:8"),
];

#[track_caller]
fn write_page(arguments: &[&OsStr], page: &Path) {
    let mut all: Vec<&OsStr> = vec!["profile".as_ref()];
    all.extend(arguments);
    all.extend([OsStr::new("--html"), page.as_ref()]);
    let run = backtrail(all).unwrap().exited(0);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
}

#[test]
fn pages_work_by_keyboard_and_pointer() {
    let Some((browser, node, packages)) = installed() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    profiles::write(
        &path("server.otlp"),
        Path::new("/usr/src/server/server.c"),
        &SERVER,
    );
    fs::write(
        path("before"),
        "main;parse;memcpy 30\nmain;parse 20\nmain;idle 50\n",
    )
    .unwrap();
    fs::write(
        path("after"),
        "main;parse;memcpy 30\nmain;parse 90\nmain;log 10\n",
    )
    .unwrap();
    let hostile = "</script><script>alert(1)</script>;<img src=x onerror=alert(2)> 7\n";
    fs::write(path("hostile"), hostile).unwrap();
    let mut large = String::new();
    for at in 0..100_000 {
        writeln!(large, "main;a{};b{};c{at} 1", at % 10, at % 1000).unwrap();
    }
    fs::write(path("large"), large).unwrap();

    let slow = format!("main;{}! 7\n", "a".repeat(60));
    fs::write(path("slow"), slow).unwrap();

    let report: &OsStr = "report".as_ref();
    let (bundle, _) = Bundle::recorded(find("ledger").unwrap(), Variant::Pie, &["--full"]);
    write_page(&[report, bundle.path.as_ref()], &path("calls.html"));
    write_page(&[report, path("slow").as_ref()], &path("slow.html"));
    write_page(&[report, path("server.otlp").as_ref()], &path("report.html"));
    write_page(&[report, path("hostile").as_ref()], &path("hostile.html"));
    write_page(&[report, path("large").as_ref()], &path("large.html"));
    let (before, after) = (path("before"), path("after"));
    write_page(
        &["diff".as_ref(), before.as_ref(), after.as_ref()],
        &path("diff.html"),
    );

    let status = Command::new(node)
        .arg(repository().join("tests/web/drive.mjs"))
        .env("BACKTRAIL_VSCODE", packages)
        .env("BACKTRAIL_CHROMIUM", browser)
        .env("BACKTRAIL_PAGES", folder.path())
        .env("HOME", folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "see what was printed");
}
