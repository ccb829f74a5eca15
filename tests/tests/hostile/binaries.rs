//! Corrupted ELF files and DWARF: every query of the symbolizer.

use crate::harness::fuzz;
use crate::mutate::{self, Random};
use backtrail_pt::Svma;
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A small program with types, inlined copies and blocks.
const SOURCE: &str = r#"
struct node { int value; struct node *next; char name[8]; union { long whole; float part; }; };
enum color { RED, GREEN = 7 };
static struct node list = { 1, &list, "list", { 2 } };
volatile int sink;
static inline int twice(int of) { int more = of + sink; return more * 2; }
static int work(struct node *at, enum color color) {
    int sum = 0;
    for (int round = 0; round < 5; round++) { int part = twice(at->value + color); sum += part; at = at->next; }
    return sum;
}
int main(int count, char **arguments) { (void)arguments; sink = work(&list, count ? RED : GREEN); return sink; }
"#;

/// Compiles [`SOURCE`] with these flags.
fn compiled(folder: &Path, flags: &[&str]) -> Vec<u8> {
    let source = folder.join("source.c");
    let program = folder.join("program");
    fs::write(&source, SOURCE).unwrap();
    let status = Command::new("cc")
        .current_dir(folder)
        .args(flags)
        .args(["-nostartfiles", "-Wl,-e,main", "-o", "program", "source.c"])
        .status()
        .unwrap();
    assert!(status.success());
    fs::read(program).unwrap()
}

fn seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let flags: [&[&str]; 4] = [
        &["-g", "-O0"],
        &["-g", "-O2"],
        &["-gdwarf-4", "-O2", "-gz"],
        &["-g", "-O2", "-fdebug-types-section"],
    ];
    flags.iter().map(|flags| compiled(folder.path(), flags)).collect()
}

/// Makes every query. Returns whether the function `work` or `main` still has a line.
fn ask(bytes: &[u8]) -> bool {
    let Ok(symbols) = SymbolFile::from_bytes(Arc::new(bytes.to_vec()), &DebugSearch::none()) else {
        return false;
    };
    for at in (0x1000..0x1100).step_by(3).map(Svma) {
        let _ = (symbols.function_at(at), symbols.frames_at(at));
        let _ = (symbols.line_at(at), symbols.unwind_row(at));
        let _ = (symbols.scope_at(at, 0), symbols.call_site(at));
        let _ = (symbols.makes_no_tail_calls(at), symbols.data_at(at));
    }
    for name in ["list", "sink", "node", "color", "work", "RED"] {
        let _ = (symbols.globals_named(name, None), symbols.data_named(name));
        if let Some(entry) = symbols.type_named(name, None) {
            let _ = symbols.type_at(entry);
        }
    }
    for function in symbols.functions_named("work") {
        let _ = (symbols.after_prologue(&function), symbols.parts_of(&function));
    }
    let _ = symbols.inlined_copies_named("twice");
    let _ = symbols.addresses_of_line("source.c", 9);
    let _ = symbols.lines_in(Svma(0)..Svma(u64::MAX));
    let _ = (symbols.source_files(), symbols.debug_gap(), symbols.build_id());
    let main = symbols.functions_named("main");
    let line = main.first().and_then(|main| symbols.line_at(main.entry));
    line.is_some_and(|row| row.line != 0)
}

/// Corrupts headers, symbol tables and sections anywhere.
#[test]
fn elf() {
    fuzz("elf", &seeds(), mutate::bytes, ask);
}

/// Corrupts a debug section.
fn debug_sections(random: &mut Random, file: &mut Vec<u8>, others: &[Vec<u8>]) {
    mutate::section(random, file, others, |name| name.starts_with(".debug_"));
}

#[test]
fn dwarf() {
    fuzz("dwarf", &seeds(), debug_sections, ask);
}
