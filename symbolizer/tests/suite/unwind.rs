//! Compares rows of call frame information with `readelf`'s output.

use crate::support::{Built, C, CPP, build, have, run};
use backtrail_pt::Svma;
use backtrail_symbolizer::{CfaRule, DebugSearch, RegisterRule, SymbolFile, UnwindRow};

const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "ra",
];

/// Formats the CFA rule as `readelf` does: `rsp+8`.
fn cfa(row: &UnwindRow) -> String {
    match &row.cfa {
        CfaRule::Register { register, offset } => format!("{}{offset:+}", NAMES[usize::from(*register)]),
        CfaRule::Expression(_) => "exp".to_owned(),
    }
}

/// Formats a register rule as `readelf` does: `c-16`.
fn rule(row: &UnwindRow, name: &str) -> String {
    let number = NAMES.iter().position(|known| *known == name).unwrap();
    match row.rule(number as u16) {
        None | Some(RegisterRule::Undefined) => "u".to_owned(),
        Some(RegisterRule::SameValue) => "s".to_owned(),
        Some(RegisterRule::Offset(offset)) => format!("c{offset:+}"),
        Some(RegisterRule::ValOffset(offset)) => format!("v{offset:+}"),
        Some(RegisterRule::Register(register)) => format!("r{register}"),
        Some(RegisterRule::Expression(_)) => "exp".to_owned(),
        Some(RegisterRule::ValExpression(_)) => "vexp".to_owned(),
    }
}

/// Compares every row that `readelf` prints for `file`. Returns their number.
fn compare(symbols: &SymbolFile, built: &Built, file: &str) -> usize {
    let output = run(built, "sh", &["-c", &format!("readelf -wF {file} 2>/dev/null")]);
    let mut columns: Vec<&str> = Vec::new();
    let (mut rows, mut covers_code) = (0, false);
    for line in output.lines() {
        // A register that holds the value of another is printed with both names: `r1 (rdx)`.
        let words: Vec<&str> = line
            .split_whitespace()
            .filter(|word| !word.starts_with('('))
            .collect();
        match *words {
            ["LOC", "CFA", ref registers @ ..] if covers_code => columns = registers.to_vec(),
            [at, theirs, ref rules @ ..] if at.len() == 16 && !columns.is_empty() => {
                let at = u64::from_str_radix(at, 16).unwrap();
                let row = symbols.unwind_row(Svma(at));
                let row = row.unwrap_or_else(|| panic!("no row at {at:#x} of {file}: {line}"));
                assert_eq!(cfa(&row), theirs, "{at:#x} of {file}");
                for (name, theirs) in columns.iter().zip(rules) {
                    assert_eq!(rule(&row, name), *theirs, "{name} at {at:#x} of {file}");
                }
                assert_eq!(row.return_address, 16);
                rows += 1;
            }
            _ => columns.clear(),
        }
        if line.contains("FDE") || line.contains("CIE") {
            covers_code = line.contains("FDE");
        }
    }
    rows
}

#[test]
fn rows_of_eh_frame() {
    if !have("readelf") {
        return;
    }
    for (compiler, extension, source, arguments) in [
        ("cc", "c", C, &["-g", "-O2", "-fomit-frame-pointer"][..]),
        ("cc", "c", C, &["-g", "-O0", "-static"]),
        ("cc", "c", C, &["-g", "-O2", "-Wl,--no-eh-frame-hdr"]),
        ("c++", "cc", CPP, &["-g", "-O2"]),
    ] {
        let Some(built) = build(compiler, extension, source, arguments) else {
            return;
        };
        let rows = compare(&built.open(), &built, "program");
        assert!(rows >= 8, "{arguments:?}: {rows} rows");
    }
}

#[test]
fn rows_of_debug_frame_in_the_file_and_beside_it() {
    if !have("readelf") || !have("objcopy") {
        return;
    }
    let no_tables = [
        "-g",
        "-O2",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let Some(built) = build("cc", "c", C, &no_tables) else {
        return;
    };
    let symbols = built.open();
    assert!(compare(&symbols, &built, "program") >= 5);
    let work = symbols.functions_named("work")[0].entry;
    let row = symbols.unwind_row(work).unwrap();
    assert_eq!(cfa(&row), "rsp+8");
    // The file is still mapped, and is about to be replaced.
    drop(symbols);
    let split = "objcopy --only-keep-debug program program.debug && strip program \
                 && objcopy --add-gnu-debuglink=program.debug program";
    run(&built, "sh", &["-c", split]);
    let apart = built.open();
    assert_eq!(apart.unwind_row(work), Some(row));
    let without = SymbolFile::from_bytes(
        std::sync::Arc::new(std::fs::read(&built.program).unwrap()),
        &DebugSearch::none(),
    );
    assert_eq!(without.unwrap().unwind_row(work), None);
}

#[test]
fn outermost_function_and_signal_frames_are_marked() {
    let Some(built) = build("cc", "c", C, &["-g", "-O2", "-static"]) else {
        return;
    };
    let symbols = built.open();
    let start = symbols.functions_named("_start")[0].entry;
    let row = symbols.unwind_row(start).unwrap();
    assert_eq!(row.rule(row.return_address), Some(&RegisterRule::Undefined));
    assert!(!row.signal_frame);
    assert_eq!(symbols.unwind_row(Svma(1)), None);
    assert_eq!(symbols.unwind_row(Svma(u64::MAX)), None);
    if let [restorer, ..] = &symbols.functions_named("__restore_rt")[..] {
        let row = symbols.unwind_row(Svma(restorer.entry.0 - 1)).unwrap();
        assert!(row.signal_frame && matches!(row.cfa, CfaRule::Expression(_)));
    }
}
