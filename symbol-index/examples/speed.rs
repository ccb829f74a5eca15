//! Measures indexes: the time to make one, the first address, and warm addresses a second.
//!
//! ```text
//! cargo run --release -p backtrail-symbol-index --example speed -- PROGRAM [THREADS]
//! ```
//!
//! The time of `llvm-gsymutil --convert` is printed too, if it is installed.

use backtrail_pt::Svma;
use backtrail_symbol_index::{BuildOptions, Index, OpenOptions, Position, build};
use backtrail_symbolizer::{DebugSearch, SymbolFile, map_file};
use std::error::Error;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number of random addresses.
const ADDRESSES: usize = 1_000_000;
/// The number of addresses that are the first one of an opened index.
const FIRST_ADDRESSES: usize = 1000;
/// The largest file.
const MAX_FILE: u64 = 8 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let program = PathBuf::from(arguments.next().ok_or("usage: speed PROGRAM [THREADS]")?);
    let threads = match arguments.next() {
        Some(number) => number.to_str().ok_or("no number")?.parse()?,
        None => BuildOptions::default().threads,
    };
    let directory = tempfile::tempdir()?;
    let (gsym, types) = (directory.path().join("gsym"), directory.path().join("types"));

    let began = Instant::now();
    let symbols = SymbolFile::open(&program, &DebugSearch::default())?;
    println!("opened in {:?}", began.elapsed());
    let files = build(&symbols, &BuildOptions { threads })?;
    println!("index made in {:?} by {threads} threads", began.elapsed());
    let lengths = (files.gsym.len(), files.types.len());
    println!("gsym {} bytes, types {} bytes", lengths.0, lengths.1);
    std::fs::write(&gsym, &files.gsym)?;
    std::fs::write(&types, &files.types)?;
    match gsymutil(&program, &directory.path().join("llvm"), threads) {
        Some((tool, time)) => println!("{tool} --convert took {time:?}"),
        None => println!("no llvm-gsymutil on this machine"),
    }

    let ranges: Vec<_> = symbols
        .code_groups()
        .iter()
        .flat_map(|group| symbols.code_parts(group).parts)
        .map(|part| part.range)
        .collect();
    let positions = random_positions(&ranges);
    let mut firsts: Vec<Duration> = Vec::new();
    for position in positions.iter().take(FIRST_ADDRESSES) {
        let began = Instant::now();
        let index = open(&gsym, &types, OpenOptions::default())?;
        let frames = index.lookup(*position)?;
        firsts.push(began.elapsed());
        assert!(!frames.is_empty());
    }
    firsts.sort_unstable();
    let [median, slow, most] =
        [50, 99, 100].map(|percent| firsts.get((firsts.len() * percent / 100).saturating_sub(1)));
    println!(
        "{FIRST_ADDRESSES} first addresses, each with opening: median {median:?}, 99 % in {slow:?}, most {most:?}"
    );

    let options = OpenOptions { cache_bytes: 1 << 30 };
    let index = open(&gsym, &types, options)?;
    for turn in ["cold", "warm", "warm", "warm"] {
        let began = Instant::now();
        let frames = index.lookup_all(&positions, threads)?;
        let time = began.elapsed();
        let rate = positions.len() as f64 / time.as_secs_f64();
        let empty = frames.iter().filter(|frames| frames.is_empty()).count();
        println!(
            "{turn} batch of {ADDRESSES}: {time:?}, {rate:.0} addresses a second, {empty} without a function"
        );
    }
    let began = Instant::now();
    for position in positions.iter().take(200_000) {
        std::hint::black_box(index.lookup(*position)?);
    }
    let rate = 200_000.0 / began.elapsed().as_secs_f64();
    println!("warm, one by one on one thread: {rate:.0} addresses a second");
    let began = Instant::now();
    index.verify()?;
    println!("complete check: {:?}", began.elapsed());
    Ok(())
}

fn open(gsym: &Path, types: &Path, options: OpenOptions) -> Result<Index, Box<dyn Error>> {
    Ok(Index::open(
        map_file(gsym, MAX_FILE)?,
        map_file(types, MAX_FILE)?,
        &options,
    )?)
}

/// Returns random addresses, in proportion to the code of each function.
fn random_positions(ranges: &[std::ops::Range<Svma>]) -> Vec<Position> {
    let mut ends = Vec::new();
    let mut total = 0u64;
    for range in ranges {
        total += range.end.0 - range.start.0;
        ends.push(total);
    }
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 20) % total.max(1)
    };
    let position = |at: u64| {
        let number = ends.partition_point(|end| *end <= at);
        let range = ranges.get(number)?;
        Some(Position::Address(Svma(range.end.0 - (ends.get(number)? - at))))
    };
    (0..ADDRESSES).filter_map(|_| position(next())).collect()
}

fn gsymutil(program: &Path, out: &Path, threads: NonZeroUsize) -> Option<(String, Duration)> {
    let tools = ["llvm-gsymutil", "llvm-gsymutil-19", "llvm-gsymutil-14"];
    for tool in tools {
        let began = Instant::now();
        let status = Command::new(tool)
            .arg("--convert")
            .arg(program)
            .arg(format!("--num-threads={threads}"))
            .arg("-o")
            .arg(out)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if status.is_ok_and(|status| status.success()) {
            return Some((tool.to_owned(), began.elapsed()));
        }
    }
    None
}
