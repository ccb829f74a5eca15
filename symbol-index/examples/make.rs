//! Makes the two files of an index.
//!
//! ```text
//! cargo run --release -p backtrail-symbol-index --example make -- PROGRAM GSYM TYPES [THREADS]
//! ```

use backtrail_symbol_index::{BuildOptions, build};
use backtrail_symbolizer::{DebugSearch, SymbolFile};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [program, gsym, types, rest @ ..] = arguments.as_slice() else {
        return Err("usage: make PROGRAM GSYM TYPES [THREADS]".into());
    };
    let threads = match rest {
        [threads, ..] => threads.to_string_lossy().parse()?,
        [] => BuildOptions::default().threads,
    };
    let symbols = SymbolFile::open(program, &DebugSearch::default())?;
    let files = build(&symbols, &BuildOptions { threads })?;
    std::fs::write(gsym, files.gsym)?;
    std::fs::write(types, files.types)?;
    Ok(())
}
