//! Kinds of builds: static, fixed address, stripped, with separate debug files, with linkage stubs.

use crate::support::{Built, C, CPP, build, have, run};
use backtrail_pt::{Avma, Svma};
use backtrail_symbolizer::{DebugSearch, FunctionKind, SymbolDetail, SymbolFile, Symbolizer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the first line of `work` in `symbols`.
fn line_of_work(symbols: &SymbolFile) -> Option<u32> {
    let work = symbols.functions_named("work");
    symbols
        .line_at(symbols.after_prologue(work.first()?))
        .map(|row| row.line)
}

/// Moves the debug sections to `debug`, and links to them if `link`.
fn split(built: &Built, debug: &str, link: bool) {
    run(built, "objcopy", &["--only-keep-debug", "program", debug]);
    run(built, "strip", &["program"]);
    if link {
        run(
            built,
            "objcopy",
            &[&format!("--add-gnu-debuglink={debug}"), "program"],
        );
    }
}

#[test]
fn each_kind_of_linking_is_supported() {
    for arguments in [
        &["-no-pie"][..],
        &["-pie"],
        &["-static"],
        &["-static-pie"],
        &["-pie", "-Wl,-z,now"],
    ] {
        let arguments = [&["-g", "-O0"], arguments].concat();
        let Some(built) = build("cc", "c", C, &arguments) else {
            return;
        };
        let symbols = built.open();
        assert_eq!(line_of_work(&symbols), Some(25), "{arguments:?}");
        assert_eq!(symbols.debug_gap(), None);
        let start = symbols.functions_named("_start");
        assert_eq!(start.len(), 1, "{arguments:?}");
        let init = symbols.functions_named("_init");
        assert_eq!(init.len(), 1, "{arguments:?}");
        assert!(
            !init[0].range.is_empty(),
            "a symbol without size goes on to the next or the section's end"
        );
    }
}

/// Adds the functions of the program to itself, packed, and strips it.
fn pack_symbols(built: &Built) {
    run(built, "objcopy", &["--only-keep-debug", "program", "debug"]);
    let keep = ["leaf", "work", "main"].map(|name| format!("--keep-symbol={name}"));
    let keep: Vec<&str> = keep.iter().map(String::as_str).collect();
    run(built, "objcopy", &[&["-S"], &*keep, &["debug", "mini"]].concat());
    run(built, "xz", &["--check=crc32", "mini"]);
    run(built, "strip", &["program"]);
    let section = ["--add-section", ".gnu_debugdata=mini.xz", "program"];
    run(built, "objcopy", &section);
}

#[test]
fn stripped_program_has_the_functions_that_it_packs() {
    let Some(built) = build("cc", "c", C, &["-g", "-O0"]).filter(|_| have("xz")) else {
        return;
    };
    let symbols = built.open();
    let places = ["leaf", "work", "main"].map(|name| {
        let found = symbols.functions_named(name);
        (name, found[0].range.clone())
    });
    drop(symbols);
    pack_symbols(&built);
    let symbols = built.open();
    assert_eq!(symbols.detail(), SymbolDetail::SymbolTable);
    assert_eq!(symbols.debug_gap().as_deref(), Some("the file has no DWARF"));
    for (name, range) in places {
        let function = symbols.function_at(range.start).unwrap();
        assert_eq!((&*function.name, function.range), (name, range));
    }
    // A damaged section is not used, and of a large one, only a part is unpacked.
    let zeros = vec![0; 300 << 20];
    std::fs::write(built.path("mini.xz"), &zeros[..100]).unwrap();
    let update = ["--update-section", ".gnu_debugdata=mini.xz", "program"];
    run(&built, "objcopy", &update);
    assert_eq!(built.open().detail(), SymbolDetail::None);
    std::fs::write(built.path("large"), zeros).unwrap();
    run(&built, "xz", &["large"]);
    let update = ["--update-section", ".gnu_debugdata=large.xz", "program"];
    run(&built, "objcopy", &update);
    assert_eq!(built.open().detail(), SymbolDetail::None);
}

#[test]
fn plt_stubs_are_named_as_in_objdump() {
    for arguments in [
        &["-pie"][..],
        &["-no-pie"],
        &["-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-Wl,-z,now"],
    ] {
        let Some(built) = build("cc", "c", C, &[&["-g"], arguments].concat()).filter(|_| have("objdump"))
        else {
            return;
        };
        let symbols = built.open();
        let listing = run(&built, "objdump", &["-d", "program"]);
        let mut stubs = 0;
        for line in listing.lines() {
            // "0000000000001030 <puts@plt>:"
            let Some((digits, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) else {
                continue;
            };
            if !name.ends_with("@plt") {
                continue;
            }
            let at = Svma(u64::from_str_radix(digits, 16).unwrap());
            let function = symbols.function_at(at).unwrap();
            assert_eq!(
                (&*function.name, function.kind, function.entry),
                (name, FunctionKind::Plt, at),
                "{arguments:?}"
            );
            assert!(symbols.functions_named(name).contains(&function));
            stubs += 1;
        }
        assert!(stubs >= 3, "{arguments:?}: {listing}");
    }
}

#[test]
fn resolvers_of_static_programs_and_their_stubs_are_named() {
    let Some(built) = build("cc", "c", C, &["-g", "-static"]) else {
        return;
    };
    let symbols = built.open();
    let strlen = symbols.functions_named("strlen");
    assert!(
        strlen
            .iter()
            .any(|function| function.kind == FunctionKind::IfuncResolver),
        "{strlen:?}"
    );
    let stubs = symbols.functions_matching(&regex::Regex::new("@plt$").unwrap());
    assert!(
        stubs.iter().any(|stub| stub.kind == FunctionKind::Plt),
        "{stubs:?}"
    );
}

#[test]
fn every_function_that_nm_lists_is_found() {
    for (compiler, extension, source) in [("cc", "c", C), ("c++", "cc", CPP)] {
        let Some(built) =
            build(compiler, extension, source, &["-g", "-O2", "-static"]).filter(|_| have("nm"))
        else {
            return;
        };
        let symbols = built.open();
        let mut by_start: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
        for line in run(&built, "nm", &["-S", "--defined-only", "program"]).lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            // The base of the SystemTap notes is in data.
            if let [start, size, "t" | "T" | "w" | "W" | "i", name] = words[..]
                && name != "_.stapsdt.base"
            {
                let number = |digits| u64::from_str_radix(digits, 16).unwrap();
                by_start
                    .entry(number(start))
                    .or_default()
                    .push((number(size), name.to_owned()));
            }
        }
        assert!(by_start.len() > 500);
        for (start, aliases) in by_start {
            let function = symbols
                .function_at(Svma(start))
                .unwrap_or_else(|| panic!("{start:#x} {aliases:?}"));
            let (size, _) = aliases.iter().max().unwrap();
            let cold = aliases.iter().any(|(_, name)| name.contains(".cold"));
            assert!(cold || function.entry == Svma(start), "{function:?} {aliases:?}");
            if *size > 0 {
                assert!(function.range.end >= Svma(start + 1), "{function:?}");
                let known = |(_, name): &(u64, String)| {
                    *name == *function.linkage_name || name.contains(&*function.linkage_name)
                };
                assert!(aliases.iter().any(known), "{function:?} {aliases:?}");
            }
            for (_, alias) in aliases.iter().filter(|_| !cold) {
                let found = symbols.functions_named(alias);
                assert!(
                    found.iter().any(|found| found.entry == Svma(start)),
                    "{alias} {found:?}"
                );
            }
        }
    }
}

#[test]
fn cold_part_belongs_to_its_function() {
    let Some(built) = build("c++", "cc", CPP, &["-g", "-O2"]) else {
        return;
    };
    let listing = run(&built, "nm", &["program"]);
    let Some(line) = listing.lines().find(|line| line.ends_with(" main.cold")) else {
        println!("skipped: this compiler splits nothing");
        return;
    };
    let cold = Svma(u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap());
    let bytes = Arc::new(std::fs::read(&built.program).unwrap());
    let with_dwarf = SymbolFile::from_bytes(bytes, &DebugSearch::none()).unwrap();
    run(&built, "strip", &["-g", "program"]);
    for symbols in [with_dwarf, built.open()] {
        let function = symbols.function_at(cold).unwrap();
        assert_eq!(&*function.name, "main");
        assert!(function.range.contains(&cold) && !function.range.contains(&function.entry));
        let main = symbols.functions_named("main");
        assert_eq!(main.len(), 1, "{main:?}");
        assert_eq!(main[0].entry, function.entry);
        assert!(main[0].range.contains(&function.entry));
        let parts = symbols.parts_of(&function);
        assert_eq!(parts, [main[0].range.clone(), function.range.clone()]);
    }
}

#[test]
fn debug_files_are_found_beside_the_program() {
    for (directory, debug) in [(".", "program.debug"), (".debug", ".debug/program.debug")] {
        let Some(built) = build("cc", "c", C, &["-g", "-Wl,--build-id=none"]).filter(|_| have("objcopy"))
        else {
            return;
        };
        std::fs::create_dir_all(built.path(directory)).unwrap();
        split(&built, debug, true);
        assert_eq!(line_of_work(&built.open()), Some(25), "{debug}");

        let elsewhere = SymbolFile::from_bytes(
            Arc::new(std::fs::read(&built.program).unwrap()),
            &DebugSearch::none(),
        )
        .unwrap();
        assert_eq!(line_of_work(&elsewhere), None);
        assert!(elsewhere.debug_gap().unwrap().contains("program.debug"));

        // A debug file of another build has another checksum.
        let mut other = std::fs::read(built.path(debug)).unwrap();
        other.push(0);
        std::fs::write(built.path(debug), other).unwrap();
        assert!(built.open().debug_gap().is_some());
    }
}

#[test]
fn debug_files_are_found_by_build_id() {
    let Some(built) = build("cc", "c", C, &["-g", "-Wl,--build-id"]).filter(|_| have("objcopy")) else {
        return;
    };
    let id = built.open().build_id().unwrap().to_string();
    let directory = built.path("root/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&directory).unwrap();
    let debug = directory.join(format!("{}.debug", &id[2..]));
    split(&built, debug.to_str().unwrap(), false);
    let bytes = Arc::new(std::fs::read(&built.program).unwrap());
    let search = DebugSearch {
        roots: vec![built.path("root")],
        ..DebugSearch::none()
    };
    let symbols = SymbolFile::from_bytes(bytes.clone(), &search).unwrap();
    assert_eq!(line_of_work(&symbols), Some(25));
    assert_eq!(symbols.debug_gap(), None);

    // A file with the right name but another build id is refused.
    std::fs::copy("/proc/self/exe", &debug).unwrap();
    let symbols = SymbolFile::from_bytes(bytes, &search).unwrap();
    assert_eq!(line_of_work(&symbols), None);
}

#[test]
fn debug_entries_shared_by_dwz_are_followed() {
    let Some(built) = build("cc", "c", C, &["-g", "-O2"]).filter(|_| have("dwz")) else {
        return;
    };
    let bytes = Arc::new(std::fs::read(&built.program).unwrap());
    let expected = SymbolFile::from_bytes(bytes, &DebugSearch::none()).unwrap();
    std::fs::copy(&built.program, built.path("second")).unwrap();
    run(&built, "dwz", &["-m", "shared", "program", "second"]);
    let symbols = built.open();
    assert_eq!(symbols.debug_gap(), None);
    for function in expected.functions_matching(&regex::Regex::new("").unwrap()) {
        for row in expected.lines_in(function.range.clone()) {
            assert_eq!(
                symbols.frames_at(row.range.start),
                expected.frames_at(row.range.start)
            );
        }
    }
}

#[test]
fn stripped_libraries_keep_their_exported_functions() {
    let Some(built) = build("cc", "c", C, &["-g", "-shared", "-fPIC"]) else {
        return;
    };
    let before = built.open().functions_named("work");
    run(&built, "strip", &["program"]);
    let symbols = built.open();
    let work = symbols.functions_named("work");
    assert_eq!(work.len(), 1);
    assert_eq!(work[0].entry, before[0].entry);
    assert!(symbols.functions_named("leaf").is_empty());
    assert_eq!(symbols.debug_gap().as_deref(), Some("the file has no DWARF"));
    assert_eq!(symbols.after_prologue(&work[0]), work[0].entry);
}

#[test]
fn split_dwarf_is_reported_and_lines_still_work() {
    let Some(built) = build("cc", "c", C, &["-g", "-O0", "-gsplit-dwarf"]) else {
        return;
    };
    assert_eq!(built.open().detail(), SymbolDetail::DebugInformation);
    std::fs::remove_file(built.path("program-source.dwo")).unwrap();
    let symbols = built.open();
    assert_eq!(symbols.detail(), SymbolDetail::SplitDebugInformation);
    assert!(
        symbols.debug_gap().unwrap().contains(".dwo"),
        "{:?}",
        symbols.debug_gap()
    );
    let work = symbols.functions_named("work");
    assert_eq!(&*work[0].name, "work");
    assert_eq!(symbols.line_at(work[0].entry).unwrap().line, 24);
}

#[test]
fn rows_of_a_range_tile_the_function() {
    let Some(built) = build("cc", "c", C, &["-g", "-O2"]) else {
        return;
    };
    let symbols = built.open();
    let work = symbols.functions_named("work").remove(0);
    let rows = symbols.lines_in(work.range.clone());
    assert!(rows.len() > 5);
    assert_eq!(rows[0].range.start, work.range.start);
    assert!(
        rows.windows(2)
            .all(|pair| pair[0].range.end == pair[1].range.start)
    );
    for row in &rows {
        assert_eq!(symbols.line_at(row.range.start).as_ref(), Some(row));
        assert_eq!(symbols.line_at(Svma(row.range.end.0 - 1)).as_ref(), Some(row));
    }
    assert!(
        symbols
            .source_files()
            .iter()
            .any(|file| file.ends_with("/source.c"))
    );
}

#[test]
fn process_uses_actual_addresses() {
    let Some(built) = build("cc", "c", C, &["-g", "-O2"]) else {
        return;
    };
    let file = Arc::new(built.open());
    let bias = 0x5555_5555_4000;
    let mut process = Symbolizer::new();
    process.add_module(
        Avma(bias)..Avma(bias + 0x10000),
        bias,
        "program",
        Some(file.clone()),
    );
    process.add_module(Avma(0x1000)..Avma(0x2000), 0, "unknown", None);
    let here = file.functions_named("work").remove(0);
    let there = process.functions_named("work").remove(0);
    assert_eq!(there.entry, here.entry.to_avma(bias));
    assert_eq!(process.function_at(there.entry), Some(there.clone()));
    assert_eq!(process.frames_at(there.entry)[0].entry, there.entry);
    assert_eq!(process.parts_of(&there).len(), file.parts_of(&here).len());
    assert_eq!(
        process.lines_in(there.range.clone()).len(),
        file.lines_in(here.range.clone()).len()
    );
    assert_eq!(&*process.module_at(Avma(0x1fff)).unwrap().name, "unknown");
    assert!(process.module_at(Avma(0x2000)).is_none());
    assert!(process.function_at(Avma(0x1500)).is_none());

    // A later mapping replaces what it covers.
    process.add_module(there.entry..Avma(there.entry.0 + 1), 0, "patch", None);
    assert!(process.function_at(there.entry).is_none());
    assert!(process.function_at(Avma(there.entry.0 + 1)).is_some());
    assert_eq!(process.modules().len(), 4);
}

#[test]
fn queries_from_many_threads_agree() {
    let Some(built) = build("cc", "c", C, &["-g", "-O2"]) else {
        return;
    };
    let symbols = built.open();
    let expected: Vec<_> = (0x1000..0x1400)
        .map(|at| built.open().frames_at(Svma(at)))
        .collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (at, expected) in (0x1000..).zip(&expected) {
                    assert_eq!(symbols.frames_at(Svma(at)), *expected);
                }
            });
        }
    });
}
