//! `backtrail fdo`: counts of a recording for compilers, compared with LLVM's own.

use backtrail_tests::backtrail::backtrail;
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The program that makes the same profile from addresses.
const PROFGEN: &str = "llvm-profgen-19";

fn is_installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {tool} on this machine");
    }
    found
}

/// A recording of the fixture, built with these flags.
struct Recording {
    folder: TempDir,
}

impl Recording {
    fn new(compiler: &str, flags: &[&str]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fdo/parcels.cpp");
        let recording = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut command = Command::new(compiler);
        command
            .args(["-g", "-o"])
            .arg(recording.path("parcels"))
            .args(flags)
            .arg(source);
        let built = command.output().unwrap();
        assert!(built.status.success(), "{built:?}");
        let run = backtrail([
            "record".as_ref(),
            "--full".as_ref(),
            "-o".as_ref(),
            recording.path("bundle").as_os_str(),
            "--".as_ref(),
            recording.path("parcels").as_os_str(),
        ]);
        assert_eq!(run.unwrap().status, Some(0));
        recording
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn fdo(&self, format: &str, input: &str) -> backtrail_tests::backtrail::Run {
        let (binary, input) = (self.path("parcels"), self.path(input));
        let arguments = [
            "fdo".as_ref(),
            "--format".as_ref(),
            format.as_ref(),
            binary.as_os_str(),
        ];
        backtrail(arguments.into_iter().chain([input.as_os_str()])).unwrap()
    }

    /// Returns the profile that `llvm-profgen` computes for branches by addresses.
    fn by_llvm(&self, preaggregated: &str) -> String {
        let (counts, output) = (self.path("counts"), self.path("llvm"));
        std::fs::write(
            &counts,
            unsymbolized(preaggregated, text_base(&self.path("parcels"))),
        )
        .unwrap();
        let run = Command::new(PROFGEN)
            .arg("--format=text")
            .arg(format!("--unsymbolized-profile={}", counts.display()))
            .arg(format!("--binary={}", self.path("parcels").display()))
            .arg(format!("--output={}", output.display()))
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        std::fs::read_to_string(output).unwrap()
    }
}

/// Returns the address of the first segment with code, by `readelf`.
fn text_base(binary: &Path) -> u64 {
    let output = Command::new("readelf").arg("-lW").arg(binary).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("LOAD") && line.contains("R E"))
        .unwrap();
    number(line.split_whitespace().nth(2).unwrap())
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// Converts pre-aggregated branches to the form of `llvm-profgen --skip-symbolization`: distances
/// from the first code, ranges first. Branches out of the binary are not part of it, and those into
/// it come from address 1.
fn unsymbolized(preaggregated: &str, base: u64) -> String {
    let place = |text: &str| match text {
        "X:0" => 1_u64.wrapping_sub(base),
        address => number(address).wrapping_sub(base),
    };
    let (mut ranges, mut branches) = (Vec::new(), Vec::new());
    for line in preaggregated.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["F", first, last, count] => {
                ranges.push(format!("{:x}-{:x}:{count}\n", place(first), place(last)));
            }
            ["B", _, "X:0", ..] => {}
            ["B", from, to, count, _] => {
                branches.push(format!("{:x}->{:x}:{count}\n", place(from), place(to)));
            }
            _ => panic!("{line}"),
        }
    }
    let mut text = String::new();
    for list in [ranges, branches] {
        write!(text, "{}\n{}", list.len(), list.concat()).unwrap();
    }
    text
}

#[test]
fn counts_of_lines_are_llvm_profgens() {
    if !is_installed(PROFGEN) {
        return;
    }
    let compilers = ["c++", "clang++-19", "clang++-16"]
        .into_iter()
        .filter(|name| is_installed(name));
    for compiler in compilers {
        for level in ["-O0", "-O2"] {
            let mut flags = vec![level];
            if compiler != "c++" {
                flags.push("-fdebug-info-for-profiling");
            }
            let recording = Recording::new(compiler, &flags);
            let ours = recording.fdo("autofdo", "bundle").stdout;
            let theirs = recording.by_llvm(&recording.fdo("preagg", "bundle").stdout);
            assert!(ours.lines().count() > 60, "{compiler} {level}: {ours}");
            assert_eq!(ours, theirs, "{compiler} {level}");
        }
    }
}

/// `price` runs 12 000 times. A line of a case has as many executions as parcels have
/// such a weight.
#[test]
fn counts_of_a_recording_are_exact() {
    let recording = Recording::new("c++", &["-O0"]);
    let profile = recording.fdo("autofdo", "bundle").stdout;
    let lines: Vec<&str> = profile
        .lines()
        .skip_while(|line| !line.starts_with("price:"))
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .collect();
    // Line and count; the first line of the function is 0.
    let count = |offset: usize| -> u64 {
        let line = lines
            .iter()
            .find(|line| line.trim().starts_with(&format!("{offset}:")));
        let line = line.unwrap_or_else(|| panic!("no line {offset} in {profile}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let weights: Vec<u64> = (0..600).map(|number| number * 7919 % 1000).collect();
    let with = |low: u64| 20 * weights.iter().filter(|grams| *grams & 7 == low).count() as u64;
    assert_eq!(count(2), 12_000);
    for case in 0..5 {
        assert_eq!(count(3 + case as usize), with(case), "case {case}: {profile}");
    }
}

/// Last branch records as perf prints them have the same counts as their addresses say.
#[test]
fn last_branch_records_are_counted() {
    let recording = Recording::new("c++", &["-O0", "-no-pie"]);
    let preaggregated = recording.fdo("preagg", "bundle").stdout;
    // The loops: branches within the binary that are taken most.
    let mut loops: Vec<(u64, &str, &str)> = preaggregated
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["B", from, to, count, _] if from != "X:0" && to != "X:0" => {
                Some((count.parse().unwrap(), from, to))
            }
            _ => None,
        })
        .collect();
    loops.sort_unstable();
    let (_, from, to) = loops.last().unwrap();
    let record = format!("0x{from}/0x{to}/P/-/-/1");
    let missed = format!("0x{from}/0x{to}/M/-/-/1");
    let text = format!("   {to} {record}  {missed}  {record}\n");
    std::fs::write(recording.path("script"), text).unwrap();
    let counted = recording.fdo("preagg", "script").stdout;
    let branch = format!("B {from} {to} 3 1");
    assert!(
        counted.lines().any(|line| line == branch),
        "{branch} is in {counted}"
    );
}

/// `total` runs 20 times over 600 parcels. Its loop is the one with that mean.
#[test]
fn report_counts_iterations_of_loops() {
    let recording = Recording::new("c++", &["-O0"]);
    let report = recording.fdo("report", "bundle").stdout;
    let loops: Vec<Vec<&str>> = report
        .lines()
        .filter(|line| line.contains(" _Z5totalI6ParcelElRKSt6vectorIT_SaIS2_EE:"))
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    assert_eq!(loops, [["12000", "20", "600.0"]], "{report}");
    assert!(report.contains("Traces do not say it."), "{report}");

    let (binary, bundle) = (recording.path("parcels"), recording.path("bundle"));
    let with = |options: &[&str]| {
        let arguments = ["fdo", "--format", "report"]
            .iter()
            .chain(options)
            .map(OsStr::new);
        let files = [binary.as_os_str(), bundle.as_os_str()];
        backtrail(arguments.chain(files)).unwrap().stdout
    };
    let json: Value = serde_json::from_str(&with(&["--json"])).unwrap();
    let all = json["loops"].as_array().unwrap();
    let function = "_Z5totalI6ParcelElRKSt6vectorIT_SaIS2_EE";
    let total = all.iter().find(|row| row["function"] == function).unwrap();
    assert_eq!(
        (&total["iterations"], &total["entries"]),
        (&12000.into(), &20.into())
    );
    let short = with(&["--limit", "1"]);
    let rest = format!("… {} more loops; --limit shows them", all.len() - 1);
    assert_eq!(short.lines().nth(2), Some(&*rest), "{short}");
}

#[test]
fn inputs_of_another_build_are_refused() {
    let recording = Recording::new("c++", &["-O0"]);
    let other = Recording::new("c++", &["-O2"]);
    let bundle = other.path("bundle");
    let binary = recording.path("parcels");
    let arguments = [
        "fdo".as_ref(),
        "--format".as_ref(),
        "preagg".as_ref(),
        binary.as_os_str(),
    ];
    let run = backtrail(arguments.into_iter().chain([bundle.as_os_str()])).unwrap();
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("has no branch of parcels"), "{}", run.stderr);
    std::fs::write(recording.path("bad"), "\n 0x12/0xzz/P\n").unwrap();
    let run = recording.fdo("preagg", "bad");
    assert_eq!(run.status, Some(3));
    assert!(
        run.stderr.contains("perf script: line 2 has branches"),
        "{}",
        run.stderr
    );
}
