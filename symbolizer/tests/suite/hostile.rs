//! Damaged files: every query returns in time, without a panic.

use crate::support::{C, CLASSES, CPP, build, have, run};
use backtrail_pt::Svma;
use backtrail_symbolizer::types::{Count, DynamicProperty, MemberLocation, TypeKind};
use backtrail_symbolizer::{
    CfaRule, DebugSearch, EntryId, FrameState, Global, LocationExpression, Machine, RegisterRule, Scope,
    SymbolFile, Unknown, UnwindRow, Variable, VariableLocation,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A small random generator (splitmix64) with reproducible results.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A machine that knows every register and all memory.
struct KnownState;

impl Machine for KnownState {
    fn register(&self, register: u16) -> Option<u64> {
        Some(u64::from(register) << 40)
    }

    fn memory(&self, address: u64, out: &mut [u8]) -> Option<()> {
        out.fill(address as u8);
        Some(())
    }
}

impl FrameState for KnownState {
    fn bias(&self) -> u64 {
        0x5555_0000_0000
    }

    fn register(&self, register: u16) -> Result<u64, Unknown> {
        Ok(u64::from(register) << 40)
    }

    fn memory(&self, address: u64, out: &mut [u8]) -> Result<(), Unknown> {
        out.fill(address as u8);
        Ok(())
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        Ok(0x7fff_0000)
    }

    fn thread_local(&self, offset: u64) -> Result<u64, Unknown> {
        Ok(offset)
    }

    fn entry_value(&self, register: u16) -> Result<u64, Unknown> {
        FrameState::register(self, register)
    }
}

/// Follows a type to all types that it refers to, a few steps deep.
fn follow(symbols: &SymbolFile, entry: Option<EntryId>, depth: u32) {
    let Some(found) = entry
        .filter(|_| depth < 6)
        .and_then(|entry| symbols.type_at(entry))
    else {
        return;
    };
    match &found.kind {
        TypeKind::Pointer { target, .. }
        | TypeKind::Qualified { target, .. }
        | TypeKind::Typedef { target } => {
            follow(symbols, *target, depth + 1);
        }
        TypeKind::Record(record) => {
            for member in record.members.iter().take(20) {
                if let MemberLocation::Static(declaration) = member.location {
                    let _ = symbols.definition_of(declaration);
                }
                if let MemberLocation::Computed(expression) = &member.location {
                    let _ = symbols.member_at(expression, 0x1000, &KnownState);
                }
                follow(symbols, member.entry, depth + 2);
            }
            for method in record.methods.iter().take(10) {
                follow(symbols, Some(method.entry), depth + 2);
            }
        }
        TypeKind::Array {
            element, dimensions, ..
        } => {
            for count in dimensions {
                let Count::Dynamic { property, .. } = count else {
                    continue;
                };
                match property {
                    DynamicProperty::Expression(expression) => {
                        let _ = symbols.evaluate(expression, None, &KnownState);
                    }
                    DynamicProperty::Variable(entry) => {
                        let _ = symbols.variable_at(*entry, Svma(0x1000));
                    }
                }
            }
            follow(symbols, *element, depth + 1);
        }
        TypeKind::Function {
            result, parameters, ..
        } => {
            for parameter in parameters
                .iter()
                .take(10)
                .map(|parameter| &parameter.entry)
                .chain([result])
            {
                follow(symbols, *parameter, depth + 2);
            }
        }
        _ => {}
    }
}

fn look_at(symbols: &SymbolFile, variable: &Variable, frame_base: Option<&LocationExpression>) {
    follow(symbols, variable.type_entry, 0);
    if let VariableLocation::Expression(expression) = &variable.location {
        let _ = symbols.evaluate(expression, frame_base, &KnownState);
    }
}

fn variables(symbols: &SymbolFile, scope: &Scope) {
    for variable in scope.parameters.iter().chain(scope.blocks.iter().flatten()) {
        look_at(symbols, variable, scope.frame_base.as_ref());
    }
}

fn evaluate(row: &UnwindRow) {
    if let CfaRule::Expression(expression) = &row.cfa {
        let _ = expression.evaluate(None, &KnownState);
    }
    for (_, rule) in &row.registers {
        if let RegisterRule::Expression(expression) | RegisterRule::ValExpression(expression) = rule {
            let _ = expression.evaluate(Some(0x1000), &KnownState);
        }
    }
}

/// Runs all queries. Only their termination matters, not their results.
fn run_all_queries(bytes: Vec<u8>) {
    let started = Instant::now();
    if let Ok(symbols) = SymbolFile::from_bytes(Arc::new(bytes), &DebugSearch::none()) {
        ask(&symbols);
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}

fn ask(symbols: &SymbolFile) {
    for at in (0x1000..0x1800).step_by(7).map(Svma) {
        let _ = symbols.function_at(at);
        let _ = symbols.frames_at(at);
        let _ = symbols.line_at(at);
        if let Some(row) = symbols.unwind_row(at) {
            evaluate(&row);
        }
    }
    for at in (0x1000..0x1800).step_by(127).map(Svma) {
        for level in 0..2 {
            if let Some(scope) = symbols.scope_at(at, level) {
                variables(symbols, &scope);
            }
        }
        if let Some(site) = symbols.call_site(at) {
            for (_, expression) in &site.parameters {
                let _ = symbols.evaluate(expression, site.frame_base.as_ref(), &KnownState);
            }
        }
        let _ = (symbols.makes_no_tail_calls(at), symbols.data_at(at));
        follow(symbols, symbols.function_type(at), 0);
    }
    for name in [
        "counter",
        "sink",
        "ns::x",
        "table",
        "main",
        "int",
        "a::b<c>::d",
        "ns::Duck",
        "Animal",
    ] {
        for global in symbols.globals_named(name, None) {
            match global {
                Global::Variable(variable) => look_at(symbols, &variable, None),
                Global::Enumerator { entry, .. } => follow(symbols, Some(entry), 0),
                _ => {}
            }
        }
        follow(symbols, symbols.type_named(name, None), 0);
        let _ = symbols.data_named(name);
    }
    let _ = (symbols.thread_local_block(), symbols.unit_of_file("source.c"));
    for name in ["main", "work", "outer", "ns::f", "work.cold", "puts@plt", ""] {
        for function in symbols.functions_named(name) {
            let _ = symbols.after_prologue(&function);
            let _ = symbols.parts_of(&function);
        }
        let _ = symbols.inlined_copies_named(name);
    }
    let _ = symbols.functions_matching(&regex::Regex::new("o").unwrap());
    let _ = symbols.addresses_of_line("source.c", 18);
    let _ = symbols.lines_in(Svma(0)..Svma(u64::MAX));
    let _ = (symbols.source_files(), symbols.debug_gap(), symbols.build_id());
}

fn mutate(original: &[u8], seed: u64, rounds: usize) {
    mutated(original, seed, rounds, run_all_queries);
}

fn mutated(original: &[u8], seed: u64, rounds: usize, mut look: impl FnMut(Vec<u8>)) {
    let mut random = Random(seed);
    for _ in 0..rounds {
        let mut bytes = original.to_vec();
        match random.below(4) {
            0 => bytes.truncate(random.below(original.len())),
            // Near the end are the section table and small debug sections.
            1 => {
                let from = original.len() - random.below(original.len() / 4) - 1;
                for _ in 0..8 {
                    let at = from + random.below(original.len() - from);
                    bytes[at] = random.next() as u8;
                }
            }
            2 => {
                for _ in 0..1 + random.below(200) {
                    let at = random.below(original.len());
                    bytes[at] ^= 1 << random.below(8);
                }
            }
            _ => {
                let at = random.below(original.len() - 8);
                let value = [0, u64::MAX, 1 << 63, random.next(), 0xffff_ffff][random.below(5)];
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        look(bytes);
    }
}

#[test]
fn damaged_c() {
    let Some(built) = build("cc", "c", C, &["-g", "-O2"]) else {
        return;
    };
    mutate(&std::fs::read(&built.program).unwrap(), 1, 500);
}

#[test]
fn damaged_dwarf_4() {
    let Some(built) = build("cc", "c", C, &["-gdwarf-4", "-O2", "-gz=zlib"]) else {
        return;
    };
    mutate(&std::fs::read(&built.program).unwrap(), 2, 300);
}

#[test]
fn damaged_c_plus_plus() {
    let Some(built) = build("c++", "cc", CPP, &["-g", "-O2"]) else {
        return;
    };
    mutate(&std::fs::read(&built.program).unwrap(), 3, 200);
}

#[test]
fn damaged_type_units() {
    for (seed, version) in [(6, "-gdwarf-4"), (7, "-gdwarf-5")] {
        let Some(built) = build("c++", "cc", CLASSES, &[version, "-fdebug-types-section"]) else {
            return;
        };
        mutate(&std::fs::read(&built.program).unwrap(), seed, 300);
    }
}

/// Split DWARF files and packages.
#[test]
fn damaged_split_dwarf() {
    for (seed, version, tool) in [(8, "-gdwarf-4", Some("dwp")), (9, "-gdwarf-5", None)] {
        let arguments = [version, "-gsplit-dwarf", "-fdebug-types-section"];
        let Some(built) = build("c++", "cc", CLASSES, &arguments) else {
            return;
        };
        let look_with = |name: &str| {
            let path = built.path(name);
            mutated(&std::fs::read(&path).unwrap(), seed, 200, |bytes| {
                std::fs::write(&path, bytes).unwrap();
                let started = Instant::now();
                ask(&built.open());
                assert!(started.elapsed() < Duration::from_secs(20));
            });
        };
        if let Some(tool) = tool.filter(|tool| have(tool)) {
            run(&built, tool, &["-e", "program", "-o", "program.dwp"]);
            let split = built.path("program-source.dwo");
            std::fs::rename(&split, built.path("kept")).unwrap();
            look_with("program.dwp");
            std::fs::remove_file(built.path("program.dwp")).unwrap();
            std::fs::rename(built.path("kept"), split).unwrap();
        }
        look_with("program-source.dwo");
    }
}

/// Damages only `.eh_frame_hdr` and `.eh_frame`, and queries every address.
fn damage_call_frames(arguments: &[&str], seed: u64) {
    let Some(built) = build("cc", "c", C, arguments) else {
        return;
    };
    let original = std::fs::read(&built.program).unwrap();
    // The first CIE of every program: version 1, "zR", factors 1 and -8, return address 16.
    let common = b"\x01zR\0\x01\x78\x10";
    let tables = original.windows(common.len()).position(|bytes| bytes == common);
    let start = tables.unwrap() - 200;
    let mut random = Random(seed);
    for _ in 0..2000 {
        let mut bytes = original.clone();
        for _ in 0..1 + random.below(6) {
            let at = start + random.below(700);
            let value = [0, 0xff, 0x7f, 0x80, random.next() as u8][random.below(5)];
            let count = [1, 1, 2, 4, 8][random.below(5)];
            bytes[at..at + count].fill(value);
        }
        let started = Instant::now();
        let Ok(symbols) = SymbolFile::from_bytes(Arc::new(bytes), &DebugSearch::none()) else {
            continue;
        };
        for at in (0x1000..0x1400).map(Svma) {
            if let Some(row) = symbols.unwind_row(at) {
                evaluate(&row);
            }
        }
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn damaged_call_frame_information() {
    damage_call_frames(&["-g", "-O2"], 4);
    damage_call_frames(&["-g", "-O2", "-Wl,--no-eh-frame-hdr"], 5);
}

/// Damages the bytes of the ELF header, program headers and section headers in turn.
#[test]
fn every_byte_of_the_headers_may_be_damaged() {
    let Some(built) = build("cc", "c", C, &["-g", "-O0"]) else {
        return;
    };
    let original = std::fs::read(&built.program).unwrap();
    let headers = original.len() - 64 * 40;
    for at in (0..64 * 14).chain(headers..original.len()).step_by(5) {
        for value in [0, 0xff] {
            let mut bytes = original.clone();
            bytes[at] = value;
            run_all_queries(bytes);
        }
    }
}
