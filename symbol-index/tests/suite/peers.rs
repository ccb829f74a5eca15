//! Compares frames with `llvm-symbolizer` reading DWARF, and with blazesym reading the same GSYM.
//! `examples/compare` does the same for large programs.

use crate::support::{Built, C, RUST, compile, cpp, files, have, open};
use backtrail_pt::Svma;
use backtrail_symbol_index::{Frame, Position};
use blazesym::symbolize::source::{GsymData, Source};
use blazesym::symbolize::{Input, Symbolizer};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The linkage name, the path, and the line of a frame.
type Shown = (String, String, u32);

fn ours(frames: &[Frame]) -> Vec<Shown> {
    let shown = |frame: &Frame| {
        let file = frame.file.as_deref().filter(|_| frame.line != 0);
        (
            frame.function.linkage_name.to_string(),
            file.unwrap_or("??").to_owned(),
            if file.is_some() { frame.line } else { 0 },
        )
    };
    frames.iter().map(shown).collect()
}

/// Asks blazesym about one address of a GSYM.
fn blazesym(gsym: &[u8], symbolizer: &Symbolizer, at: u64) -> Vec<Shown> {
    let source = Source::from(GsymData::new(gsym));
    let found = symbolizer
        .symbolize_single(&source, Input::VirtOffset(at))
        .unwrap();
    let Some(sym) = found.as_sym() else {
        return Vec::new();
    };
    let place = |info: Option<&blazesym::symbolize::CodeInfo<'_>>| {
        let info = info.filter(|info| info.line.is_some_and(|line| line != 0));
        info.map_or(("??".to_owned(), 0), |info| {
            (info.to_path().display().to_string(), info.line.unwrap_or(0))
        })
    };
    let mut frames = vec![(sym.name.to_string(), place(sym.code_info.as_deref()))];
    for inlined in &sym.inlined {
        frames.push((inlined.name.to_string(), place(inlined.code_info.as_ref())));
    }
    frames.reverse();
    let flat = |(name, (file, line))| (name, file, line);
    frames.into_iter().map(flat).collect()
}

fn llvm(built: &Built, addresses: &[u64]) -> Vec<Vec<Shown>> {
    let mut child = Command::new("llvm-symbolizer")
        .args(["--output-style=GNU", "-a", "-i", "-f", "--no-demangle", "-e"])
        .arg(&built.program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input: String = addresses.iter().map(|at| format!("{at:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut answers: Vec<Vec<Shown>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") && !line.contains(' ') {
            answers.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap();
        let place = place.split(" (discriminator").next().unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        let number = number.parse().unwrap_or(0);
        let file = if number == 0 { "??" } else { file };
        answers
            .last_mut()
            .unwrap()
            .push((line.to_owned(), file.to_owned(), number));
    }
    answers
}

/// Returns the addresses of the statements of functions, 2 bytes apart.
fn addresses(built: &Built) -> Vec<u64> {
    let symbols = built.open();
    let functions = symbols.functions_matching(&regex_of("main|work|get|hidden|anonymous|total|pick|area"));
    let mut all: Vec<u64> = functions
        .iter()
        .flat_map(|function| (function.range.start.0..function.range.end.0).step_by(2))
        .take(3000)
        .collect();
    all.sort_unstable();
    all
}

fn regex_of(pattern: &str) -> regex::Regex {
    regex::Regex::new(pattern).unwrap()
}

fn compare(built: Option<Built>) {
    let Some(built) = built else { return };
    let symbols = built.open();
    let made = files(&symbols, 2);
    let index = open(&made);
    let all = addresses(&built);
    assert!(all.len() > 30);
    let symbolizer = Symbolizer::builder().enable_demangling(false).build();
    let mut different = Vec::new();
    for at in &all {
        let frames = ours(&index.lookup(Position::Address(Svma(*at))).unwrap());
        let theirs = blazesym(&made.gsym, &symbolizer, *at);
        if frames != theirs {
            different.push(format!("{at:#x}\n  ours {frames:?}\n  blazesym {theirs:?}"));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {}: {}",
        different.len(),
        all.len(),
        different[0]
    );
    if !have("llvm-symbolizer") || !have("objdump") {
        return;
    }
    let rows = decoded_rows(&built);
    for (at, theirs) in all.iter().zip(llvm(&built, &all)) {
        let frames = ours(&index.lookup(Position::Address(Svma(*at))).unwrap());
        let same =
            frames.len() == theirs.len() && frames.iter().zip(&theirs).all(|pair| is_same(pair.0, pair.1));
        let start = symbols.line_at(Svma(*at)).map_or(0, |row| row.range.start.0);
        if !same && !is_statement_rule(&rows, start, &frames, &theirs) {
            different.push(format!("{at:#x}\n  ours {frames:?}\n  llvm {theirs:?}"));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {}: {}",
        different.len(),
        all.len(),
        different[0]
    );
}

/// Compares frames. Without a linkage name, LLVM prints the name without its namespaces. It adds
/// the suffix of a variant (`.isra.0`) to the linkage name.
fn is_same(ours: &Shown, llvm: &Shown) -> bool {
    is_same_name(&ours.0, &llvm.0) && (&ours.1, ours.2) == (&llvm.1, llvm.2)
}

fn is_same_name(ours: &str, llvm: &str) -> bool {
    let qualified = ours.strip_suffix(llvm);
    let variant = llvm.strip_prefix(ours);
    qualified.is_some_and(|before| before.is_empty() || before.ends_with("::"))
        || variant.is_some_and(|suffix| suffix.starts_with('.'))
}

/// Returns whether only the line of the innermost frame differs, due to several rows at one
/// address. LLVM shows the last one, and the symbolizer one that begins a statement, as GDB does.
fn is_statement_rule(rows: &[(u64, u32, bool)], start: u64, ours: &[Shown], llvm: &[Shown]) -> bool {
    let (Some((inner, outer)), Some((their_inner, their_outer))) = (ours.split_first(), llvm.split_first())
    else {
        return false;
    };
    let here: Vec<_> = rows.iter().filter(|row| row.0 == start && row.1 != 0).collect();
    is_same_name(&inner.0, &their_inner.0)
        && outer.len() == their_outer.len()
        && outer.iter().zip(their_outer).all(|pair| is_same(pair.0, pair.1))
        && here.iter().any(|row| row.1 == inner.2 && row.2)
        && here.last().is_some_and(|row| row.1 == their_inner.2 && !row.2)
}

/// Returns address, line and `is_stmt` of the rows of the line tables, as objdump lists them.
fn decoded_rows(built: &Built) -> Vec<(u64, u32, bool)> {
    let output = Command::new("objdump")
        .arg("--dwarf=decodedline")
        .arg(&built.program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let line = words.next()?.parse().unwrap_or(0);
        let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        Some((address, line, words.any(|word| word == "x")))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn c_agrees_with_llvm_and_blazesym() {
    compare(compile("cc", "c", C, &["-g", "-O2"]));
}

#[test]
fn cpp_agrees_with_llvm_and_blazesym() {
    compare(cpp());
}

#[test]
fn rust_agrees_with_llvm_and_blazesym() {
    compare(compile("rustc", "rs", RUST, &["-g", "-O"]));
}
