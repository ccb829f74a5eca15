//! Stacks that an eBPF program walks when a sample is taken.

use crate::profile_recordings::{build, json, record};
use backtrail_tests::backtrail::{backtrail, command};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Prints its own stack, the innermost function first, and then spends all time there.
const CHAIN: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
static long rounds;
__attribute__((noinline)) void print(void) {
    void *at[64]; int n = backtrace(at, 64);
    for (int i = 1; i < n; i++) { Dl_info d; if (dladdr((char *)at[i] - 1, &d) && d.dli_sname) puts(d.dli_sname); }
    fflush(stdout); }
__attribute__((noinline)) long leaf(long x) {
    if (!x) { print(); return 0; }
    volatile long s = 0; for (long i = 0; i < rounds; i++) s += i * x % 7; return s; }
__attribute__((noinline)) long third(long x) { return leaf(x) + 1; }
__attribute__((noinline)) long second(long x) { char *p = __builtin_alloca(x % 5 * 16 + 16); p[0] = 1; return third(x) + *p; }
__attribute__((noinline)) long first(long x) { return second(x) + 3; }
int main(int c, char **v) {
    long t = c; rounds = atol(v[1]);
    for (long i = 0; i < 300; i++) t += first(i);
    return t == 0; }
";

/// Recurses so deeply that the stack is larger than what the kernel can copy.
const DEEP: &str = "
#include <stdlib.h>
__attribute__((noinline)) long spin(long n) { volatile long s = 0; for (long i = 0; i < n; i++) s += i % 7; return s; }
__attribute__((noinline)) long deep(long n) {
    volatile char pad[1000]; pad[0] = n; long s = n ? deep(n - 1) : spin(2000000); return s + pad[0]; }
int main(int c, char **v) { long t = c; for (int i = 0; i < 500; i++) t += deep(atol(v[1])); return t == 0; }
";

const RUST: &str = "
#[inline(never)] fn leaf(x: u64) -> u64 { let mut s = 0; for i in 0..40_000_000u64 { s = std::hint::black_box(s + i % 7); } s + x }
#[inline(never)] fn middle(x: u64) -> u64 { std::hint::black_box(leaf(x)) + 1 }
fn main() { let work = || (0..40).map(middle).sum::<u64>(); println!(\"{}\", std::thread::spawn(work).join().unwrap()); }
";

const GO: &str = "
package main
//go:noinline
func leaf(x int, p *int) int { s := x; for i := 0; i < 40000000; i++ { s += i % 7; *p = s }; return s }
//go:noinline
func middle(x int) int { var p int; return leaf(x, &p) + p }
func main() { t := 0; for i := 0; i < 40; i++ { t += middle(i) }; println(t) }
";

/// Returns the reason why this machine cannot walk stacks by eBPF, and prints it.
pub(crate) fn no_ebpf() -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let recorded = record(&folder.path().join("recording"), &[], &["true"]);
    let reason = recorded["no_ebpf"].as_str().map(str::to_owned);
    if let Some(reason) = &reason {
        eprintln!("skipped: {reason}");
    }
    reason
}

/// Records a program by one method.
fn record_by(method: &str, output: &Path, program: &[&str]) -> Value {
    let recorded = record(output, &["--freq", "499", "--stacks", method], program);
    assert_eq!(recorded["lost"], 0, "{recorded}");
    recorded
}

/// Returns the stacks of a recording with at least a twentieth of its weight.
fn stacks(output: &Path) -> BTreeSet<String> {
    let run = backtrail([
        "profile",
        "export",
        output.to_str().unwrap(),
        "--format",
        "folded",
    ])
    .unwrap();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let mut weights = BTreeMap::<_, u64>::new();
    for line in run.stdout.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let stack = without_kernel(stack);
        *weights.entry(stack.to_owned()).or_default() += weight.parse::<u64>().unwrap();
    }
    let total: u64 = weights.values().sum();
    let frequent = weights.into_iter().filter(|(_, weight)| weight * 20 > total);
    frequent.map(|(stack, _)| stack).collect()
}

/// Returns the frames of a stack that are not the kernel's, which interrupts and system calls begin
/// by functions in assembly.
fn without_kernel(stack: &str) -> &str {
    let ends = [";asm_", ";entry_SYSCALL"].map(|entry| stack.find(entry));
    let end = ends.into_iter().flatten().min();
    end.and_then(|end| stack.get(..end)).unwrap_or(stack)
}

/// Returns the share of the stacks that the eBPF program walked.
fn walked(recorded: &Value) -> f64 {
    recorded["walked_in_kernel"].as_f64().unwrap() / recorded["stacks"].as_f64().unwrap()
}

/// Returns the share of the stacks that do not reach the start of their thread.
fn incomplete(recorded: &Value) -> f64 {
    recorded["incomplete"].as_f64().unwrap() / recorded["stacks"].as_f64().unwrap()
}

#[test]
fn walked_stacks_are_those_of_backtrace() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    for (name, option) in [
        ("without", "-fomit-frame-pointer"),
        ("with", "-fno-omit-frame-pointer"),
    ] {
        let program = build(&folder, name, CHAIN, &[option, "-rdynamic"]);
        let program = [program.to_str().unwrap(), "3000000"];
        let printed = Command::new(program[0]).arg("1").output().unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        let expected: Vec<_> = printed
            .lines()
            .filter(|name| !name.starts_with("__libc"))
            .collect();
        assert_eq!(expected, ["leaf", "third", "second", "first", "main", "_start"]);
        let recorded = record_by("ebpf", &output, &program);
        assert!(walked(&recorded) > 0.3, "{recorded}");
        assert_eq!(recorded["incomplete"], 0, "{recorded}");
        let found = stacks(&output);
        assert_eq!(found.len(), 1, "{found:?}");
        let found = found.first().unwrap().split(';');
        let found: Vec<_> = found.rev().filter(|name| !name.starts_with("__libc")).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn walked_and_copied_stacks_are_equal() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let mut programs = vec![build(&folder, "chain", CHAIN, &[])];
    programs.extend(compiled(&folder, "rust.rs", RUST, "rustc", &["-O", "-o"]));
    programs.extend(compiled(&folder, "go.go", GO, "go", &["build", "-o"]));
    for program in programs {
        let program = [program.to_str().unwrap(), "3000000"];
        let recorded = record_by("copy", &output, &program);
        assert_eq!(recorded["walked_in_kernel"], 0, "{recorded}");
        let copied = stacks(&output);
        let recorded = record_by("ebpf", &output, &program);
        assert!(walked(&recorded) > 0.3, "{recorded}");
        // The stacks of Go's scheduler have no start.
        let [incomplete, all] = ["incomplete", "stacks"].map(|key| recorded[key].as_f64().unwrap());
        assert!(incomplete < all / 20.0, "{recorded}");
        assert_eq!(stacks(&output), copied, "{}", program[0]);
    }
}

/// Compiles a program, if there is the compiler.
fn compiled(folder: &TempDir, name: &str, source: &str, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    let file = folder.path().join(name);
    fs::write(&file, source).unwrap();
    let path = file.with_extension("out");
    let mut command = Command::new(compiler);
    command
        .args(options)
        .arg(&path)
        .arg(&file)
        .env("GO111MODULE", "off");
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{compiler}");
            Some(path)
        }
        Err(error) => {
            eprintln!("skipped: {compiler}: {error}");
            None
        }
    }
}

#[test]
fn stacks_deeper_than_copies_are_complete() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "deep", DEEP, &["-fomit-frame-pointer"]);
    let program = [program.to_str().unwrap(), "500"];
    let recorded = record_by("copy", &output, &program);
    // A few samples are from before the recursion.
    assert!(incomplete(&recorded) > 0.95, "{recorded}");
    let recorded = record_by("ebpf", &output, &program);
    assert!(walked(&recorded) > 0.3, "{recorded}");
    assert!(incomplete(&recorded) < 1.01 - walked(&recorded), "{recorded}");
    let found = stacks(&output);
    let deepest = found.iter().max_by_key(|stack| stack.len()).unwrap();
    assert_eq!(deepest.matches(";deep").count(), 501, "{deepest}");
    assert!(deepest.starts_with("_start;"), "{deepest}");
}

/// The unwind tables of a program are not used by the program itself.
#[test]
fn damaged_unwind_tables_do_not_stop_a_recording() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "deep", DEEP, &[]);
    let bytes = fs::read(&program).unwrap();
    let table = section(&bytes, ".eh_frame");
    let damages: [&dyn Fn(usize, u8) -> u8; 5] = [
        &|_, _| 0xff,
        &|_, _| 0,
        &|at, byte| if at % 7 == 0 { byte ^ 0x55 } else { byte },
        &|at, byte| if at % 3 == 0 { byte.wrapping_add(1) } else { byte },
        &|at, byte| if at % 11 == 4 { 0x0e } else { byte },
    ];
    let mut all_walked = 0;
    for (number, damage) in damages.iter().enumerate() {
        let mut damaged = bytes.clone();
        for (at, byte) in damaged[table.clone()].iter_mut().enumerate() {
            *byte = damage(at, *byte);
        }
        let path = folder.path().join(format!("damaged{number}"));
        fs::write(&path, damaged).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let recorded = record_by("ebpf", &output, &[path.to_str().unwrap(), "5"]);
        assert!(recorded["samples"].as_u64().unwrap() > 5, "{recorded}");
        // A stack that leads to no code is copied.
        all_walked += recorded["walked_in_kernel"].as_u64().unwrap();
        // The rules are wrong, so that stacks end early. The innermost function is always right.
        let top = json(&["report", output.to_str().unwrap(), "--json", "--min-percent", "0"]);
        assert_eq!(top["functions"][0]["name"], "spin", "{top}");
    }
    assert!(all_walked > 5, "{all_walked}");
}

/// Returns the place of a section in an ELF file.
fn section(bytes: &[u8], name: &str) -> std::ops::Range<usize> {
    use object::{Object as _, ObjectSection as _};
    let file = object::File::parse(bytes).unwrap();
    let (start, size) = file.section_by_name(name).unwrap().file_range().unwrap();
    start as usize..(start + size) as usize
}

/// A kill leaves no time to clean up.
#[test]
fn killed_recorder_leaves_no_program() {
    if no_ebpf().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for delay in [300, 900] {
        let output = folder.path().join(format!("recording{delay}"));
        let mut recorder = command().unwrap();
        recorder
            .args(["profile", "record", "--all", "--stacks", "ebpf", "-o"])
            .arg(&output);
        let mut recorder = recorder.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        let limit = Instant::now() + Duration::from_secs(20);
        let mut maps = BTreeSet::new();
        while maps.len() < 5 && Instant::now() < limit {
            maps = map_ids(recorder.id());
        }
        assert!(maps.len() >= 5, "{maps:?}");
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        // The maps of a program live as long as the program. The kernel frees both a moment later.
        let is_loaded = |id: &u32| aya::maps::loaded_maps().flatten().any(|map| map.id() == *id);
        let limit = Instant::now() + Duration::from_secs(20);
        while maps.iter().any(is_loaded) {
            assert!(Instant::now() < limit, "{maps:?} are left");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns the ids of the maps that a process has open.
fn map_ids(pid: u32) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten()
        .flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let id = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("map_id:"))?;
        line.trim().parse().ok()
    };
    texts.filter_map(id).collect()
}

#[test]
fn recorder_without_ebpf_copies_stacks_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let program = build(&folder, "chain", CHAIN, &[]);
    let backtrail = command().unwrap();
    let mut limited = Command::new("setpriv");
    limited.args(["--bounding-set", "-sys_admin,-bpf,-perfmon", "--inh-caps", "-all"]);
    limited.arg(backtrail.get_program());
    limited.args(["profile", "record", "--json", "--freq", "199", "-o"]);
    limited.arg(&output).arg("--").arg(&program).arg("1000000");
    let run = match limited.output() {
        Ok(run) if run.status.success() => run,
        other => {
            eprintln!("skipped: setpriv, or sampling without capabilities: {other:?}");
            return;
        }
    };
    let text = String::from_utf8(run.stdout).unwrap();
    let recorded: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    assert!(recorded["no_ebpf"].is_string(), "{recorded}");
    assert_eq!(recorded["walked_in_kernel"], 0, "{recorded}");
    assert_eq!(recorded["incomplete"], 0, "{recorded}");
    assert!(recorded["samples"].as_u64().unwrap() > 5, "{recorded}");
}
