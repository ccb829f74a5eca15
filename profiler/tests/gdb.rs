//! Compares the unwinder with GDB, on the core of a stopped process.
#![cfg(test)]

use backtrail_profiler::unwind::{CodeAt, Registers, StackBytes, StackEnd, unwind};
use backtrail_profiler::unwind_table::UnwindTable;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A callback of the C library, a stack that is aligned, a variable frame, and a signal handler.
const SOURCE: &str = r#"
#include <alloca.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void leaf(volatile int *p) { *p += 1; __asm__ volatile("" ::: "memory"); }
static volatile int count;
void handler(int s) { (void)s; leaf(&count); count += 2; }
__attribute__((noinline)) int aligned(int n) {
    _Alignas(64) volatile char room[64]; room[n % 64] = 1;
    raise(SIGUSR1);
    return room[n % 64] + n;
}
__attribute__((noinline)) int variable(int n) {
    volatile char *room = alloca(n); room[n / 2] = 1;
    return aligned(n) + room[n / 2];
}
int compare(const void *a, const void *b) {
    if (!count) count = variable(100 + *(const int *)a);
    return *(const int *)a - *(const int *)b;
}
int main(void) {
    int numbers[2] = {2, 1};
    signal(SIGUSR1, handler);
    qsort(numbers, 2, sizeof *numbers, compare);
    return count == 0;
}
"#;

const SCRIPT: &[&str] = &[
    "set pagination off",
    // With debug information, GDB adds frames of inlined functions and of tail calls.
    "set debug-file-directory /nonexistent",
    "handle SIGUSR1 nostop noprint pass",
    "break leaf",
    "run",
    "info proc mappings",
    "print/x $rbp",
    "print/x $rsp",
    "frame apply all -q print/x $pc",
];

/// The path, first address, end and offset of a mapping.
type Mapping = (String, u64, u64, u64);

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn mapping(line: &str) -> Option<Mapping> {
    let words: Vec<_> = line.split_whitespace().collect();
    let numbers: Vec<u64> = words.iter().map_while(|word| hex(word)).collect();
    let [start, end, _, offset] = *numbers else {
        return None;
    };
    let path = words.last().filter(|path| path.starts_with('/'))?;
    Some(((*path).to_owned(), start, end, offset))
}

/// Returns GDB's output for a program that stops in `leaf`, and writes a core.
fn run_gdb(program: &Path, core: &Path) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    for command in SCRIPT {
        gdb.args(["-ex", command]);
    }
    gdb.arg("-ex")
        .arg(format!("generate-core-file {}", core.display()));
    gdb.args(["-ex", "kill"]).arg(program);
    let output = gdb.env("DEBUGINFOD_URLS", "").output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn compare(options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let [source, program, core] = ["a.c", "a", "core"].map(|name| folder.path().join(name));
    fs::write(&source, SOURCE).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(options).arg("-o").arg(&program).arg(&source);
    assert!(compiler.status().unwrap().success());
    let text = run_gdb(&program, &core);
    let mappings: Vec<Mapping> = text.lines().filter_map(mapping).collect();
    let values: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with('$'))
        .filter_map(|line| hex(line.split(" = ").nth(1)?))
        .collect();
    let [bp, sp, by_gdb @ ..] = &*values else {
        panic!("GDB printed no registers: {text}")
    };
    let core = fs::read(&core).unwrap();
    let core = ElfFile64::<Endianness, _>::parse(&*core).unwrap();
    let stack = core.segments().find_map(|segment| {
        let from = usize::try_from(sp.checked_sub(segment.address())?).ok()?;
        segment.data().ok()?.get(from..)
    });
    let mut tables: HashMap<String, Option<UnwindTable>> = HashMap::new();
    let code_at = |address: u64| {
        let mut mappings = mappings.iter();
        let Some((path, start, _, offset)) =
            mappings.find(|(_, start, end, _)| (*start..*end).contains(&address))
        else {
            return CodeAt::Unmapped;
        };
        let table = tables.entry(path.clone());
        let table = table.or_insert_with(|| UnwindTable::of_elf(&*fs::read(path).ok()?));
        table.as_ref().map_or(CodeAt::NoTable, |table| {
            CodeAt::Rule(table.rule(address - start + offset))
        })
    };
    let registers = Registers {
        pc: by_gdb[0],
        sp: *sp,
        bp: *bp,
    };
    let stack = StackBytes {
        start: *sp,
        bytes: stack.unwrap(),
    };
    let mut addresses = Vec::new();
    let end = unwind(registers, stack, code_at, &mut addresses);
    let ours: Vec<u64> = addresses.iter().map(|address| address.pc).collect();
    // GDB ends at `main`, if it knows it.
    let common = by_gdb.len();
    assert!(common >= 8, "{text}");
    assert_eq!(ours.get(..common), Some(by_gdb), "{options:?}: {text}");
    assert_eq!(end, StackEnd::Complete);
}

#[test]
fn stacks_equal_those_of_gdb() {
    if Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("skipped: gdb is not installed");
        return;
    }
    compare(&["-O2", "-fomit-frame-pointer"]);
    compare(&["-O2", "-fno-omit-frame-pointer"]);
    compare(&["-O0", "-static"]);
}
