//! Python functions in stacks that an eBPF program walks, beside what Python says of itself.

use crate::ebpf_stacks::no_ebpf;
use crate::profile_recordings::record;
use backtrail_profile::{Frame, Profile, format};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A function computes in a thread, below recursion, a generator, and `sorted`, which is a function
/// in C. It first prints the functions of its stack, the outermost first, and the line of its loop.
const PROGRAM: &str = "\
import sys, threading, time

def names(frame):
    found = []
    while frame:
        found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found[::-1]

class Wörker:
    def work(self):
        print(';'.join(names(sys._getframe())), flush=True)
        total, end = 0, time.process_time() + 2
        while time.process_time() < end:
            for number in range(20000):
                total += number * number % 7
        return total

def recurse(depth):
    return recurse(depth - 1) if depth else Wörker().work()

def generate():
    yield recurse(20)

def in_c():
    return sorted([1], key=lambda _: next(generate()))

def idle():
    time.sleep(30)

for _ in range(3):
    threading.Thread(target=idle, daemon=True).start()
if sys.argv[1] == 'thread':
    thread = threading.Thread(target=in_c)
    thread.start()
    thread.join()
else:
    in_c()
";
/// The lines of the loop.
const LOOP: [u32; 2] = [15, 16];

/// Returns the Pythons of this machine whose frames are known, by version.
fn pythons() -> BTreeMap<String, PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let installed = fs::read_dir(home.join(".pyenv/versions"))
        .into_iter()
        .flatten()
        .flatten();
    let mut candidates: Vec<_> = installed
        .map(|version| version.path().join("bin/python3"))
        .collect();
    candidates.push("/usr/bin/python3".into());
    candidates.extend(["python3", "python3.11", "python3.12", "python3.13"].map(PathBuf::from));
    let version = |python: &Path| {
        let script = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)";
        let run = Command::new(python).args(["-c", script]).output().ok()?;
        let text = String::from_utf8(run.stdout).ok()?;
        text.trim()
            .split_once(' ')
            .map(|(version, path)| (version.to_owned(), path.to_owned()))
    };
    let mut found = BTreeMap::new();
    for python in candidates {
        let Some((version, path)) = version(&python) else {
            continue;
        };
        if ["3.11", "3.12", "3.13"].contains(&version.as_str()) {
            found.insert(format!("{version} {path}"), path.into());
        }
    }
    found
}

/// A Python function of a stack: its name, file and line.
type PythonFrame = (String, String, u32);

/// Returns the Python functions of all stacks that have some, the outermost first, with the number
/// of samples of each.
fn python_stacks(profile: &Profile) -> BTreeMap<Vec<PythonFrame>, u64> {
    let mut stacks = BTreeMap::new();
    for sample in &profile.samples {
        let frames = profile.stacks.frames(sample.stack).filter_map(|frame| {
            let Some(Frame::Function { function, line }) = profile.frames.get(frame) else {
                return None;
            };
            let function = profile.functions.get(*function).unwrap();
            let file = function.file.map(|file| profile.text(file).to_owned());
            Some((
                profile.text(function.name).to_owned(),
                file.unwrap_or_default(),
                *line,
            ))
        });
        let mut frames: Vec<_> = frames.collect();
        frames.reverse();
        if !frames.is_empty() {
            *stacks.entry(frames).or_default() += 1;
        }
    }
    stacks
}

#[test]
fn python_functions_are_those_of_getframe() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("program.py");
    fs::write(&script, PROGRAM).unwrap();
    let script = script.to_str().unwrap();
    let output = folder.path().join("recording");
    let pythons = pythons();
    assert!(!pythons.is_empty(), "there is no Python to test");
    for (version, python) in pythons {
        for mode in ["thread", "main"] {
            let python = python.to_str().unwrap();
            let printed = Command::new(python).args([script, mode]).output().unwrap();
            let printed = String::from_utf8(printed.stdout).unwrap();
            let expected: Vec<_> = printed.lines().next().unwrap().split(';').collect();
            let recorded = record(&output, &["--freq", "199"], &[python, script, mode]);
            let profile = format::read(&fs::read(&output).unwrap()).unwrap();
            let stacks = python_stacks(&profile);
            let names = |stack: &[PythonFrame]| -> Vec<String> {
                stack.iter().map(|(name, _, _)| name.clone()).collect()
            };
            let same: u64 = stacks
                .iter()
                .filter(|(stack, _)| names(stack) == expected)
                .map(|(_, count)| count)
                .sum();
            let walked = recorded["walked_in_kernel"].as_u64().unwrap();
            assert!(
                same > 50 && same * 10 > walked * 8,
                "{version} {mode}: {recorded} {stacks:?}"
            );
            // The lines of the innermost function, and its file.
            let in_loop: u64 = stacks
                .iter()
                .filter_map(|(stack, count)| stack.last().map(|(name, file, line)| (name, file, line, count)))
                .filter(|(name, file, line, _)| {
                    *name == "Wörker.work" && *file == script && LOOP.contains(line)
                })
                .map(|(_, _, _, count)| *count)
                .sum();
            assert!(in_loop * 10 > same * 9, "{version} {mode}: {stacks:?}");
            // The longest stack of all may be one of Python's start, which imports modules.
            let stack = stacks.keys().find(|stack| names(stack) == expected).unwrap();
            let recursion: Vec<_> = stack.iter().filter(|(name, _, _)| name == "recurse").collect();
            assert_eq!(recursion.len(), 21, "{version} {mode}: {stacks:?}");
            assert!(recursion.iter().all(|(_, _, line)| *line == 20), "{recursion:?}");
        }
    }
}
