//! `backtrail fdo --format csspgo`: counts by calling contexts, compared with LLVM's own.

use backtrail_tests::backtrail::{Run, backtrail};
use backtrail_tests::captures;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The program that makes the same profile from last branch records.
pub(crate) const PROFGEN: &str = "llvm-profgen-19";
/// The compiler that adds pseudo-probes.
pub(crate) const CLANG: &str = "clang-19";

/// The options of `llvm-profgen` and of `backtrail fdo` for the two forms of a profile.
const FORMS: [(&[&str], &[&str]); 2] = [
    (&[], &[]),
    (
        &["--csspgo-preinliner=0", "--gen-cs-nested-profile=0"],
        &["--all-contexts"],
    ),
];

pub(crate) fn is_installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {tool} on this machine");
    }
    found
}

/// Returns the standard output of a tool.
fn output(tool: &str, arguments: &[&OsStr]) -> String {
    let run = Command::new(tool).args(arguments).output().unwrap();
    assert!(run.status.success(), "{tool}: {run:?}");
    String::from_utf8(run.stdout).unwrap()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// Returns the profile of `llvm-profgen` for the text of `perf script`.
pub(crate) fn by_llvm(binary: &Path, script: &Path, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("profile");
    let run = Command::new(PROFGEN)
        .arg("--format=text")
        .args(options)
        .arg(format!("--perfscript={}", script.display()))
        .arg(format!("--binary={}", binary.display()))
        .arg(format!("--output={}", profile.display()))
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    std::fs::read_to_string(profile).unwrap()
}

pub(crate) fn fdo(format: &str, options: &[&str], binary: &Path, input: &Path) -> Run {
    let command = ["fdo", "--format", format];
    let words = command.iter().chain(options).map(OsStr::new);
    backtrail(words.chain([binary.as_os_str(), input.as_os_str()])).unwrap()
}

/// A taken branch.
#[derive(Clone, Copy)]
struct TakenBranch {
    from: u64,
    to: u64,
    /// The instruction after the branch.
    next: u64,
}

/// The fixture, built and recorded, with its branches.
pub(crate) struct Recording {
    folder: TempDir,
    code: Vec<Range<u64>>,
    calls: HashSet<u64>,
    returns: HashSet<u64>,
    /// All instructions of the program, with those of the linker.
    instructions: HashSet<u64>,
    branches: Vec<TakenBranch>,
}

impl Recording {
    pub(crate) fn new(flags: &[&str]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fdo/contexts.c");
        let folder = tempfile::tempdir().unwrap();
        let (program, bundle) = (folder.path().join("contexts"), folder.path().join("bundle"));
        let built = Command::new(CLANG)
            .args(["-g", "-no-pie", "-o"])
            .arg(&program)
            .args(flags)
            .arg(source)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let record = ["record", "--full", "-o"].map(OsStr::new);
        let end = [bundle.as_os_str(), OsStr::new("--"), program.as_os_str()];
        assert_eq!(backtrail(record.into_iter().chain(end)).unwrap().status, Some(0));
        let mut recording = Self {
            code: code_of(&program),
            calls: HashSet::new(),
            returns: HashSet::new(),
            instructions: HashSet::new(),
            branches: Vec::new(),
            folder,
        };
        let mut jumps = HashSet::new();
        for (address, mnemonic) in mnemonics(&program) {
            recording.instructions.insert(address);
            if mnemonic.starts_with("jmp") {
                jumps.insert(address);
            }
            if mnemonic.starts_with("call") {
                recording.calls.insert(address);
            } else if mnemonic.starts_with("ret") {
                recording.returns.insert(address);
            }
        }
        recording.branches = branches_of(&bundle, &jumps);
        recording
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    /// Returns whether an address has an instruction of the program.
    pub(crate) fn is_loaded(&self, address: u64) -> bool {
        self.instructions.contains(&address)
            || self.instructions.contains(&(address + 1))
            || self.is_code(address)
    }

    /// Returns whether an address is in a stub of the PLT.
    fn is_stub(&self, address: u64) -> bool {
        self.instructions.contains(&address) && !self.is_code(address)
    }

    fn is_ours(&self, branch: &TakenBranch) -> bool {
        self.is_code(branch.from) || self.is_code(branch.to)
    }

    /// Writes one sample with all branches of the program, at its end.
    fn whole(&self) -> PathBuf {
        let ours: Vec<TakenBranch> = self
            .branches
            .iter()
            .filter(|branch| self.is_ours(branch))
            .copied()
            .collect();
        let end = ours.last().unwrap().to;
        let path = self.path("whole");
        std::fs::write(&path, sample(&[end], &ours)).unwrap();
        path
    }

    /// Writes samples of 32 branches, one after every 29 branches.
    pub(crate) fn samples(&self) -> PathBuf {
        let mut text = String::new();
        let mut ours: Vec<TakenBranch> = Vec::new();
        // The return addresses of the open calls, the outermost first.
        let mut stack: Vec<u64> = Vec::new();
        for branch in &self.branches {
            let is_return = self.returns.contains(&branch.from) || !self.is_code(branch.from);
            let returned = stack
                .iter()
                .rposition(|address| is_return && *address == branch.to);
            if let Some(open) = returned {
                stack.truncate(open);
            } else if self.calls.contains(&branch.from) {
                stack.push(branch.next);
            } else if !self.is_code(branch.from) && self.is_code(branch.to) && !self.is_stub(branch.from) {
                // Called by another binary.
                stack.push(branch.next);
            }
            if !self.is_ours(branch) {
                continue;
            }
            ours.push(*branch);
            if ours.len().is_multiple_of(29) && self.is_code(branch.to) {
                let chain: Vec<u64> = std::iter::once(branch.to)
                    .chain(stack.iter().rev().copied())
                    .collect();
                text.push_str(&sample(&chain, &ours[ours.len().saturating_sub(32)..]));
            }
        }
        let path = self.path("samples");
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Returns a sample as `perf script` prints it. The branches are the oldest first.
fn sample(chain: &[u64], branches: &[TakenBranch]) -> String {
    let mut text = String::new();
    for address in chain {
        writeln!(text, "\t{address:16x}").unwrap();
    }
    for branch in branches.iter().rev() {
        write!(text, " {:#x}/{:#x}/P/-/-/0 ", branch.from, branch.to).unwrap();
    }
    text.push_str("\n\n");
    text
}

/// Returns the sections with code of the compiler.
fn code_of(program: &Path) -> Vec<Range<u64>> {
    let text = output("readelf", &["-SW".as_ref(), program.as_os_str()]);
    let sections = text.lines().filter_map(|line| {
        let (_, line) = line.split_once(']')?;
        let words: Vec<_> = line.split_whitespace().collect();
        let [".text" | ".init" | ".fini", _, address, _, size, ..] = words[..] else {
            return None;
        };
        let address = hexadecimal(address)?;
        Some(address..address + hexadecimal(size)?)
    });
    sections.collect()
}

fn mnemonics(program: &Path) -> HashMap<u64, String> {
    let options = ["-d", "--no-show-raw-insn"].map(OsStr::new);
    let text = output("objdump", &[options[0], options[1], program.as_os_str()]);
    let lines = text.lines().filter_map(|line| {
        let (address, instruction) = line.split_once(":\t")?;
        let mnemonic = instruction.split_whitespace().next()?;
        Some((hexadecimal(address)?, mnemonic.to_owned()))
    });
    lines.collect()
}

/// Returns the taken branches. A jump may go to the next instruction.
fn branches_of(bundle: &Path, jumps: &HashSet<u64>) -> Vec<TakenBranch> {
    let words = ["dump", "instructions", "--json"].map(OsStr::new);
    let dump = backtrail(words.into_iter().chain([bundle.as_os_str()])).unwrap();
    let instructions: Vec<(u64, u64)> = dump
        .stdout
        .lines()
        .filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            Some((hexadecimal(line["pc"].as_str()?)?, line["length"].as_u64()?))
        })
        .collect();
    let pairs = instructions.iter().zip(instructions.iter().skip(1));
    let taken = pairs.filter_map(|((from, length), (to, _))| {
        let next = from + length;
        (*to != next || jumps.contains(from)).then_some(TakenBranch {
            from: *from,
            to: *to,
            next,
        })
    });
    taken.collect()
}

/// Compares the profiles of the fixture in both forms. The inputs are the recording, one sample
/// with all its branches, and short samples with call chains.
fn compare(flags: &[&str]) {
    if !is_installed(PROFGEN) || !is_installed(CLANG) {
        return;
    }
    let recording = Recording::new(flags);
    let binary = recording.path("contexts");
    let (whole, samples) = (recording.whole(), recording.samples());
    for (theirs, ours) in FORMS {
        let expected = by_llvm(&binary, &whole, theirs);
        assert!(expected.lines().count() > 60, "{expected}");
        for input in [&whole, &recording.path("bundle")] {
            let found = fdo("csspgo", ours, &binary, input);
            assert_eq!(found.stdout, expected, "{flags:?} {ours:?} {}", input.display());
        }
        let expected = by_llvm(&binary, &samples, theirs);
        let found = fdo("csspgo", ours, &binary, &samples);
        assert_eq!(found.stdout, expected, "{flags:?} {ours:?}");
        assert_eq!(found.stderr, "");
    }
}

#[test]
fn contexts_without_optimization_are_llvm_profgens() {
    compare(&["-O0"]);
}

#[test]
fn contexts_of_inlined_functions_are_llvm_profgens() {
    compare(&["-O2", "-fdebug-info-for-profiling"]);
}

#[test]
fn contexts_by_probes_are_llvm_profgens() {
    for level in ["-O1", "-O2"] {
        compare(&[
            level,
            "-fdebug-info-for-profiling",
            "-fpseudo-probe-for-profiling",
        ]);
    }
}

/// Without contexts, the sample profile of a binary with probes is by probes too.
#[test]
fn probes_without_contexts_are_llvm_profgens() {
    if !is_installed(PROFGEN) || !is_installed(CLANG) {
        return;
    }
    let flags = [
        "-O2",
        "-fdebug-info-for-profiling",
        "-fpseudo-probe-for-profiling",
    ];
    let recording = Recording::new(&flags);
    let binary = recording.path("contexts");
    let whole = recording.whole();
    let expected = by_llvm(&binary, &whole, &["--ignore-stack-samples"]);
    assert!(expected.contains("!CFGChecksum: "), "{expected}");
    for input in [whole, recording.path("bundle")] {
        let found = fdo("autofdo", &[], &binary, &input).stdout;
        assert_eq!(found, expected, "{}", input.display());
    }
}

/// LLVM's reader accepts what is written, and clang optimizes by it.
#[test]
fn profiles_with_contexts_are_read_by_llvm() {
    if !is_installed("llvm-profdata-19") || !is_installed(CLANG) {
        return;
    }
    let flags = [
        "-O2",
        "-fdebug-info-for-profiling",
        "-fpseudo-probe-for-profiling",
    ];
    let recording = Recording::new(&flags);
    let (binary, profile) = (recording.path("contexts"), recording.path("profile"));
    for (_, options) in FORMS {
        let text = fdo("csspgo", options, &binary, &recording.path("bundle")).stdout;
        std::fs::write(&profile, text).unwrap();
        let show = ["show", "--sample"].map(OsStr::new);
        let shown = output("llvm-profdata-19", &[show[0], show[1], profile.as_os_str()]);
        assert!(shown.contains("weigh"), "{shown}");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fdo/contexts.c");
        let built = Command::new(CLANG)
            .args(flags)
            .arg(format!("-fprofile-sample-use={}", profile.display()))
            .arg("-o")
            .arg(recording.path("again"))
            .arg(source)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        assert_eq!(String::from_utf8(built.stderr).unwrap(), "");
    }
}

/// A context keeps only the innermost calls.
#[test]
fn max_context_depth_shortens_contexts() {
    if !is_installed(PROFGEN) || !is_installed(CLANG) {
        return;
    }
    let recording = Recording::new(&["-O0"]);
    let (binary, whole) = (recording.path("contexts"), recording.whole());
    let (theirs, ours) = FORMS[1];
    let depth: Vec<&str> = theirs
        .iter()
        .copied()
        .chain(["--csprof-max-context-depth=1"])
        .collect();
    let options: Vec<&str> = ours.iter().copied().chain(["--max-context-depth", "1"]).collect();
    let found = fdo("csspgo", &options, &binary, &whole).stdout;
    assert_eq!(found, by_llvm(&binary, &whole, &depth));
    assert!(found.lines().any(|line| line.contains(" @ ")), "{found}");
    assert!(
        !found.lines().any(|line| line.matches(" @ ").count() > 1),
        "{found}"
    );
}

/// The samples of LLVM's own tests. Their profiles are compared in both forms.
#[test]
fn samples_of_llvms_tests_have_llvm_profgens_contexts() {
    let Some(folder) = captures::folder().filter(|_| is_installed(PROFGEN)) else {
        return;
    };
    let folder = folder.join("lbr/llvm-profgen");
    for name in [
        "inline-cs-noprobe",
        "inline-cs-pseudoprobe",
        "noinline-cs-noprobe",
        "recursion-compression-noprobe",
    ] {
        let binary = folder.join(format!("{name}.perfbin"));
        let script = folder.join(format!("{name}.perfscript"));
        for (theirs, ours) in FORMS {
            let found = fdo("csspgo", ours, &binary, &script).stdout;
            assert_eq!(found, by_llvm(&binary, &script, theirs), "{name} {ours:?}");
        }
    }
}

#[test]
fn options_of_contexts_need_their_format() {
    let run = backtrail(["fdo", "--format", "autofdo", "--all-contexts", "a", "b"]).unwrap();
    assert_eq!(run.status, Some(2));
    assert!(
        run.stderr.contains("are for --format csspgo only"),
        "{}",
        run.stderr
    );
}

/// Returns the calls of each context that ends with a function, by the names of the functions.
fn calls_of(profile: &str, function: &str) -> Vec<(String, u64)> {
    let contexts = profile.lines().filter_map(|line| {
        let (context, counts) = line.strip_prefix('[')?.split_once("]:")?;
        let names: Vec<&str> = context
            .split(" @ ")
            .filter_map(|frame| frame.split(':').next())
            .collect();
        let calls: u64 = counts.split(':').nth(1)?.parse().ok()?;
        (names.last()?.contains(function) && calls > 0).then(|| (names.join(" "), calls))
    });
    let mut calls: Vec<_> = contexts.collect();
    calls.sort();
    calls
}

/// Exceptions, `longjmp` and signals leave functions without returning. The contexts of the code
/// after them are right.
#[test]
fn contexts_after_unwinding_are_exact() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fdo/unwinds.cpp");
    let folder = tempfile::tempdir().unwrap();
    let (program, bundle) = (folder.path().join("unwinds"), folder.path().join("bundle"));
    // GCC splits functions when it optimizes, which would give parts of them other names.
    let words = [
        "-g",
        "-O1",
        "-fno-inline",
        "-fno-reorder-blocks-and-partition",
        "-o",
    ]
    .map(OsStr::new);
    let arguments: Vec<&OsStr> = words
        .into_iter()
        .chain([program.as_os_str(), source.as_os_str()])
        .collect();
    output("c++", &arguments);
    let record = ["record", "--full", "-o"].map(OsStr::new);
    let end = [bundle.as_os_str(), OsStr::new("--"), program.as_os_str()];
    assert_eq!(backtrail(record.into_iter().chain(end)).unwrap().status, Some(0));
    let profile = fdo("csspgo", &["--all-contexts"], &program, &bundle).stdout;
    let named = |text: &str, calls: u64| (text.to_owned(), calls);
    // 6 sums of 7 numbers, and 3 of 2 numbers in handlers of a signal, which have no callers.
    assert_eq!(
        calls_of(&profile, "check"),
        [named("main sum check", 42), named("on_signal sum check", 6)],
        "{profile}"
    );
    assert_eq!(
        calls_of(&profile, "sum"),
        [named("main sum", 6), named("on_signal sum", 3)],
        "{profile}"
    );
}
