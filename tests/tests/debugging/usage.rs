//! Exit statuses and error messages: 0 done, 1 failed, 2 wrong usage, 3 refused input.

use backtrail_tests::backtrail::{backtrail, command, repository};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use regex::Regex;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn help_and_version_exit_with_zero() {
    for argument in ["--help", "--version"] {
        let run = backtrail([argument]).unwrap().exited(0);
        assert!(run.stdout.to_lowercase().contains("backtrail") && run.stderr.is_empty());
    }
}

#[test]
fn wrong_usage_exits_with_two() {
    for arguments in [
        &[][..],
        &["no-such-command"],
        &["info"],
        &["record"],
        &["import", "raw"],
        &["dump", "x", "y"],
    ] {
        let run = backtrail(arguments).unwrap().exited(2);
        assert!(!run.stderr.is_empty() && run.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn mistyped_commands_suggest_similar_ones() {
    let run = backtrail(["recrod", "true"]).unwrap().exited(2);
    assert!(
        run.stderr.contains("a similar subcommand exists: 'record'"),
        "{run:?}"
    );
    let bundle = Bundle::made(&["record"], &["--".as_ref(), "true".as_ref()]).0;
    let answers = bundle.answers(&["bakctrace", "frobnicate"]);
    let error = |at: usize| answers[at]["error"].as_str().unwrap();
    assert!(error(0).ends_with("did you mean `backtrace`?"), "{}", error(0));
    assert!(!error(1).contains("did you mean"), "{}", error(1));
}

#[test]
fn help_of_a_command_has_an_example() {
    let bundle = Bundle::made(&["record"], &["--".as_ref(), "true".as_ref()]).0;
    for command in ["backtrace", "break", "latency", "info heap", "goto"] {
        let text = bundle.debug(&[&format!("help {command}")]);
        let example = format!("    Example: {command}");
        assert!(text.lines().any(|line| line.starts_with(&example)), "{text}");
    }
}

#[test]
fn missing_input_is_one() {
    for command in ["info", "check", "debug"] {
        let run = backtrail([command, "no/such/bundle"]).unwrap().exited(1);
        assert!(run.sentence().contains("no/such/bundle"), "{}", run.stderr);
    }
    let run = backtrail(["record", "--", "no/such/program"]).unwrap().exited(1);
    assert!(run.sentence().contains("no/such/program"), "{}", run.stderr);
}

#[test]
fn pipe_is_refused_as_a_bundle_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for command in ["info", "debug", "dump"] {
        let what = (command == "dump").then_some(OsStr::new("calls"));
        let arguments = [Some(OsStr::new(command)), what, Some(pipe.as_os_str())];
        let run = backtrail(arguments.into_iter().flatten()).unwrap().exited(3);
        assert!(run.sentence().contains("regular file"), "{}", run.stderr);
    }
}

#[test]
fn malformed_input_exits_with_three_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bad");
    fs::create_dir(&bundle).unwrap();
    let texts: [&[u8]; 5] = [b"", b"{", b"[]", b"{\"type\": \"intel-pt\"}", b"\x1b[31m\n\n\xff"];
    for text in texts {
        fs::write(bundle.join("trace.json"), text).unwrap();
        for command in ["info", "check", "debug"] {
            let run = backtrail([command.as_ref(), bundle.as_os_str()])
                .unwrap()
                .exited(3);
            let sentence = run.sentence();
            assert!(!sentence.chars().any(char::is_control), "{sentence:?}");
        }
    }
    let packed = folder.path().join("bad.btz");
    fs::write(&packed, b"no zstd at all").unwrap();
    let run = backtrail(["info".as_ref(), packed.as_os_str()])
        .unwrap()
        .exited(3);
    assert!(!run.sentence().is_empty());
}

/// Bundles of a later version, and ELF files of another architecture.
#[test]
fn unsupported_input_exits_with_three_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let record = [
        "record".as_ref(),
        "--exit-zero".as_ref(),
        "-o".as_ref(),
        bundle.as_os_str(),
    ];
    let program = ["--", "sh", "-c", "kill -SEGV $$"].map(OsStr::new);
    let _ = backtrail(record.into_iter().chain(program)).unwrap().exited(0);
    let refused = |path: &Path, expected: &str| {
        for command in ["info", "check", "debug"] {
            let run = backtrail([command.as_ref(), path.as_os_str()]).unwrap().exited(3);
            let said = format!("{}{}", run.stdout, run.sentence());
            assert!(said.contains(expected), "{command}: {said}");
        }
    };
    let described = bundle.join("trace.json");
    let now = fs::read_to_string(&described).unwrap();
    let newer = now.replace("\"version\": 1", "\"version\": 99");
    assert_ne!(now, newer);
    fs::write(&described, newer).unwrap();
    refused(&bundle, "newer than this program supports");
    fs::write(&described, now).unwrap();
    let core = bundle.join("core");
    let mut bytes = fs::read(&core).unwrap();
    // `e_machine`: ARM.
    bytes[18] = 40;
    fs::write(&core, bytes).unwrap();
    refused(&bundle, "not for x86-64");
    let run = backtrail(["debug".as_ref(), core.as_os_str()]).unwrap().exited(3);
    assert!(run.sentence().contains("not for x86-64"), "{}", run.stderr);
}

#[test]
fn other_folder_error_describes_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    for command in ["info", "check", "debug"] {
        let run = backtrail([command.as_ref(), folder.path().as_os_str()])
            .unwrap()
            .exited(3);
        let said = format!("{}{}", run.stdout, run.sentence());
        assert!(
            said.contains(folder.path().to_str().unwrap()),
            "{command}: {said}"
        );
        assert!(
            said.contains("a directory that `backtrail record`"),
            "{command}: {said}"
        );
    }
}

#[test]
fn existing_output_error_suggests_overwrite() {
    let folder = tempfile::tempdir().unwrap();
    let [bundle, packed] = ["bundle", "bundle.btz"].map(|name| folder.path().join(name));
    let record = ["record", "-o", bundle.to_str().unwrap(), "--", "true"];
    let _ = backtrail(record).unwrap().exited(0);
    let again = backtrail(record).unwrap().exited(1);
    let said = "choose another path or replace it with --overwrite";
    assert!(again.sentence().ends_with(said), "{}", again.stderr);
    let [from, to] = [&bundle, &packed].map(|path| path.to_str().unwrap());
    let _ = backtrail(["pack", from, "-o", to]).unwrap().exited(0);
    for command in [["pack", from, "-o", to], ["unpack", to, "-o", from]] {
        let run = backtrail(command).unwrap().exited(1);
        assert!(run.sentence().ends_with("choose another path"), "{}", run.stderr);
        assert!(backtrail(command.into_iter().chain(["--overwrite"])).is_ok_and(|run| run.status == Some(2)));
    }
}

#[test]
fn doctor_says_what_this_machine_can_do() {
    let run = backtrail(["doctor"]).unwrap().exited(0);
    assert!(run.stdout.contains("Intel Processor Trace"), "{}", run.stdout);
    let first = run.stdout.lines().next().unwrap();
    assert!(
        first.starts_with("This machine can") && first.contains("record programs"),
        "{first}"
    );
    let json = backtrail(["doctor", "--json"]).unwrap().exited(0);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["summary"], first);
}

#[test]
fn color_is_used_where_it_is_wanted() {
    let bundle = Bundle::made(&["record"], &["--".as_ref(), "true".as_ref()]).0;
    let said = |options: &[&str]| {
        let mut command = command().unwrap();
        command.args(options).arg("debug").arg(&bundle.path);
        command.args(["--batch", "-e", "backtrace"]).env("NO_COLOR", "1");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(said(&["--color", "always"]).contains("\x1b["));
    for options in [&["--color", "never"][..], &["--color=auto"], &[]] {
        assert!(!said(options).contains('\x1b'), "{options:?}");
    }
}

/// Returns the names of schemas in a text: `backtrail-info/2`.
fn schemas(text: &str) -> BTreeSet<String> {
    let name = Regex::new("backtrail-[a-z-]+/[0-9]+").unwrap();
    name.find_iter(text)
        .map(|found| found.as_str().to_owned())
        .collect()
}

/// Returns the names of schemas in the sources under a folder.
fn schemas_of(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => schemas_of(&path),
            false => schemas(&fs::read_to_string(path).unwrap()),
        })
        .collect()
}

#[test]
fn every_schema_is_in_the_table() {
    let printed: BTreeSet<String> = ["cli/src", "console/src", "debugger/src", "profile/src"]
        .iter()
        .flat_map(|folder| schemas_of(&repository().join(folder)))
        .collect();
    let page = fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(schemas(&rows.join("\n")), printed);
}

#[test]
fn closed_pipe_is_not_an_error() {
    use std::process::Stdio;
    let mut child = backtrail_tests::backtrail::command()
        .unwrap()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

/// A range is its middle and half of its length with one unit: `-12 ms ±12`.
#[test]
fn time_ranges_are_printed_once_and_short() {
    let program = find("threads").unwrap();
    let (bundle, _) = Bundle::recorded(program, Variant::Pie, &["--full"]);
    let commands = [
        "crash",
        "crash full",
        "when",
        "info threads",
        "last collatz",
        "history 30",
        "calls all --depth 20 --limit 300",
        "slowest collatz 20",
        "break collatz",
        "reverse-continue",
        "reverse-step",
        "timeline collatz",
        "thread apply all when",
    ];
    let text = bundle.debug(&commands);
    let range = Regex::new(r"-?([0-9.]+) (ns|µs|ms|s) ±([0-9.]+)( ns\b| µs| ms\b| s\b)?").unwrap();
    let mut found = 0;
    for line in text.lines() {
        let mut shown = BTreeSet::new();
        for range in range.captures_iter(line) {
            found += 1;
            assert!(range.get(4).is_none(), "{line}");
            // Both numbers have the same digits after the point, and the second is short.
            let decimals = |group: usize| range[group].split_once('.').map_or(0, |(_, rest)| rest.len());
            assert_eq!(decimals(1), decimals(3), "{line}");
            assert!(range[3].trim_start_matches(['0', '.']).len() <= 4, "{line}");
            assert!(shown.insert(range[0].to_owned()), "{line}");
        }
        assert_eq!(line.matches('±').count(), shown.len(), "{line}");
    }
    assert!(found > 20, "{found}\n{text}");
}
