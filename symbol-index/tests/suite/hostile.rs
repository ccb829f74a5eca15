//! Reads damaged indexes, and makes indexes of damaged programs.

use crate::support::{C, compile, cpp, files};
use backtrail_pt::Svma;
use backtrail_symbol_index::{BuildOptions, FileBytes, Index, IndexFiles, OpenOptions, Position, build};
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A sequence of numbers that are below a limit.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// Looks up some addresses. Returns whether the index was refused, at the latest by its checks.
fn is_refused(files: IndexFiles, addresses: &[u64]) -> bool {
    let (gsym, types): (FileBytes, FileBytes) = (Arc::new(files.gsym), Arc::new(files.types));
    let open = |cache_bytes| Index::open(gsym.clone(), types.clone(), &OpenOptions { cache_bytes });
    // One decodes functions, and the other one scans them.
    let (Ok(index), Ok(scanning)) = (open(1 << 20), open(0)) else {
        return true;
    };
    for at in addresses {
        let _ = index.lookup(Position::Address(Svma(*at)));
        let _ = scanning.lookup(Position::Address(Svma(*at)));
    }
    index.verify().is_err()
}

#[test]
fn damaged_indexes_are_refused_and_lookups_end() {
    let Some(built) = cpp() else { return };
    let symbols = built.open();
    let good = files(&symbols, 2);
    let addresses: Vec<u64> = symbols
        .code_symbols()
        .iter()
        .map(|symbol| symbol.address.0 + 5)
        .take(40)
        .collect();
    assert!(!is_refused(good.clone(), &addresses));
    let began = Instant::now();
    let mut numbers = Numbers(11);
    for round in 0..1500 {
        let mut bad = good.clone();
        let side = if round % 3 == 0 {
            &mut bad.types
        } else {
            &mut bad.gsym
        };
        if round % 5 == 0 {
            let length = numbers.below(side.len());
            side.truncate(length);
        } else {
            for _ in 0..=numbers.below(4) {
                let at = numbers.below(side.len());
                side[at] ^= 1 << numbers.below(8);
            }
        }
        assert!(bad == good || is_refused(bad, &addresses), "round {round}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(120),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn damaged_programs_make_an_index_or_an_error() {
    let Some(built) = compile("cc", "c", C, &["-g", "-O2"]) else {
        return;
    };
    let good = std::fs::read(&built.program).unwrap();
    let began = Instant::now();
    let mut numbers = Numbers(5);
    let mut made = 0;
    for round in 0..300 {
        let mut bytes = good.clone();
        if round % 10 == 0 {
            let length = numbers.below(bytes.len());
            bytes.truncate(length);
        }
        for _ in 0..20 {
            let at = numbers.below(bytes.len());
            bytes[at] = numbers.below(256) as u8;
        }
        let Ok(symbols) = SymbolFile::from_bytes(Arc::new(bytes), &DebugSearch::none()) else {
            continue;
        };
        let Ok(files) = build(&symbols, &BuildOptions::default()) else {
            continue;
        };
        made += 1;
        assert!(!is_refused(files, &[0x1139, 0x1200, 0x40_1000]), "round {round}");
    }
    assert!(made > 50, "{made}");
    assert!(
        began.elapsed() < Duration::from_secs(120),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn files_of_different_indexes_are_refused() {
    let (Some(one), Some(other)) = (cpp(), compile("cc", "c", C, &["-g"])) else {
        return;
    };
    let (one, other) = (files(&one.open(), 1), files(&other.open(), 1));
    let options = OpenOptions::default();
    let mixed = Index::open(Arc::new(one.gsym), Arc::new(other.types), &options);
    let message = mixed.err().unwrap().to_string();
    assert!(message.contains("belongs to another GSYM"), "{message}");
}

#[test]
fn file_without_functions_is_refused_in_a_sentence() {
    let Some(built) = compile(
        "cc",
        "c",
        C,
        &[
            "-O2",
            "-s",
            "-nostartfiles",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
        ],
    ) else {
        return;
    };
    let symbols = built.open();
    if let Err(error) = build(&symbols, &BuildOptions::default()) {
        assert!(error.to_string().contains("names no function"), "{error}");
    }
}
