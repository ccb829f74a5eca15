//! Parts of a trace, by every form of position, and the size of an export before it is written.

use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::Watch;
use backtrail_export::{Clock, Format, Options, Timeline};
use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded;
use backtrail_tests::programs::{Variant, find};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::OnceLock;

/// The largest quotient of an estimate and a size.
const TOLERANCE: f64 = 1.5;

/// Returns the recording of a program with a crash.
fn crashed() -> &'static Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE.get_or_init(|| Bundle::recorded(find("crash_null").unwrap(), Variant::Pie, &["--full"]).0)
}

/// Returns the stacks of a part, with their instructions.
#[track_caller]
fn folded(options: &[&str]) -> String {
    let format = ["--format", "folded", "--clock", "instructions"];
    crashed()
        .run(&["export"], &[&format[..], options].concat())
        .stdout
}

#[test]
fn range_takes_every_form_of_position() {
    let info = crashed().info();
    let thread = &info["threads"][0];
    let (tid, len) = (&thread["tid"], thread["instructions"].as_u64().unwrap());
    let from = |position: &str| folded(&["--from", position]);
    let to = |position: &str| folded(&["--to", position]);
    assert_eq!(from("#100"), from(&format!("t{tid}#100")));
    assert_eq!(from("#-100"), from(&format!("t{tid}#{}", len - 100)));
    assert_ne!(from("#-100"), from("#100"));
    assert_eq!(from("start"), to("end"));
    assert_eq!(to("crash"), to("end"));
    // Calls by their names in the debugger.
    let call = crashed().results(&["goto c3"])[0]["place"]["position"].clone();
    assert_eq!(from("c3"), from(call.as_str().unwrap()));
    // Some instructions run in the last nanoseconds before the crash, and not all.
    let last = from("@-100ns");
    assert!(last != from("start"), "{last}");
    let tid = tid.to_string();
    let options = ["--thread", &tid, "--from", "#100"];
    assert_eq!(folded(&options), from("#100"));
}

#[test]
fn position_that_does_not_exist_is_refused() {
    let bundle = crashed().path.to_str().unwrap();
    for (position, says) in [
        ("nowhere", "use start, end, crash"),
        ("c99999999", "has no call c99999999"),
        ("@-x", "is not a time"),
        ("t1#0", "no thread 1"),
    ] {
        let run = backtrail(["export", bundle, "--format", "folded", "--from", position]).unwrap();
        assert_eq!((run.status, &*run.stdout), (Some(1), ""), "{position}");
        assert!(run.sentence().contains(says), "{}", run.stderr);
    }
}

#[test]
fn estimates_are_near_the_sizes() {
    let session = Session::open(&crashed().path, &OpenOptions::default(), &Watch::none()).unwrap();
    let watch = Watch::none();
    for depth in [None, Some(3)] {
        let options = Options {
            depth,
            // With times, pauses are exported too.
            clock: Clock::Instructions,
            ..Options::default()
        };
        let timeline = Timeline::new(&session, &options, &watch).unwrap();
        for format in [Format::Perfetto, Format::Chrome, Format::Speedscope] {
            let estimate = timeline.estimate(format, &watch).unwrap().unwrap();
            let mut written = Vec::new();
            format.write(&timeline, &mut written, &watch).unwrap();
            // Everything but the calls takes a little.
            let quotient = estimate.bytes as f64 / (written.len() as f64 - 1000.0);
            let what = format!("{format:?}, {depth:?}: {estimate:?}, {} bytes", written.len());
            if depth.is_none() {
                assert!((1.0 / TOLERANCE..TOLERANCE).contains(&quotient), "{what}");
            }
            if format == Format::Chrome {
                let text = String::from_utf8(written).unwrap();
                let exported = text.matches("\"ph\":\"B\"").count() as u64;
                // A depth may hide inlined functions in each other.
                let most = if depth.is_none() { exported } else { 2 * exported };
                assert!((exported..=most).contains(&estimate.calls), "{exported} {what}");
            }
        }
        for format in [Format::Firefox, Format::Folded, Format::Pprof] {
            assert_eq!(timeline.estimate(format, &watch).unwrap(), None);
        }
    }
}

#[test]
fn large_export_warns_before_it_is_written() {
    let bundle = compiled_and_recorded("cc", &["-g", "-O1", "-DHOPS=2000000"], "typed/hops.c");
    let folder = tempfile::tempdir().unwrap();
    let mut export = command()
        .unwrap()
        .args([
            "export",
            bundle.path.to_str().unwrap(),
            "--format",
            "chrome",
            "-o",
        ])
        .arg(folder.path().join("out.json"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut messages = BufReader::new(export.stderr.take().unwrap());
    messages.read_line(&mut line).unwrap();
    export.kill().unwrap();
    export.wait().unwrap();
    assert!(
        line.starts_with("backtrail: warning: the export has 2.0 million calls, about "),
        "{line}"
    );
    assert!(
        line.ends_with(" MiB; --from, --to, --thread and --depth export less\n"),
        "{line}"
    );
    let small = bundle.run(&["export"], &["--format", "chrome", "--to", "#1000"]);
    assert_eq!(small.stderr, "");
}
