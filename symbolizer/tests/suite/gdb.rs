//! Compares breakpoint addresses with GDB's.

use crate::support::{Built, C, CPP, RUST, build, have, run};
use backtrail_pt::Svma;
use backtrail_symbolizer::SymbolFile;
use std::collections::BTreeSet;

/// Returns GDB's breakpoint addresses for each location.
fn gdb(built: &Built, locations: &[String]) -> Vec<BTreeSet<Svma>> {
    let mut script = String::from("set debuginfod enabled off\nset breakpoint pending off\nfile program\n");
    for location in locations {
        script += &format!("echo @\\n\nbreak {location}\ninfo breakpoints\ndelete\n");
    }
    std::fs::write(built.path("script"), script).unwrap();
    // Commands come from standard input, because an error would end a script.
    let output = run(built, "sh", &["-c", "gdb -nx -q < script 2>&1"]);
    let answers = output.split("@\n").skip(1);
    let answers: Vec<BTreeSet<Svma>> = answers
        .map(|answer| {
            let rows = answer
                .lines()
                .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
            rows.filter_map(|line| line.split_whitespace().find_map(|word| word.strip_prefix("0x")))
                .filter_map(|digits| u64::from_str_radix(digits, 16).ok())
                .map(Svma)
                .collect()
        })
        .collect();
    assert_eq!(answers.len(), locations.len(), "{output}");
    answers
}

fn by_name(symbols: &SymbolFile, name: &str) -> BTreeSet<Svma> {
    let functions = symbols.functions_named(name);
    let mut places: BTreeSet<_> = functions
        .iter()
        .map(|function| symbols.after_prologue(function))
        .collect();
    places.extend(symbols.inlined_copies_named(name).iter().map(|copy| copy.entry));
    places
}

fn by_line(symbols: &SymbolFile, file: &str, line: u32) -> BTreeSet<Svma> {
    let found = symbols.addresses_of_line(file, line).into_iter();
    let place = |found: backtrail_symbolizer::LineMatch| match &found.function {
        Some(function) if function.entry == found.address => symbols.after_prologue(function),
        _ => found.address,
    };
    found.map(place).collect()
}

fn compare_names(built: &Built, names: &[&str]) {
    let symbols = built.open();
    let theirs = gdb(
        built,
        &names.iter().map(|name| name.to_string()).collect::<Vec<_>>(),
    );
    for (name, theirs) in names.iter().zip(theirs) {
        assert!(!theirs.is_empty(), "{name}");
        assert_eq!(by_name(&symbols, name), theirs, "{name}");
    }
}

#[test]
fn functions_of_c() {
    for optimization in ["-O0", "-O2"] {
        let Some(built) = build("cc", "c", C, &["-g", optimization]).filter(|_| have("gdb")) else {
            return;
        };
        compare_names(&built, &["main", "work", "alias_of_work"]);
    }
}

#[test]
fn lines_of_c() {
    for optimization in ["-O0", "-O2"] {
        let Some(built) = build("cc", "c", C, &["-g", optimization]).filter(|_| have("gdb")) else {
            return;
        };
        let symbols = built.open();
        let lines: Vec<u32> = (1..=C.lines().count() as u32).collect();
        let theirs = gdb(
            &built,
            &lines
                .iter()
                .map(|line| format!("source.c:{line}"))
                .collect::<Vec<_>>(),
        );
        for (line, theirs) in lines.into_iter().zip(theirs) {
            let ours = by_line(&symbols, "source.c", line);
            // GDB has one address for each lexical block; we have one for each function and inlined
            // copy.
            assert!(
                ours.is_subset(&theirs),
                "line {line} {optimization}: {ours:?} {theirs:?}"
            );
            assert_eq!(
                ours.is_empty(),
                theirs.is_empty(),
                "line {line} {optimization}: {theirs:?}"
            );
            if optimization == "-O0" {
                assert_eq!(ours, theirs, "line {line}");
            }
        }
    }
}

#[test]
fn functions_of_c_plus_plus() {
    let Some(built) = build("c++", "cc", CPP, &["-g"]).filter(|_| have("gdb")) else {
        return;
    };
    let methods = ["get", "Box<long>::get", "ns::Box<long>::get"];
    let functions = [
        "main",
        "f",
        "ns::f",
        "ns::f(int)",
        "ns::f(double)",
        "ns::hidden",
        "anonymous",
    ];
    compare_names(&built, &[&methods[..], &functions[..]].concat());
}

#[test]
fn functions_of_rust() {
    let Some(built) = build("rustc", "rs", RUST, &["-g"]).filter(|_| have("gdb")) else {
        return;
    };
    compare_names(&built, &["source::main", "source::pick"]);
}
