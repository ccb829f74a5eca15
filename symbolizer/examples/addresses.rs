//! Prints the frames of addresses of a file, as `llvm-symbolizer` does.
//!
//! ```text
//! printf '0x1139\n0x1150\n' | cargo run --release --example addresses -- ./program
//! ```
//!
//! Addresses are those of the file itself, in hexadecimal, one a line. Each gets a line for each
//! frame, the innermost inlined call first, and then an empty line.

use backtrail_pt::Svma;
use backtrail_symbolizer::{DebugSearch, Frame, SymbolFile};
use std::error::Error;
use std::io::{self, BufRead as _, BufWriter, Write as _};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let file = SymbolFile::open(&path.ok_or("usage: addresses FILE")?, &DebugSearch::default())?;
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        let address = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16)?;
        for frame in file.frames_at(Svma(address)) {
            writeln!(out, "{} at {}", frame.function, place(&frame))?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

fn place(frame: &Frame) -> String {
    match &frame.location {
        Some(location) => format!("{}:{}", location.file, location.line),
        None => "??".to_owned(),
    }
}
