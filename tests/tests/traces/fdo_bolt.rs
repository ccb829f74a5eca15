//! `backtrail fdo --format fdata`: branches for BOLT, compared with its own conversion.

use backtrail_tests::backtrail::backtrail;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Debian's `perf2bolt-19` is another name of `llvm-bolt`, which converts under this name only.
const PERF2BOLT: &str = "/usr/lib/llvm-19/bin/perf2bolt";

/// Returns the records without those of the PLT, whose first stub BOLT gives a name of its own.
fn records(text: &str) -> BTreeSet<String> {
    let is_of_stub = |line: &&str| line.contains("@PLT") || line.contains("__BOLT_PSEUDO_");
    let lines = text.lines().filter(|line| !is_of_stub(line));
    lines.map(str::to_owned).collect()
}

/// Builds and records a fixture, and returns the records of ours and of BOLT.
fn both(compiler: &str, source: &str, flags: &[&str]) -> (BTreeSet<String>, BTreeSet<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (program, bundle) = (path("program"), path("bundle"));
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/fdo")
        .join(source);
    let built = Command::new(compiler)
        .args(["-g", "-Wl,--emit-relocs", "-o"])
        .arg(&program)
        .args(flags)
        .arg(fixture)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let record = ["record", "--full", "-o"].map(OsStr::new);
    let end = [bundle.as_os_str(), OsStr::new("--"), program.as_os_str()];
    assert_eq!(backtrail(record.into_iter().chain(end)).unwrap().status, Some(0));
    let fdo = |format: &str| {
        let words = ["fdo", "--format", format].map(OsStr::new);
        let files = [program.as_os_str(), bundle.as_os_str()];
        backtrail(words.into_iter().chain(files)).unwrap().stdout
    };
    std::fs::write(path("preagg"), fdo("preagg")).unwrap();
    let run = Command::new(PERF2BOLT)
        .args(["--pa", "-p"])
        .arg(path("preagg"))
        .arg("-o")
        .arg(path("fdata"))
        .arg(&program)
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let theirs = std::fs::read_to_string(path("fdata")).unwrap();
    (records(&fdo("fdata")), records(&theirs))
}

fn compare(compiler: &str, source: &str, flags: &[&str]) {
    for tool in [PERF2BOLT, compiler] {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("skipped: no {tool} on this machine");
            return;
        }
    }
    let (ours, theirs) = both(compiler, source, flags);
    assert!(theirs.len() > 30, "{theirs:?}");
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let more: Vec<_> = ours.difference(&theirs).collect();
    assert!(
        missing.is_empty() && more.is_empty(),
        "{compiler} {flags:?}: missing {missing:#?}, more {more:#?}"
    );
}

#[test]
fn records_of_bolt_are_perf2bolts() {
    for flags in [&["-O0", "-no-pie"][..], &["-O2"]] {
        compare("clang-19", "contexts.c", flags);
    }
}

#[test]
fn records_of_gcc_are_perf2bolts() {
    compare("cc", "contexts.c", &["-O2"]);
}

#[test]
fn records_of_classes_are_perf2bolts() {
    compare("clang++-19", "parcels.cpp", &["-O2"]);
}
