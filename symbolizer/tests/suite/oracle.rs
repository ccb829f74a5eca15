//! Compares every instruction of small programs, in varied builds, with binutils' `addr2line -f
//! -i`.

use crate::support::{
    Built, C, CPP, DecodedRow, OracleFrame, RUST, addr2line, build, decoded_rows, have, instructions,
    sized_symbols,
};
use backtrail_pt::Svma;
use backtrail_symbolizer::SymbolFile;
use std::path::Path;

/// Converts our frames to those of the oracle.
fn frames(symbols: &SymbolFile, at: Svma) -> Vec<OracleFrame> {
    let frames = symbols.frames_at(at).into_iter();
    frames
        .map(|frame| {
            let at = frame.location.filter(|at| at.line != 0);
            let (file, line) = at.map_or((String::from("??"), 0), |at| (at.file.to_string(), at.line));
            (frame.linkage_name.to_string(), file, line)
        })
        .collect()
}

/// Returns whether the difference is due to several rows at one address. binutils shows the last
/// one. GDB and this crate show one that starts a statement before a last one that does not.
fn is_statement_rule(rows: &[DecodedRow], at: u64, ours: &[OracleFrame], expected: &[OracleFrame]) -> bool {
    let (Some((our_inner, our_outer)), Some((their_inner, their_outer))) =
        (ours.split_first(), expected.split_first())
    else {
        return false;
    };
    let here: Vec<_> = rows
        .iter()
        .filter(|row| row.address == at && row.line != 0)
        .collect();
    our_outer == their_outer
        && our_inner.0 == their_inner.0
        && here.iter().any(|row| row.line == our_inner.2 && row.is_stmt)
        && here
            .last()
            .is_some_and(|row| row.line == their_inner.2 && !row.is_stmt)
}

/// Returns whether binutils repeated the symbol of the physical function in place of the copy's
/// name. It does so at the first address of some inlined copies without linkage name.
fn is_repeated_symbol(ours: &[OracleFrame], expected: &[OracleFrame]) -> bool {
    let places = |frames: &[OracleFrame]| -> Vec<_> {
        frames
            .iter()
            .map(|(_, file, line)| (file.clone(), *line))
            .collect()
    };
    let function = expected.last().map(|frame| &frame.0);
    places(ours) == places(expected)
        && ours
            .iter()
            .zip(expected)
            .all(|(ours, theirs)| ours.0 == theirs.0 || Some(&theirs.0) == function)
}

fn compare(symbols: &SymbolFile, program: &Path, addresses: &[Svma]) {
    let oracle = addr2line(program, addresses);
    let rows = decoded_rows(program);
    let sized = sized_symbols(program);
    let mut wrong = 0;
    for (at, mut expected) in addresses.iter().zip(oracle) {
        let ours = frames(symbols, *at);
        for frame in &mut expected {
            // Without a line, binutils reports the name of the object file's STT_FILE symbol.
            if frame.2 == 0 {
                frame.1 = "??".into();
            }
        }
        // Padding after a function: binutils ignores the sizes of symbols.
        let padding = ours.is_empty() && !sized.iter().any(|symbol| symbol.contains(&at.0));
        let start = symbols.line_at(*at).map_or(0, |row| row.range.start.0);
        if ours != expected
            && !padding
            && !is_statement_rule(&rows, start, &ours, &expected)
            && !is_repeated_symbol(&ours, &expected)
        {
            wrong += 1;
            if wrong <= 10 {
                println!("{at}:\n  ours     {ours:?}\n  expected {expected:?}");
            }
        }
    }
    assert_eq!(wrong, 0, "of {} addresses", addresses.len());
}

fn check(built: Option<Built>) {
    let Some(built) = built.filter(|_| have("addr2line") && have("objdump")) else {
        return;
    };
    let addresses = instructions(&built.program);
    assert!(addresses.len() > 50);
    compare(&built.open(), &built.program, &addresses);
}

#[test]
fn c_without_optimization() {
    check(build("cc", "c", C, &["-g", "-O0"]));
}

#[test]
fn c_with_inlines() {
    check(build("cc", "c", C, &["-g", "-O2"]));
}

#[test]
fn c_at_a_fixed_address() {
    check(build("cc", "c", C, &["-g", "-O2", "-no-pie"]));
}

#[test]
fn c_in_dwarf_4() {
    check(build(
        "cc",
        "c",
        C,
        &["-gdwarf-4", "-O2", "-ffunction-sections", "-Wl,--gc-sections"],
    ));
}

#[test]
fn c_in_dwarf_2() {
    check(build("cc", "c", C, &["-gdwarf-2", "-gstrict-dwarf", "-O2"]));
}

#[test]
fn c_with_compressed_sections() {
    check(build("cc", "c", C, &["-g", "-O2", "-gz=zlib"]));
}

#[test]
fn c_plus_plus() {
    check(build("c++", "cc", CPP, &["-g", "-O0"]));
    check(build("c++", "cc", CPP, &["-g", "-O2"]));
}

#[test]
fn rust() {
    check(build("rustc", "rs", RUST, &["-g", "-O"]));
}
