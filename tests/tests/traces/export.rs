//! Exports of one recording in every format, each compared with the calls of `backtrail dump`, and
//! with the debugger's call tree, which has inlined functions too.

mod calls;
mod protobuf;
mod ranges;
mod readers;
use backtrail_tests::backtrail::{Run, backtrail};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use protobuf::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The calls of each thread in order, with depth and function.
type Calls = BTreeMap<u64, Vec<(usize, String)>>;

/// A recording of a program with five threads, and its contents.
struct Recording {
    bundle: Bundle,
    calls: Calls,
    /// The position of each call.
    positions: Vec<String>,
    instructions: u64,
}

fn recording() -> &'static Recording {
    static RECORDING: OnceLock<Recording> = OnceLock::new();
    RECORDING.get_or_init(|| {
        let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
        let (mut calls, mut positions) = (Calls::new(), Vec::new());
        let mut plain: BTreeMap<u64, Vec<(String, String)>> = BTreeMap::new();
        for line in on(&bundle.path, "dump", &["calls", "--json"]).stdout.lines() {
            let call: Value = serde_json::from_str(line).unwrap();
            let position = call["position"].as_str().unwrap().to_owned();
            let name = call["function"].as_str().or(call["address"].as_str()).unwrap();
            let of_thread = plain.entry(tid_of(&position)).or_default();
            of_thread.push((position, name.to_owned()));
        }
        for (tid, plain) in plain {
            let place = format!("goto t{tid}#-1");
            let tree = bundle.results(&[&place, "calls all --depth 1000 --limit 1000000"]);
            let tree = tree[1]["calls"].as_array().unwrap();
            let named = |call: &Value| {
                let name = call["function"].as_str().unwrap();
                // Code without a symbol is named by its address and module.
                let name = name.split_once(" in ").filter(|_| name.starts_with("0x"));
                let name = name.map_or(call["function"].as_str().unwrap(), |(address, _)| address);
                (call["position"].as_str().unwrap().to_owned(), name.to_owned())
            };
            // Without the inlined functions, these are the same calls.
            let called = tree.iter().filter(|call| call["inlined"] == false);
            assert_eq!(called.map(named).collect::<Vec<_>>(), plain);
            for call in tree {
                let (position, name) = named(call);
                let depth = call["depth"].as_u64().unwrap() as usize;
                calls.entry(tid).or_default().push((depth, name));
                positions.push(position);
            }
        }
        let info: Value = serde_json::from_str(&on(&bundle.path, "info", &["--json"]).stdout).unwrap();
        let threads = info["threads"].as_array().unwrap().iter();
        Recording {
            instructions: threads
                .map(|thread| thread["instructions"].as_u64().unwrap())
                .sum(),
            bundle,
            calls,
            positions,
        }
    })
}

fn tid_of(position: &str) -> u64 {
    let (thread, _) = position.split_once('#').unwrap();
    thread.trim_start_matches('t').parse().unwrap()
}

/// Runs `backtrail COMMAND BUNDLE REST...`; `dump` needs its subject first.
#[track_caller]
fn on(bundle: &Path, command: &str, rest: &[&str]) -> Run {
    let (what, rest) = rest.split_at(usize::from(command == "dump"));
    let mut arguments: Vec<&OsStr> = vec![command.as_ref()];
    arguments.extend(what.iter().map(OsStr::new));
    arguments.push(bundle.as_os_str());
    arguments.extend(rest.iter().map(OsStr::new));
    backtrail(arguments).unwrap().exited(0)
}

#[track_caller]
pub fn export(format: &str, rest: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export");
    let mut arguments = vec!["--format", format, "-o", file.to_str().unwrap()];
    arguments.extend(rest);
    let run = on(&recording().bundle.path, "export", &arguments);
    assert_eq!((&*run.stdout, &*run.stderr), ("", ""));
    std::fs::read(file).unwrap()
}

#[track_caller]
fn export_json(format: &str, rest: &[&str]) -> Value {
    serde_json::from_slice(&export(format, rest)).unwrap()
}

/// Returns whether a name is a call, and not a time in which a thread executes nothing.
fn is_call(name: &str) -> bool {
    !name.starts_with('[')
}

/// The open calls of a thread while they are read.
#[derive(Default)]
struct Stack {
    open: Vec<String>,
    last: u64,
}

impl Stack {
    #[track_caller]
    fn at(&mut self, moment: u64) {
        assert!(
            moment >= self.last,
            "time goes back from {} to {moment}",
            self.last
        );
        self.last = moment;
    }

    /// Begins a function, and returns its depth if it is a call.
    fn enter(&mut self, name: &str) -> Option<(usize, String)> {
        self.open.push(name.to_owned());
        is_call(name).then(|| (self.open.len() - 1, name.to_owned()))
    }

    #[track_caller]
    fn leave(&mut self) -> String {
        self.open.pop().expect("nothing is open")
    }
}

#[test]
fn export_does_not_replace_devices_pipes_or_links() {
    let bundle = &recording().bundle.path;
    let folder = tempfile::tempdir().unwrap();
    let [target, link, pipe] = ["target", "link", "pipe"].map(|name| folder.path().join(name));
    let to = |path: &Path| {
        let path = path.to_str().unwrap();
        on(
            bundle,
            "export",
            &["--format", "folded", "--overwrite", "-o", path],
        )
    };
    std::fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    to(&link);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let written = std::fs::read_to_string(&target).unwrap();
    assert!(written.len() > "old".len());
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    to(&pipe);
    assert_eq!(reader.join().unwrap(), written);
    assert!(!pipe.metadata().unwrap().is_file());
}

#[test]
fn chrome() {
    let file = export_json("chrome", &[]);
    let (mut stacks, mut calls) = (BTreeMap::<u64, Stack>::new(), Calls::new());
    let mut positions = Vec::new();
    for event in file["traceEvents"].as_array().unwrap() {
        let tid = event["tid"].as_u64().unwrap();
        let stack = stacks.entry(tid).or_default();
        // Microseconds with a fraction, as nanoseconds.
        let moment = (event["ts"].as_f64().unwrap() * 1000.0).round() as u64;
        match event["ph"].as_str().unwrap() {
            "M" => continue,
            "B" => {
                if let Some(call) = stack.enter(event["name"].as_str().unwrap()) {
                    positions.push(event["args"]["position"].as_str().unwrap().to_owned());
                    calls.entry(tid).or_default().push(call);
                }
            }
            "E" => assert_eq!(stack.leave(), event["name"].as_str().unwrap()),
            other => assert_eq!(other, "i"),
        }
        stack.at(moment);
    }
    assert!(stacks.values().all(|stack| stack.open.is_empty()));
    assert_eq!(calls, recording().calls);
    assert_eq!(positions, recording().positions);
    assert_eq!(file["otherData"]["unit"], "nanoseconds");
}

#[test]
fn perfetto() {
    let trace = Message::read(&export("perfetto", &[]));
    // Field numbers are those of Perfetto's .proto files.
    let mut names = BTreeMap::new();
    let mut threads = BTreeMap::new();
    let (mut stacks, mut calls) = (BTreeMap::<u64, Stack>::new(), Calls::new());
    let mut positions = Vec::new();
    for packet in trace.messages(1) {
        if let Some(track) = packet.message(60)
            && let Some(thread) = track.message(4)
        {
            threads.insert(track.number(1).unwrap(), thread.number(2).unwrap());
        }
        for name in packet.message(12).iter().flat_map(|data| data.messages(2)) {
            names.insert(name.number(1).unwrap(), name.texts(2).next().unwrap());
        }
        let Some(event) = packet.message(11) else { continue };
        let tid = threads[&event.number(11).unwrap()];
        let stack = stacks.entry(tid).or_default();
        stack.at(packet.number(8).unwrap_or(0));
        match event.number(9).unwrap() {
            1 => {
                if let Some(call) = stack.enter(&names[&event.number(10).unwrap()]) {
                    let annotation = event.message(4).unwrap();
                    positions.push(annotation.texts(6).next().unwrap());
                    calls.entry(tid).or_default().push(call);
                }
            }
            2 => drop(stack.leave()),
            kind => assert_eq!(kind, 3),
        }
    }
    assert!(stacks.values().all(|stack| stack.open.is_empty()));
    assert_eq!(calls, recording().calls);
    assert_eq!(positions, recording().positions);
}

/// Reads a file by the schema that Perfetto publishes in its Python package.
const BY_PERFETTO: &str = "
import sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
trace = schema.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
events = [packet.track_event for packet in trace.packet if packet.HasField('track_event')]
unknown = sum(len(UnknownFieldSet(part)) for packet in trace.packet
              for part in (packet, packet.track_event, packet.interned_data, packet.track_descriptor))
print(sum(event.type == schema.TrackEvent.TYPE_SLICE_BEGIN for event in events),
      sum(event.type == schema.TrackEvent.TYPE_SLICE_END for event in events),
      unknown, trace.packet[1].track_descriptor.thread.thread_name)
";

#[test]
fn perfetto_by_its_own_schema() {
    let python = Command::new("python3")
        .args(["-c", "import perfetto.protos.perfetto.trace"])
        .output();
    if !python.is_ok_and(|python| python.status.success()) {
        eprintln!("skipped: no Perfetto for Python on this machine (pip install perfetto protobuf)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    std::fs::write(&file, export("perfetto", &[])).unwrap();
    let output = Command::new("python3")
        .args(["-c", BY_PERFETTO])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace();
    let begun: usize = words.next().unwrap().parse().unwrap();
    assert!(begun >= recording().positions.len());
    assert_eq!(words.next(), Some(&*begun.to_string()));
    assert_eq!((words.next(), words.next()), (Some("0"), Some("threads")));
}

#[test]
fn speedscope() {
    let file = export_json("speedscope", &[]);
    let frames: Vec<&str> = file["shared"]["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["name"].as_str().unwrap())
        .collect();
    let profiles = file["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), recording().calls.len());
    for (profile, calls) in profiles.iter().zip(recording().calls.values()) {
        let mut stack = Stack::default();
        stack.at(profile["startValue"].as_u64().unwrap());
        let mut told = Vec::new();
        for event in profile["events"].as_array().unwrap() {
            stack.at(event["at"].as_u64().unwrap());
            let name = frames[event["frame"].as_u64().unwrap() as usize];
            match event["type"].as_str().unwrap() {
                "O" => told.extend(stack.enter(name)),
                "C" => assert_eq!(stack.leave(), name),
                other => panic!("{other}"),
            }
        }
        stack.at(profile["endValue"].as_u64().unwrap());
        assert!(stack.open.is_empty());
        assert_eq!(&told, calls);
    }
}

#[test]
fn folded() {
    let text = String::from_utf8(export("folded", &["--clock", "instructions"])).unwrap();
    let mut sum = 0;
    let mut working = 0;
    for line in text.lines() {
        let (stack, cost) = line.rsplit_once(' ').unwrap();
        let cost: u64 = cost.parse().unwrap();
        sum += cost;
        if stack.split(';').any(|name| name == "work") {
            working += cost;
        }
        assert!(stack.starts_with("threads;"), "{line}");
    }
    assert_eq!(sum, recording().instructions);
    assert!(working > 1000);
    // Weighted by time, the waits of a thread are included.
    let by_time = String::from_utf8(export("folded", &[])).unwrap();
    assert!(by_time.lines().count() > 10);
}

#[test]
fn pprof() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.pb.gz");
    std::fs::write(&file, export("pprof", &[])).unwrap();
    let output = Command::new("gzip").arg("-dc").arg(&file).output().unwrap();
    assert!(output.status.success());
    let profile = Message::read(&output.stdout);
    let strings: Vec<String> = profile.texts(6).collect();
    assert_eq!(strings[0], "");
    let text = |number: Option<u64>| &*strings[number.unwrap_or(0) as usize];
    let types: Vec<(&str, &str)> = profile
        .messages(1)
        .map(|kind| (text(kind.number(1)), text(kind.number(2))))
        .collect();
    assert_eq!(
        types,
        [
            ("calls", "count"),
            ("instructions", "count"),
            ("time", "nanoseconds")
        ]
    );
    // Readers use the first mapping as that of the program.
    let mapping = profile.message(3).unwrap();
    assert!(text(mapping.number(5)).contains("threads"));
    let functions: BTreeMap<u64, &str> = profile
        .messages(5)
        .map(|function| (function.number(1).unwrap(), text(function.number(2))))
        .collect();
    let locations: BTreeMap<u64, u64> = profile
        .messages(4)
        .map(|location| {
            let line = location.message(4).unwrap();
            (location.number(1).unwrap(), line.number(1).unwrap())
        })
        .collect();
    let (mut calls, mut instructions) = (BTreeMap::<&str, u64>::new(), 0);
    for sample in profile.messages(2) {
        let values = sample.numbers(2);
        let innermost = functions[&locations[&sample.numbers(1)[0]]];
        *calls.entry(innermost).or_default() += values[0];
        instructions += values[1];
    }
    assert_eq!(instructions, recording().instructions);
    let mut wanted = BTreeMap::<&str, u64>::new();
    for (_, name) in recording().calls.values().flatten() {
        *wanted.entry(name).or_default() += 1;
    }
    calls.retain(|name, _| is_call(name));
    assert_eq!(calls, wanted);
}

#[test]
fn firefox() {
    let file = export_json("firefox", &[]);
    let threads = file["threads"].as_array().unwrap();
    assert_eq!(threads.len(), recording().calls.len());
    for thread in threads {
        let samples = &thread["samples"];
        let stacks = samples["stack"].as_array().unwrap();
        assert_eq!(samples["length"].as_u64(), Some(stacks.len() as u64));
        assert!((1..=200_001).contains(&stacks.len()));
        let prefixes = thread["stackTable"]["prefix"].as_array().unwrap();
        for (stack, prefix) in prefixes.iter().enumerate() {
            assert!(prefix.as_u64().is_none_or(|prefix| prefix < stack as u64));
        }
        let known = |stack: &Value| stack.as_u64().unwrap() < prefixes.len() as u64;
        assert!(stacks.iter().all(known));
    }
}

#[test]
fn transcript_may_omit_lines() {
    let whole = recording();
    let (tid, calls) = whole.calls.last_key_value().unwrap();
    let depth_1 = calls.iter().filter(|(depth, _)| *depth == 0).count();
    let thread = tid.to_string();
    let part = export_json("chrome", &["--thread", &thread, "--depth", "1"]);
    let begun = part["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "B" && is_call(event["name"].as_str().unwrap()));
    assert_eq!(begun.count(), depth_1);

    let (from, to) = (format!("t{tid}#10"), format!("t{tid}#110"));
    let text = export(
        "folded",
        &["--clock", "instructions", "--from", &from, "--to", &to],
    );
    let costs = std::str::from_utf8(&text).unwrap().lines();
    let sum: u64 = costs
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, 100);
}

#[test]
fn lldb_gets_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let copy: PathBuf = folder.path().join("copy");
    let target = copy.to_str().unwrap();
    on(
        &recording().bundle.path,
        "export",
        &["--format", "lldb", "-o", target],
    );
    assert!(copy.join("trace.json").is_file());
    let digest = |bundle: &Path| on(bundle, "info", &["--digest"]).stdout;
    assert_eq!(digest(&copy), digest(&recording().bundle.path));
}

#[test]
fn invalid_export_requests_name_the_error() {
    let bundle = recording().bundle.path.to_str().unwrap();
    let tid = recording().calls.keys().next().unwrap();
    let (from, to) = (format!("t{tid}#10"), format!("t{tid}#9"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("there");
    std::fs::write(&file, "kept").unwrap();
    let there = file.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (
            &["--format", "folded", "--from", &from, "--to", &to],
            1,
            "the range is empty",
        ),
        (&["--format", "folded", "--thread", "1"], 1, "no thread 1"),
        (
            &["--format", "folded", "--from", "t1#0", "--to", &to],
            1,
            "more than one thread",
        ),
        (&["--format", "lldb"], 2, "name it with -o"),
        (
            &["--format", "lldb", "-o", there, "--depth", "3"],
            2,
            "do not apply to",
        ),
        (
            &["--format", "chrome", "-o", there],
            1,
            "exists; use --overwrite to replace it",
        ),
    ];
    for (rest, status, says) in cases {
        let run = backtrail([&["export", bundle], rest].concat())
            .unwrap()
            .exited(status);
        assert!(run.sentence().contains(says), "{}", run.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    on(
        &recording().bundle.path,
        "export",
        &["--format", "chrome", "-o", there, "--overwrite"],
    );
    assert!(std::fs::read_to_string(&file).unwrap().starts_with('{'));
}
