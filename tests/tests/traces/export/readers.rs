//! Exports opened in the programs for their formats: speedscope, the Firefox Profiler, pprof.
//!
//! `cargo xtask test` installs the first two (`xtask/src/readers.rs`), `cargo xtask test-all` the
//! third.

use super::{export, is_call, recording};
use backtrail_tests::backtrail::backtrail;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns `node` and the folder with the readers' packages, or `None` if they are not installed.
fn node() -> Option<(OsString, PathBuf)> {
    let found = std::env::var_os("BACKTRAIL_NODE").zip(std::env::var_os("BACKTRAIL_READERS"));
    if found.is_none() {
        eprintln!(
            "skipped: no BACKTRAIL_NODE and BACKTRAIL_READERS; cargo xtask readers installs and names them"
        );
    }
    found.map(|(node, packages)| (node, packages.into()))
}

/// Writes an export to a file of this name in a new folder.
#[track_caller]
fn file(format: &str, name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, export(format, &[])).unwrap();
    (folder, file)
}

#[track_caller]
fn stdout(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the contents that speedscope loaded from a file, and the lines of its log.
#[track_caller]
fn by_speedscope(node: &OsString, packages: &Path, file: &Path) -> (Value, Vec<String>) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/export/speedscope.mjs");
    let output = Command::new(node).arg(script).arg(packages).arg(file).output();
    let mut opened: Value = serde_json::from_str(&stdout(output.unwrap())).unwrap();
    assert_eq!(opened["schema"], Value::Null);
    let log = opened["log"].as_array().unwrap().iter();
    let log = log.map(|line| line.as_str().unwrap().to_owned()).collect();
    (opened["saved"].take(), log)
}

fn complaints(log: &[String]) -> Vec<&str> {
    let lines = log.iter().map(String::as_str);
    lines.filter(|line| !line.starts_with("log: ")).collect()
}

/// Begins and ends of calls in a thread, with names and nanoseconds since its first event.
type Boundaries = Vec<(bool, String, u64)>;

/// Returns the threads of a file in speedscope's format, which omits calls without duration.
#[track_caller]
fn boundaries(file: &Value) -> Vec<Boundaries> {
    let frames = file["shared"]["frames"].as_array().unwrap();
    let profiles = file["profiles"].as_array().unwrap().iter();
    let of = |profile: &Value| {
        let begin = profile["startValue"].as_u64().unwrap();
        let (mut boundaries, mut open) = (Boundaries::new(), Vec::new());
        for event in profile["events"].as_array().unwrap() {
            let at = event["at"].as_u64().unwrap() - begin;
            let name = frames[event["frame"].as_u64().unwrap() as usize]["name"].as_str();
            let name = name.unwrap().to_owned();
            if event["type"] == "O" {
                open.push(boundaries.len());
                boundaries.push((true, name, at));
                continue;
            }
            let opened = open.pop().unwrap();
            assert_eq!(boundaries[opened].1, name);
            match boundaries[opened].2 == at {
                true => boundaries.truncate(opened),
                false => boundaries.push((false, name, at)),
            }
        }
        assert!(open.is_empty());
        boundaries
    };
    profiles.map(of).collect()
}

/// Returns the total weight of all samples.
fn weight(saved: &Value) -> u64 {
    let [profile] = &saved["profiles"].as_array().unwrap()[..] else {
        panic!("one profile: {saved}");
    };
    assert_eq!(profile["startValue"], 0);
    profile["endValue"].as_u64().unwrap()
}

#[test]
fn speedscope_opens_its_own_format() {
    let Some((node, packages)) = node() else { return };
    let (_folder, file) = file("speedscope", "threads.speedscope.json");
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let (saved, log) = by_speedscope(&node, &packages, &file);
    assert_eq!(complaints(&log), [""; 0]);
    assert_eq!(boundaries(&saved), boundaries(&written));
}

#[test]
fn speedscope_opens_folded_stacks_and_pprof() {
    let Some((node, packages)) = node() else { return };
    let (_folder, folded) = file("folded", "threads.txt");
    let text = std::fs::read_to_string(&folded).unwrap();
    let costs = text.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    let sum: u64 = costs.map(|cost| cost.parse::<u64>().unwrap()).sum();
    let (saved, log) = by_speedscope(&node, &packages, &folded);
    assert_eq!(complaints(&log), [""; 0]);
    assert_eq!(weight(&saved), sum);

    let (_folder, pprof) = file("pprof", "threads.pb.gz");
    let (saved, log) = by_speedscope(&node, &packages, &pprof);
    assert_eq!(complaints(&log), [""; 0]);
    // speedscope shows the last of the values, the time, which folded stacks count too.
    assert_eq!(saved["profiles"][0]["unit"], "nanoseconds");
    assert_eq!(weight(&saved), sum);
}

/// The Firefox Profiler's command line: a process with a loaded profile, and others that query it.
struct Profiler {
    node: OsString,
    script: PathBuf,
    sessions: TempDir,
    loaded: Child,
}

impl Profiler {
    #[track_caller]
    fn load(node: OsString, packages: &Path, file: &Path) -> Self {
        let script = packages.join("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");
        let sessions = tempfile::tempdir().unwrap();
        let mut command = profiler(&node, &script, &sessions);
        // Its own `load` waits only half a second for the process.
        command.arg("--daemon").arg(file).args(["--session", "test"]);
        let loaded = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let profiler = Self {
            node,
            script,
            sessions,
            loaded: loaded.unwrap(),
        };
        // A query that comes too early removes the process's socket, so that none succeeds.
        let socket = profiler.sessions.path().join("test.sock");
        let begin = Instant::now();
        while !is_loaded(&socket).unwrap_or(false) {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "it does not load the profile"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        profiler
    }

    #[track_caller]
    fn ask(&self, question: &[&str]) -> Value {
        serde_json::from_str(&stdout(self.run(question))).unwrap()
    }

    /// Returns all functions of a thread with their samples.
    #[track_caller]
    fn functions(&self, thread: &str) -> Value {
        self.ask(&[
            "thread",
            "functions",
            "--thread",
            thread,
            "--limit",
            "0",
            "--json",
        ])
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = profiler(&self.node, &self.script, &self.sessions);
        command
            .args(arguments)
            .args(["--session", "test"])
            .output()
            .unwrap()
    }
}

/// Asks the process at a socket whether it has loaded its profile.
fn is_loaded(socket: &Path) -> std::io::Result<bool> {
    let mut process = UnixStream::connect(socket)?;
    process.set_read_timeout(Some(Duration::from_secs(10)))?;
    process.write_all(b"{\"type\":\"status\"}\n")?;
    let mut answer = String::new();
    BufReader::new(process).read_line(&mut answer)?;
    let answer: Value = serde_json::from_str(&answer)?;
    assert_ne!(answer["type"], "error", "{answer}");
    Ok(answer["type"] == "ready")
}

fn profiler(node: &OsString, script: &Path, sessions: &TempDir) -> Command {
    let mut command = Command::new(node);
    command
        .arg(script)
        .env("PROFILER_CLI_SESSION_DIR", sessions.path())
        // Otherwise the profiler requests symbols from a server.
        .env("PROFILER_CLI_NO_SYMBOLICATE", "1");
    command
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let _ = self.loaded.kill();
        let _ = self.loaded.wait();
    }
}

/// Returns how many samples of a thread have each function as the innermost, by the written file.
fn innermost(thread: &Value) -> BTreeMap<String, u64> {
    let number = |table: &Value, at: usize| table[at].as_u64().unwrap() as usize;
    let mut counts = BTreeMap::new();
    for stack in thread["samples"]["stack"].as_array().unwrap() {
        let frame = number(&thread["stackTable"]["frame"], stack.as_u64().unwrap() as usize);
        let function = number(&thread["frameTable"]["func"], frame);
        let name = number(&thread["funcTable"]["name"], function);
        let name = thread["stringArray"][name].as_str().unwrap();
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn the_firefox_profiler_opens_its_format() {
    let Some((node, packages)) = node() else { return };
    let (_folder, file) = file("firefox", "threads.json");
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let profiler = Profiler::load(node, &packages, &file);
    let listed = profiler.ask(&["thread", "list", "--json"]);
    let threads = listed["threads"].as_array().unwrap();
    let tids = threads.iter().map(|thread| thread["tid"].as_str().unwrap());
    let mut tids: Vec<u64> = tids.map(|tid| tid.parse().unwrap()).collect();
    tids.sort_unstable();
    assert!(tids.iter().eq(recording().calls.keys()));
    for thread in threads {
        let handle = thread["threadHandle"].as_str().unwrap();
        let functions = profiler.functions(handle);
        let counts = functions["functions"].as_array().unwrap().iter();
        let counts: BTreeMap<String, u64> = counts
            .map(|function| {
                let name = function["name"].as_str().unwrap().to_owned();
                (name, function["selfSamples"].as_u64().unwrap())
            })
            .filter(|&(_, samples)| samples > 0)
            .collect();
        let mut written = written["threads"].as_array().unwrap().iter();
        let written = written.find(|one| one["tid"] == thread["tid"]).unwrap();
        assert_eq!(counts, innermost(written));
        let markers = profiler.ask(&["thread", "markers", "--thread", handle, "--json"]);
        assert_eq!(markers["totalMarkerCount"], written["markers"]["length"]);
    }
}

/// A profile without a trace, by `backtrail profile export`.
#[test]
fn the_firefox_profiler_opens_profiles() {
    let Some((node, packages)) = node() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (folded, file) = (folder.path().join("folded"), folder.path().join("profile.json"));
    std::fs::write(&folded, "main;parse;copy 30\nmain;parse 20\nmain;idle 50\n").unwrap();
    let arguments: [&OsStr; 7] = [
        "profile".as_ref(),
        "export".as_ref(),
        folded.as_ref(),
        "--format".as_ref(),
        "firefox".as_ref(),
        "-o".as_ref(),
        file.as_ref(),
    ];
    assert_eq!(backtrail(arguments).unwrap().status, Some(0));
    let profiler = Profiler::load(node, &packages, &file);
    let listed = profiler.ask(&["thread", "list", "--json"]);
    let handle = listed["threads"][0]["threadHandle"].as_str().unwrap();
    let functions = profiler.functions(handle);
    let count = |name: &str| {
        let mut functions = functions["functions"].as_array().unwrap().iter();
        let function = functions.find(|function| function["name"] == name).unwrap();
        let samples = |key: &str| function[key].as_u64().unwrap();
        (samples("selfSamples"), samples("totalSamples"))
    };
    assert_eq!(count("copy"), (30, 30));
    assert_eq!(count("parse"), (20, 50));
    assert_eq!(count("idle"), (50, 50));
    assert_eq!(count("main"), (0, 100));
}

/// Runs `go tool pprof OPTIONS FILE`. Returns `None` without Go.
#[track_caller]
fn by_pprof(options: &[&str], file: &Path) -> Option<String> {
    let mut go = Command::new("go");
    go.args(["tool", "pprof"]).args(options).arg(file);
    match go.output() {
        Ok(output) => Some(stdout(output)),
        Err(error) => {
            eprintln!("skipped: no Go on this machine ({error}); cargo xtask test-all installs it");
            None
        }
    }
}

#[test]
#[ignore = "needs Go, hundreds of megabytes: cargo xtask test-all"]
fn pprof_opens_its_format() {
    let (_folder, file) = file("pprof", "threads.pb.gz");
    let options = ["-top", "-nodefraction=0", "-nodecount=0", "-sample_index=calls"];
    let Some(top) = by_pprof(&options, &file) else {
        return;
    };
    // pprof shows the program as the profiled file, not the first library that ran.
    assert!(top.lines().next().unwrap().starts_with("File: threads"), "{top}");
    assert!(top.contains("Type: calls"), "{top}");
    let (_, rows) = top.split_once("cum%\n").unwrap();
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows.lines() {
        let words: Vec<&str> = row.split_whitespace().collect();
        let count: u64 = words[0].parse().unwrap();
        if is_call(words[5]) && count > 0 {
            *calls.entry(words[5]).or_default() += count;
        }
    }
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, name) in recording().calls.values().flatten() {
        *wanted.entry(name).or_default() += 1;
    }
    assert_eq!(calls, wanted);

    let traces = by_pprof(&["-traces", "-sample_index=instructions", "-unit=count"], &file).unwrap();
    let sum: u64 = traces
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(sum, recording().instructions, "{traces}");
    // Every location has its mapping, and every mapping its file.
    let raw = by_pprof(&["-raw"], &file).unwrap();
    let (locations, mappings) = raw
        .split_once("Locations\n")
        .unwrap()
        .1
        .split_once("Mappings\n")
        .unwrap();
    let named = locations.lines().filter(|line| line.contains("M=1 work "));
    assert_eq!(named.count(), 1, "{raw}");
    assert!(mappings.lines().next().unwrap().contains("threads"), "{raw}");
}
