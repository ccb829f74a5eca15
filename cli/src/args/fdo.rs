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
    /// With csspgo, write each calling context as a profile of its own, instead of only those that
    /// the next build should inline
    #[arg(long)]
    pub all_contexts: bool,
    /// With csspgo, keep at most this many calls of each context, the innermost [default: all]
    #[arg(long, value_name = "N")]
    pub max_context_depth: Option<usize>,
    /// How bundles are decoded.
    #[command(flatten)]
    pub decode: Decode,
}

/// Formats of `backtrail fdo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FdoFormat {
    /// A sample profile by lines, or by pseudo-probes if the binary has them, for clang
    /// -fprofile-sample-use
    Autofdo,
    /// The same with calling contexts, from bundles and from LBR with call chains
    Csspgo,
    /// Branches by addresses, for perf2bolt --pa
    Preagg,
    /// Branches and fall-throughs by functions, for llvm-bolt -data
    Fdata,
    /// Loops with their numbers of iterations, and mispredicted branches, for people
    Report,
}
