//! `backtrail profile`: reports, comparisons and conversions.

use super::export;
use backtrail_profile::format::pprof;
use backtrail_profile::{Frame, Function, Profile, StackId};
use backtrail_tests::backtrail::{Run, backtrail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const BEFORE: &str = "main;parse;memcpy 30\nmain;parse 20\nmain;idle 50\n";
const AFTER: &str = "main;parse;memcpy 30\nmain;parse 90\nmain;log 10\n";

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("before"), BEFORE).unwrap();
        std::fs::write(folder.path().join("after"), AFTER).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let arguments = ["profile"].iter().chain(arguments);
        let files = ["before", "after", "out"];
        let arguments = arguments.map(|argument| match files.contains(argument) {
            true => self.path(argument).display().to_string(),
            false => (*argument).to_owned(),
        });
        backtrail(arguments.collect::<Vec<_>>()).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let run = self.run(arguments);
        assert_eq!(run.stderr, "");
        serde_json::from_str(&run.stdout).unwrap()
    }
}

fn lines(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().skip(1).map(words).collect()
}

#[test]
fn report_lists_functions_by_own_weight() {
    let files = Files::new();
    let run = files.run(&["report", "before"]);
    assert_eq!(
        lines(&run.stdout),
        [
            "own total function",
            "50 50.0% 50 50.0% idle",
            "30 30.0% 30 30.0% memcpy",
            "20 20.0% 50 50.0% parse",
            "0 0.0% 100 100.0% main",
        ]
    );
}

#[test]
fn rules_change_the_tree() {
    let files = Files::new();
    let run = files.run(&[
        "report", "before", "--view", "tree", "--ignore", "^idle$", "--hide", "^mem",
    ]);
    assert_eq!(
        lines(&run.stdout),
        [
            "own total function",
            "0 0.0% 50 100.0% main",
            "50 100.0% 50 100.0% parse"
        ]
    );
    let callers = files.json(&[
        "report",
        "before",
        "--view",
        "callers",
        "--function",
        "memcpy",
        "--json",
    ]);
    let names: Vec<_> = callers["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["memcpy", "parse", "main"]);
}

#[test]
fn lines_have_weights_and_the_text_of_their_source() {
    let files = Files::new();
    let source = files.path("work.c");
    std::fs::write(&source, "int f() {\n  return 3;\n}\n").unwrap();
    let mut profile = Profile::default();
    let event = profile.event("cpu", "nanoseconds", 1).unwrap();
    let name = profile.string("f").unwrap();
    for (file, line, weight) in [(source.to_str().unwrap(), 2, 30), ("/no/such/file.c", 9, 10)] {
        let function = Function {
            name,
            linkage_name: name,
            file: Some(profile.string(file).unwrap()),
            start_line: 1,
        };
        let function = profile.functions.intern(function).unwrap();
        let frame = profile.frames.intern(Frame::Function { function, line }).unwrap();
        let stack = profile.stacks.push(StackId::EMPTY, frame).unwrap();
        profile.add(event, weight, stack).unwrap();
    }
    let mut bytes = Vec::new();
    pprof::write(&profile, &mut bytes).unwrap();
    std::fs::write(files.path("out"), bytes).unwrap();
    let report = files.json(&["report", "out", "--view", "lines", "--json"]);
    assert_eq!(
        report["lines"],
        serde_json::json!([
            {"file": source.to_str().unwrap(), "line": 2, "own": 30, "total": 30, "text": "return 3;"},
            {"file": "/no/such/file.c", "line": 9, "own": 10, "total": 10},
        ])
    );
    let run = files.run(&["report", "out", "--view", "lines"]);
    let expected = format!("30 ns 75.0% 30 ns 75.0% {}:2 return 3;", source.display());
    assert_eq!(lines(&run.stdout)[1], expected);
    let run = files.run(&["report", "before", "--view", "lines"]);
    assert_eq!(lines(&run.stdout)[1], "100 100.0% 100 100.0% [line unknown]");
}

#[test]
fn diff_names_new_and_removed_functions() {
    let files = Files::new();
    let diff = files.json(&["diff", "before", "after", "--json"]);
    let row = |row: &Value| {
        let name = row["name"].as_str().unwrap();
        format!("{name} {} {}", row["change"].as_str().unwrap(), row["own"])
    };
    let rows: Vec<_> = diff["functions"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(
        rows,
        [
            "parse changed [20,90]",
            "idle removed [50,0]",
            "log new [0,10]",
            "main changed [0,0]"
        ]
    );
}

#[test]
fn round_trips_keep_stacks() {
    for format in ["pprof", "otlp"] {
        let files = Files::new();
        let run = files.run(&["export", "before", "--format", format, "-o", "out"]);
        assert_eq!((&*run.stdout, &*run.stderr), ("", ""));
        let run = files.run(&["export", "out", "--format", "folded"]);
        let mut expected: Vec<_> = BEFORE.lines().collect();
        expected.sort_unstable();
        assert_eq!(run.stdout.lines().collect::<Vec<_>>(), expected, "{format}");
    }
}

/// Reads a profile by the schema that Perfetto publishes in its Python package. Prints the number
/// of unknown fields, and each stack with its event and weight.
const BY_PERFETTO: &str = "
import sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
trace = schema.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
names, frames, stacks, events, unknown = {}, {}, {}, {}, 0
for packet in trace.packet:
    data = packet.interned_data
    names.update((name.iid, name.str.decode()) for name in data.function_names)
    frames.update((frame.iid, frame.function_name_id) for frame in data.frames)
    stacks.update((stack.iid, stack.frame_ids) for stack in data.callstacks)
    events.update((event.iid, event.name) for event in data.stack_sample_counter_descriptors)
    parts = [packet, data, packet.stack_sample, *data.frames, *data.mappings, *data.callstacks,
             *data.stack_sample_counter_descriptors, *data.stack_sample_task_contexts]
    unknown += sum(len(UnknownFieldSet(part)) for part in parts)
print(unknown)
for packet in trace.packet:
    if packet.HasField('stack_sample'):
        sample = packet.stack_sample
        stack = ';'.join(names[frames[frame]] for frame in stacks[sample.callstack_iid])
        print(events[sample.primary_descriptor_iid], stack, sample.primary_weight)
";

#[test]
fn perfetto_has_the_weights_by_its_own_schema() {
    let python = Command::new("python3")
        .args(["-c", "import perfetto.protos.perfetto.trace"])
        .output();
    if !python.is_ok_and(|python| python.status.success()) {
        eprintln!("skipped: no Perfetto for Python on this machine (pip install perfetto protobuf)");
        return;
    }
    let files = Files::new();
    let run = files.run(&["export", "before", "--format", "perfetto", "-o", "out"]);
    assert_eq!((&*run.stdout, &*run.stderr, run.status), ("", "", Some(0)));
    let mut script = Command::new("python3");
    let output = script.args(["-c", BY_PERFETTO]).arg(files.path("out")).output();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = BEFORE.lines().map(|line| format!("samples {line}"));
    let expected: Vec<String> = std::iter::once("0".to_owned()).chain(expected).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn damaged_profiles_are_refused_in_a_sentence() {
    let files = Files::new();
    for (bytes, sentence) in [
        (
            &b"main\n"[..],
            "line 1 does not end with a space and a whole number",
        ),
        (b"\x1f\x8b\x08\x00rubbish", "the gzip data is damaged"),
        (b"\x0a\xff\x01", "neither a pprof nor an OTLP profile"),
        (b"PERFILE2", "perf.data"),
        (b"2ELIFREP", "big-endian"),
    ] {
        std::fs::write(files.path("out"), bytes).unwrap();
        let run = files.run(&["report", "out"]);
        assert_eq!(run.status, Some(3), "{}", run.stderr);
        assert!(run.stderr.contains(sentence), "{}", run.stderr);
    }
    let missing = files.run(&["report", "/nonexistent/profile"]);
    assert_eq!(missing.status, Some(1));
    assert!(missing.stderr.contains("cannot read"), "{}", missing.stderr);
}

/// The pprof export of a recording is a profile, too.
#[test]
fn recording_is_a_profile() {
    let files = Files::new();
    std::fs::write(files.path("out"), export::export("pprof", &[])).unwrap();
    let report = files.json(&["report", "out", "--event", "calls", "--limit", "100000", "--json"]);
    let functions = report["functions"].as_array().unwrap();
    assert!(functions.iter().any(|row| row["name"] == "main"), "{report}");
}

const WORK: &str = "
#include <stdio.h>
__attribute__((noinline)) long work(int n) { long s = 0; for (int i = 0; i < n; i++) s += (long)i * i % 7; return s; }
__attribute__((noinline)) long other(int n) { return work(n) + 1; }
int main() { long t = 0; for (int i = 0; i < 3000; i++) { t += work(30000 + i); t += other(10000 + i); } return t == 0; }
";

/// Returns the number of samples by innermost function, as `perf script` prints them.
fn samples_by_perf(file: &Path) -> BTreeMap<String, i64> {
    let mut script = Command::new("perf");
    script.args(["script", "-F", "ip,sym", "-G", "-i"]).arg(file);
    let text = String::from_utf8(script.output().unwrap().stdout).unwrap();
    let mut counts = BTreeMap::new();
    for (_, name) in text.lines().filter_map(|line| line.trim().split_once(' ')) {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn perf_data_has_the_samples_that_perf_prints() {
    if Command::new("perf").arg("--version").output().is_err() {
        eprintln!("skipped: perf is not installed");
        return;
    }
    let files = Files::new();
    let (source, program, data) = (files.path("work.c"), files.path("work"), files.path("out"));
    std::fs::write(&source, WORK).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O0", "-g", "-o"]);
    assert!(compiler.arg(&program).arg(&source).status().unwrap().success());
    let record = || {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-g", "-e", "cpu-clock:u", "-c", "1000000", "-o"]);
        perf.arg(&data)
            .arg("--")
            .arg(&program)
            .status()
            .unwrap()
            .success()
    };
    // perf 6.1 sometimes aborts while it reads build ids (`util/build-id.c:1010`).
    assert!((0..3).any(|_| record()), "perf record failed three times");
    let report = files.json(&["report", "out", "--json"]);
    let by_perf = samples_by_perf(&data);
    assert!(by_perf.values().sum::<i64>() > 20, "{by_perf:?}");
    let rows = report["functions"].as_array().unwrap().iter();
    let ours: BTreeMap<String, i64> = rows
        .map(|row| {
            (
                row["name"].as_str().unwrap().to_owned(),
                row["own"].as_i64().unwrap() / 1_000_000,
            )
        })
        .filter(|(_, own)| *own > 0)
        .collect();
    assert_eq!(ours, by_perf);
    let callers = files.json(&[
        "report",
        "out",
        "--view",
        "callers",
        "--function",
        "other",
        "--json",
    ]);
    let names = callers["calls"].as_array().unwrap().iter();
    let names: Vec<_> = names.take(2).map(|call| call["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["other", "main"]);
}

/// Answers one request with a status line and a body. Returns the request.
fn collector(answer: &'static [u8]) -> (String, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let read = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&request).to_lowercase();
            let length = text
                .split_once("content-length: ")
                .and_then(|(_, rest)| rest.lines().next());
            let length: Option<usize> = length.and_then(|length| length.trim().parse().ok());
            let head = request.windows(4).position(|window| window == b"\r\n\r\n");
            let is_whole = head
                .zip(length)
                .is_some_and(|(head, length)| request.len() >= head + 4 + length);
            if read == 0 || is_whole {
                break;
            }
        }
        stream.write_all(answer).unwrap();
        request
    };
    (url, std::thread::spawn(serve))
}

#[test]
fn profiles_are_sent_to_a_collector() {
    let files = Files::new();
    let (url, server) = collector(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let header = ["--header", "Authorization=Bearer abc"];
    let run = files.run(&["export", "before", "--otlp", &url, header[0], header[1]]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let request = server.join().unwrap();
    let head = request
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
    assert!(
        text.starts_with("post /v1development/profiles http/1.1"),
        "{text}"
    );
    assert!(text.contains("content-type: application/x-protobuf"), "{text}");
    assert!(text.contains("authorization: bearer abc\r\n"), "{text}");
    std::fs::write(files.path("out"), &request[head + 4..]).unwrap();
    let received = files.json(&["report", "out", "--json"]);
    assert_eq!(received["total"], 100);

    // Field 1 is the partial success: 3 rejected profiles, and a message.
    let rejected = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n\x0a\x08\x08\x03\x12\x04full";
    let busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nlater";
    let malformed = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xff";
    for (answer, problem) in [
        (&rejected[..], "it rejected 3 profiles: full"),
        (busy, "it answered 503 Service Unavailable: later"),
        (malformed, "OTLP answer"),
    ] {
        let (url, server) = collector(answer);
        let run = files.run(&["export", "before", "--otlp", &url]);
        server.join().unwrap();
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        assert!(run.stderr.contains(problem), "{}", run.stderr);
    }
    let run = files.run(&["export", "before", "--otlp", "http://127.0.0.1:9"]);
    assert!(
        run.stderr
            .contains("cannot send the profile to http://127.0.0.1:9"),
        "{}",
        run.stderr
    );
}
