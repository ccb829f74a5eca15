//! Arguments of `backtrail export`.

use super::Decode;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `backtrail export`.
#[derive(Debug, Args)]
pub struct Export {
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// The output format
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// The file to write [default: standard output, except for lldb]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,
    /// Export only this thread
    #[arg(long, value_name = "TID")]
    pub thread: Option<u32>,
    /// Start at this position (t1#250), or at whatever `goto` takes, in its thread only
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// End at this position, in its thread only
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Export only calls with fewer than N callers
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// The unit of timestamps
    #[arg(long, value_enum, default_value_t = ExportClock::Auto)]
    pub clock: ExportClock,
    /// Decoder options.
    #[command(flatten)]
    pub decode: Decode,
}

/// Formats of `backtrail export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Perfetto's protobuf: a timeline
    Perfetto,
    /// Chrome's trace events in JSON: a timeline
    Chrome,
    /// The Firefox Profiler's JSON: sampled
    Firefox,
    /// speedscope's JSON: a timeline
    Speedscope,
    /// Folded stacks, for flame graphs
    Folded,
    /// pprof's protobuf, compressed
    Pprof,
    /// A trace bundle that LLDB loads by its trace.json
    Lldb,
}

/// The unit of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportClock {
    /// Time if the trace has it, else instructions
    Auto,
    /// Time
    Time,
    /// Instructions executed by each thread
    Instructions,
}
