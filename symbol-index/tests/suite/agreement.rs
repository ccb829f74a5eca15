//! Compares every address of small programs with the symbolizer, and checks types, offsets and
//! equal bytes.

use crate::support::{Built, C, CPP, GO, RUST, compile, cpp, files, open};
use backtrail_pt::{FileOffset, Svma};
use backtrail_symbol_index::{Frame, Index, OpenOptions, Position, SymbolDetail};
use backtrail_symbolizer::SymbolFile;
use std::num::NonZeroUsize;
use std::sync::Arc;

type Shown = (String, Option<String>, u32, bool);

fn of_symbolizer(symbols: &SymbolFile, at: u64) -> Vec<Shown> {
    let frames = symbols.frames_at(Svma(at)).into_iter();
    frames
        .map(|frame| {
            let line = frame.location.as_ref().map_or(0, |place| place.line);
            let file = frame.location.map(|place| place.file.to_string());
            (frame.function.to_string(), file, line, frame.inlined)
        })
        .collect()
}

fn of_index(frames: &[Frame]) -> Vec<Shown> {
    let shown = |frame: &Frame| {
        let file = frame.file.as_deref().map(str::to_owned);
        (frame.function.name.to_string(), file, frame.line, frame.inlined)
    };
    frames.iter().map(shown).collect()
}

/// Compares all addresses of the segments with code.
fn compare(built: Option<Built>) {
    compare_as(built, SymbolDetail::DebugInformation);
}

fn compare_as(built: Option<Built>, detail: SymbolDetail) {
    let Some(built) = built else { return };
    let symbols = built.open();
    let files = files(&symbols, 2);
    let index = open(&files);
    index.verify().unwrap();
    // Without a cache, functions are scanned.
    let scanning = OpenOptions { cache_bytes: 0 };
    let scanning = Index::open(Arc::new(files.gsym), Arc::new(files.types), &scanning).unwrap();
    assert_eq!(index.detail(), detail);
    let all: Vec<u64> = addresses(&symbols);
    assert!(all.len() > 500, "{}", all.len());
    let positions: Vec<_> = all.iter().map(|at| Position::Address(Svma(*at))).collect();
    let batch = index
        .lookup_all(&positions, NonZeroUsize::new(2).unwrap())
        .unwrap();
    let mut inlined = 0;
    for (at, frames) in all.iter().zip(&batch) {
        let expected = of_symbolizer(&symbols, *at);
        assert_eq!(of_index(frames), expected, "{at:#x}");
        let single = index.lookup(Position::Address(Svma(*at))).unwrap();
        assert_eq!(single, *frames, "{at:#x}");
        let scanned = scanning.lookup(Position::Address(Svma(*at))).unwrap();
        assert_eq!(scanned, *frames, "{at:#x}");
        inlined += usize::from(frames.len() > 1);
    }
    assert!(inlined > 0, "no inlined call");
}

/// Returns every third address in and around functions.
fn addresses(symbols: &SymbolFile) -> Vec<u64> {
    let mut all: Vec<u64> = symbols
        .code_symbols()
        .iter()
        .take(4000)
        .flat_map(|symbol| (symbol.address.0.saturating_sub(4)..symbol.address.0 + 300).step_by(3))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn frames_of_c_equal_those_of_the_symbolizer() {
    compare(compile("cc", "c", C, &["-g", "-O2"]));
    compare(compile(
        "cc",
        "c",
        C,
        &["-gdwarf-4", "-O2", "-ffunction-sections"],
    ));
}

#[test]
fn frames_of_cpp_equal_those_of_the_symbolizer() {
    compare(cpp());
    compare(compile("c++", "cc", CPP, &["-g", "-O2", "-fno-pie", "-no-pie"]));
}

#[test]
fn frames_of_rust_equal_those_of_the_symbolizer() {
    compare(compile("rustc", "rs", RUST, &["-g", "-O"]));
}

#[test]
fn frames_of_go_equal_those_of_the_symbolizer() {
    compare(compile("go", "go", GO, &[]));
}

#[test]
fn frames_of_stripped_go_equal_those_of_the_symbolizer() {
    for mode in ["-buildmode=exe", "-buildmode=pie"] {
        let built = compile("go", "go", GO, &["-ldflags=-s -w", mode]);
        compare_as(built, SymbolDetail::SymbolTable);
    }
}

#[test]
fn files_do_not_depend_on_the_number_of_threads() {
    let Some(built) = compile("rustc", "rs", RUST, &["-g", "-O"]) else {
        return;
    };
    let first = files(&built.open(), 1);
    for threads in [1, 2, 7] {
        assert!(first == files(&built.open(), threads), "{threads} threads");
    }
}

/// Returns the frame of a function's entry whose demangled name begins so.
fn function(index: &Index, symbols: &SymbolFile, name: &str) -> Frame {
    let found = symbols.functions_named(name);
    let entry = found.first().unwrap_or_else(|| panic!("no {name}")).entry;
    let frames = index.lookup(Position::Address(entry)).unwrap();
    frames.last().unwrap().clone()
}

fn types(frame: &Frame) -> (Option<&str>, Vec<&str>, Option<&str>) {
    let signature = frame.function.signature.as_ref().unwrap();
    (
        signature.this.as_deref(),
        signature.parameters.iter().map(|ty| &**ty).collect(),
        signature.result.as_deref(),
    )
}

#[test]
fn functions_have_the_types_of_their_declarations() {
    if let Some(built) = compile("cc", "c", C, &["-g", "-O2"]) {
        let symbols = built.open();
        let work = function(&open(&files(&symbols, 1)), &symbols, "work");
        let expected = vec!["const struct pair *", "callback", "char **"];
        assert_eq!(types(&work), (None, expected, Some("long int")));
    }
    if let Some(built) = cpp() {
        let symbols = built.open();
        let index = open(&files(&symbols, 1));
        let get = function(&index, &symbols, "ns::Box<long>::get");
        let (this, parameters, result) = types(&get);
        assert_eq!(this, Some("const ns::Box<long int>"));
        assert_eq!((parameters.len(), result), (2, Some("long int")));
        assert!(parameters[0].starts_with("const std::") && parameters[0].ends_with('&'));
        assert_eq!(parameters[1], "long int *");
    }
    if let Some(built) = compile("rustc", "rs", RUST, &["-g", "-O"]) {
        let symbols = built.open();
        let index = open(&files(&symbols, 1));
        let area = function(&index, &symbols, "area");
        let (this, parameters, result) = types(&area);
        let this = this.unwrap();
        assert!(this.ends_with("shapes::Square"), "{this}");
        assert_eq!((&parameters[1..], result), (&["f32"][..], Some("f64")));
    }
    if let Some(built) = compile("go", "go", GO, &[]) {
        let symbols = built.open();
        let far = function(&open(&files(&symbols, 1)), &symbols, "main.(*point).far");
        let (_, parameters, _) = types(&far);
        assert_eq!(parameters[..2], ["*main.point", "[]string"]);
    }
}

#[test]
fn lines_without_types_say_nothing_of_parameters() {
    let Some(built) = compile("cc", "c", C, &["-g1", "-O2"]) else {
        return;
    };
    let symbols = built.open();
    let main = function(&open(&files(&symbols, 1)), &symbols, "main");
    assert!(main.line > 0);
    assert_eq!(main.function.signature, None);
}

#[test]
fn offsets_of_the_file_are_positions() {
    let Some(built) = cpp() else { return };
    let symbols = built.open();
    let index = open(&files(&symbols, 1));
    assert_eq!(index.build_id(), symbols.build_id());
    for symbol in symbols.code_symbols() {
        let Some(offset) = symbols.offset_of(symbol.address) else {
            continue;
        };
        let by_offset = index.lookup(Position::Offset(offset)).unwrap();
        assert_eq!(
            by_offset,
            index.lookup(Position::Address(symbol.address)).unwrap()
        );
    }
    let beyond = index.lookup(Position::Offset(FileOffset(1 << 40))).unwrap();
    assert!(beyond.is_empty());
}

#[test]
fn stripped_debug_information_leaves_names() {
    let Some(built) = compile("cc", "c", C, &["-O2"]) else {
        return;
    };
    let symbols = built.open();
    let index = open(&files(&symbols, 1));
    assert_eq!(index.detail(), SymbolDetail::SymbolTable);
    let work = function(&index, &symbols, "work");
    assert_eq!(
        (&*work.function.name, &work.file, &work.function.signature),
        ("work", &None, &None)
    );
    let printed = symbols.functions_named("printf@plt");
    if let Some(stub) = printed.first() {
        let frames = index.lookup(Position::Address(stub.entry)).unwrap();
        assert_eq!(&*frames[0].function.name, "printf@plt");
    }
}
