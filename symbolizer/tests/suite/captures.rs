//! Programs of real captures. Skipped if the data is absent.

use backtrail_pt::{Avma, Svma};
use backtrail_symbolizer::{DebugSearch, SymbolFile, Symbolizer};
use std::path::PathBuf;
use std::sync::Arc;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pt");

fn open(path: &str) -> Option<SymbolFile> {
    let path = PathBuf::from(DATA).join(path);
    if !path.exists() {
        println!("skipped: no captures beside the repository");
        return None;
    }
    Some(SymbolFile::open(&path, &DebugSearch::none()).unwrap())
}

#[test]
fn static_program_that_aborts() {
    let Some(symbols) = open("hase/20180404/control_flow/control_flow") else {
        return;
    };
    // The address of the abort: after the `syscall` of musl's signal restorer, called by `raise`.
    let frames = symbols.frames_at(Svma(0x400a07));
    assert_eq!(&*frames[0].function, "__restore_sigs");
    assert!(
        frames[0]
            .location
            .as_ref()
            .unwrap()
            .file
            .ends_with("src/signal/block.c")
    );
    let raise = symbols.functions_named("raise");
    assert_eq!(raise.len(), 1);
    assert_eq!(raise[0].range, Svma(0x400610)..Svma(0x400684));
    // Assembly: two symbols without size at the same address.
    assert_eq!(&*symbols.function_at(Svma(0x400a10)).unwrap().name, "memcpy");
    assert_eq!(symbols.functions_named("__memcpy_fwd")[0].entry, Svma(0x400a08));
    let main = symbols.functions_named("main");
    assert_eq!(main.len(), 1);
    let (file, _) = main[0].declared.clone().unwrap();
    assert!(file.ends_with("control_flow.c"), "{file}");

    let line_32 = symbols.addresses_of_line("control_flow.c", 32);
    assert!(!line_32.is_empty());
    for found in line_32 {
        let frames = symbols.frames_at(found.address);
        let location = frames[0].location.clone().unwrap();
        assert_eq!(
            (location.file.ends_with("control_flow.c"), location.line),
            (true, 32)
        );
        assert_eq!(&*frames.last().unwrap().function, "main");
    }
}

#[test]
fn program_and_its_libraries_in_one_process() {
    let set = "lldb/intelpt-trace-multi-file";
    let (Some(program), Some(foo), Some(bar)) = (
        open(&format!("{set}/a.out")),
        open(&format!("{set}/libfoo.so")),
        open(&format!("{set}/libbar.so")),
    ) else {
        return;
    };
    let mut process = Symbolizer::new();
    let loads = [
        (0x40_0000, 0, program),
        (0x7fff_f7bd_9000, 0x7fff_f7bd_9000, foo),
        (0x7fff_f79d_7000, 0x7fff_f79d_7000, bar),
    ];
    for (start, bias, file) in loads {
        process.add_module(
            Avma(start)..Avma(start + 0x1000),
            bias,
            "module",
            Some(Arc::new(file)),
        );
    }
    for (name, module) in [
        ("main", 0x40_0000),
        ("foo", 0x7fff_f7bd_9000),
        ("bar", 0x7fff_f79d_7000),
    ] {
        let found = process.functions_named(name);
        let found = found
            .iter()
            .find(|function| function.kind == backtrail_symbolizer::FunctionKind::Function)
            .unwrap();
        assert_eq!(
            process.module_at(found.entry).unwrap().range.start,
            Avma(module),
            "{name}"
        );
        let start = process.after_prologue(found);
        assert!(found.range.contains(&start) && start > found.entry, "{name}");
        let row = process.line_at(start).unwrap();
        assert!(row.is_stmt && row.range.start == start, "{row:?}");
        assert_eq!(&*process.frames_at(start)[0].function, &*found.name);
        assert!(
            process
                .addresses_of_line(&row.file, row.line)
                .iter()
                .any(|found| found.address == start)
        );
    }
    assert!(process.function_at(Avma(0x1234)).is_none());
    assert!(process.frames_at(Avma(0x1234)).is_empty());
}

#[test]
fn threads_of_the_multi_core_set_have_functions() {
    let Some(symbols) = open("lldb/intelpt-multi-core-trace/modules/m.out") else {
        return;
    };
    let bar = symbols.functions_named("bar");
    assert_eq!(bar.len(), 1);
    assert_eq!(&*bar[0].name, "bar()");
    assert_eq!(symbols.function_at(bar[0].entry).as_ref(), Some(&bar[0]));
}
