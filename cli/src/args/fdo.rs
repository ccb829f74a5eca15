//! Arguments of `backtrail fdo`.

use super::Decode;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `backtrail fdo`.
#[derive(Debug, Args)]
pub struct Fdo {
    /// The binary that was recorded, with its debug information for AutoFDO
    pub binary: PathBuf,
    /// Bundles, perf.data of `perf record -b`, or the text of
    /// `perf script -F ip,brstack --show-mmap-events`
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// The output format
    #[arg(long, value_enum)]
    pub format: FdoFormat,
    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,
    /// Show at most this many rows of each table of a report
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub limit: usize,
    /// Print a report as JSON, with all rows
    #[arg(long)]
    pub json: bool,
    /// How bundles are decoded.
    #[command(flatten)]
    pub decode: Decode,
}

/// Formats of `backtrail fdo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FdoFormat {
    /// A sample profile by lines, for clang -fprofile-sample-use
    Autofdo,
    /// Branches by addresses, for perf2bolt --pa
    Preagg,
    /// Loops with their numbers of iterations, and mispredicted branches, for people
    Report,
}
