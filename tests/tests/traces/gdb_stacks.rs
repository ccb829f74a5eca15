//! Stacks of samples are GDB's of the program stopped at the same place.

use crate::profile_recordings::record;
use backtrail_tests::backtrail::backtrail;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// All programs touch fresh pages in `touch`, and call `last` from there in the end.
const C: &str = "
#define _GNU_SOURCE
#include <sys/mman.h>
#include <stdlib.h>
#include <pthread.h>
__attribute__((noinline)) void last(char *p) { __asm__ volatile(\"\" :: \"r\"(p) : \"memory\"); }
__attribute__((noinline)) int touch(int n) {
    volatile char buffer[300]; buffer[n] = n;
    char *p = mmap(0, 4096 * 6000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 6000; i++) p[i * 4096] = i;
    last(p); return munmap(p, 4096 * 6000) + buffer[n]; }
static int compare(const void *a, const void *b) { return *(char *)a == 0 ? touch(3) : *(char *)b; }
__attribute__((noinline)) int sorts(void) { char two[2] = {0, 1}; qsort(two, 2, 1, compare); return two[0]; }
__attribute__((noinline)) void *thread(void *x) { return sorts() ? x : 0; }
int main(int c, char **v) { pthread_t t; (void)v; pthread_create(&t, 0, thread, &c); pthread_join(t, 0); return 0; }
";

const CPP: &str = "
#include <sys/mman.h>
#include <cstdio>
#include <functional>
extern \"C\" __attribute__((noinline)) void last(char *p) { __asm__ volatile(\"\" :: \"r\"(p) : \"memory\"); }
extern \"C\" __attribute__((noinline)) int touch(int n) {
    char *p = (char *)mmap(0, 4096 * 6000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 6000; i++) p[i * 4096] = i;
    last(p); return munmap(p, 4096 * 6000) + n; }
struct Shape { virtual int area(int n) = 0; virtual ~Shape() {} };
struct Square : Shape { __attribute__((noinline)) int area(int n) override { return touch(n) + 1; } };
template <typename T> __attribute__((noinline)) int measure(T &shape, int n) { return shape.area(n) + 2; }
struct Guard { int *n; __attribute__((noinline)) ~Guard() { Square s; *n += measure<Shape>(s, 4); } };
__attribute__((noinline)) int unwinds(int n) { int sum = 0; try { Guard g{&sum}; if (n) throw n; } catch (int e) { sum += e; } return sum; }
int main(int c, char **) { return unwinds(c) == 0; }
";

const RUST: &str = r#"
extern "C" { fn mmap(a: *mut u8, n: usize, p: i32, f: i32, d: i32, o: i64) -> *mut u8; }
#[inline(never)] #[no_mangle] pub fn last(p: *mut u8) { std::hint::black_box(p); }
#[inline(never)] #[no_mangle] pub fn touch(n: u64) -> u64 {
    // SAFETY: an anonymous mapping.
    let p = unsafe { mmap(std::ptr::null_mut(), 4096 * 6000, 3, 0x22, -1, 0) };
    // SAFETY: the mapping has 6000 pages.
    for i in 0..6000 { unsafe { p.add(i * 4096).write_volatile(i as u8) } }
    last(p); n }
trait Shape { fn area(&self, n: u64) -> u64; }
struct Square;
impl Shape for Square { #[inline(never)] fn area(&self, n: u64) -> u64 { touch(n) + 1 } }
#[inline(never)] fn measure(shape: &dyn Shape, n: u64) -> u64 { std::hint::black_box(shape.area(n)) + 2 }
fn main() { println!("{}", measure(std::hint::black_box(&Square), 4)); }
"#;

const GO: &str = "
package main
import \"syscall\"
//go:noinline
func last(p []byte) byte { return p[0] }
//go:noinline
func touch(n int) int {
    p, _ := syscall.Mmap(-1, 0, 4096 * 6000, 3, 0x22)
    for i := 0; i < 6000; i++ { p[i * 4096] = byte(i) }
    return int(last(p)) + n }
type shape interface { area(n int) int }
type square struct{ side int }
//go:noinline
func (s *square) area(n int) int { return touch(n) + s.side }
//go:noinline
func measure(s shape, n int) int { return s.area(n) + 2 }
func main() { println(measure(&square{3}, 4)) }
";

/// Prints the functions of all frames. GDB infers frames of tail calls, which are on no stack.
const FRAMES: &str = "python
frame = gdb.newest_frame()
while frame:
    if frame.type() != gdb.TAILCALL_FRAME: print('#' + str(frame.name()))
    frame = frame.older()
end
";

/// Returns the functions of the stack where `last` is called, without it, the innermost first.
fn by_gdb(program: &Path, folder: &Path) -> Vec<String> {
    let file = folder.join("frames.gdb");
    fs::write(&file, FRAMES).unwrap();
    let mut gdb = Command::new("gdb");
    // In Go the function is `main.last`.
    let at = match program.ends_with("go.out") {
        true => "break main.last",
        false => "break last",
    };
    for command in ["set confirm off", "set debuginfod enabled off", at, "run"] {
        gdb.args(["-ex", command]);
    }
    gdb.args(["-nx", "-batch", "-x"]).arg(&file);
    let output = gdb.arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_prefix('#'));
    let names: Vec<_> = names.map(normalized).collect();
    let last = names.iter().rposition(|name| name == "last");
    let last = last.unwrap_or_else(|| panic!("{text} {}", String::from_utf8_lossy(&output.stderr)));
    up_to_main(names[last + 1..].to_vec())
}

/// Removes what the two tools write in different ways: arguments, types and packages.
fn normalized(name: &str) -> String {
    let path = match name.starts_with('<') {
        true => name.rsplit("::").next(),
        false => name.split(['(', '<']).next(),
    };
    let name = path.unwrap().rsplit("::").next().unwrap();
    let name = name
        .rsplit('.')
        .next()
        .filter(|name| *name != "abi0")
        .unwrap_or(name);
    name.to_owned()
}

/// Returns a stack up to `main`, below which the tools name closures in different ways.
fn up_to_main(mut names: Vec<String>) -> Vec<String> {
    let main = names.iter().position(|name| name == "main");
    names.truncate(main.map_or(names.len(), |main| main + 1));
    names
}

/// Returns the most frequent stack of page faults in `touch`, the innermost first.
fn by_samples(program: &Path, method: &str, recording: &Path) -> Vec<String> {
    let options = ["--event", "page-faults", "--freq", "4999", "--stacks", method];
    record(recording, &options, &[program.to_str().unwrap()]);
    let run = backtrail([
        "profile",
        "export",
        recording.to_str().unwrap(),
        "--format",
        "folded",
    ])
    .unwrap();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let mut weights = BTreeMap::<Vec<String>, u64>::new();
    for line in run.stdout.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let names: Vec<_> = stack.rsplit(';').map(normalized).collect();
        if let Some(touch) = names.iter().position(|name| name == "touch") {
            *weights.entry(up_to_main(names[touch..].to_vec())).or_default() +=
                weight.parse::<u64>().unwrap();
        }
    }
    let most = weights.iter().max_by_key(|(_, weight)| **weight);
    most.unwrap_or_else(|| panic!("{}", run.stdout)).0.clone()
}

fn compile(folder: &TempDir, name: &str, source: &str, compiler: &[&str]) -> Option<PathBuf> {
    let file = folder.path().join(name);
    fs::write(&file, source).unwrap();
    let path = file.with_extension("out");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg("-o").arg(&path).arg(&file);
    match command.env("GO111MODULE", "off").output() {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            Some(path)
        }
        Err(error) => {
            eprintln!("skipped: {}: {error}", compiler[0]);
            None
        }
    }
}

#[test]
fn stacks_are_gdbs_at_the_same_place() {
    let folder = tempfile::tempdir().unwrap();
    let without = "-fomit-frame-pointer";
    let with = "-fno-omit-frame-pointer";
    let rust = ["rustc", "-O", "-g", "--edition=2021"];
    let programs = [
        compile(
            &folder,
            "c-without.c",
            C,
            &["cc", "-O2", "-g", "-pthread", without],
        ),
        compile(&folder, "c-with.c", C, &["cc", "-O2", "-g", "-pthread", with]),
        compile(&folder, "cpp-without.cpp", CPP, &["c++", "-O2", "-g", without]),
        compile(&folder, "cpp-with.cpp", CPP, &["c++", "-O0", "-g", with]),
        compile(&folder, "rust-without.rs", RUST, &rust),
        compile(
            &folder,
            "rust-with.rs",
            RUST,
            &[&rust[..], &["-Cforce-frame-pointers"]].concat(),
        ),
        compile(&folder, "go.go", GO, &["go", "build"]),
    ];
    for program in programs.into_iter().flatten() {
        let expected = by_gdb(&program, folder.path());
        assert!(expected.len() >= 4, "{expected:?}");
        for method in ["copy", "auto"] {
            let found = by_samples(&program, method, &folder.path().join("recording"));
            assert_eq!(found, expected, "{} {method}", program.display());
        }
    }
}
