//! `record` and its options.

use super::{SourceOptions, parse_cache, parse_duration, parse_size, parse_size_or_zero};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `backtrail record`.
#[derive(Debug, Args)]
pub struct Record {
    /// The source of the trace
    #[arg(long, value_enum, default_value_t = Source::Auto)]
    pub source: Source,
    /// The engine of the software recorder [default: translate]
    #[arg(long, value_enum)]
    pub engine: Option<RecordEngine>,
    /// The processors that the recorder and the program run on
    #[arg(long, value_enum, default_value_t = Pin::Auto)]
    pub pin: Pin,
    /// Size of the code cache near each part of the program, 64K to 64M; it is flushed when full
    #[arg(long, value_name = "SIZE", value_parser = parse_cache, default_value = "64M")]
    pub cache: u64,
    /// Keep translated code in the cache directory, for faster recordings later: at most SIZE
    /// bytes, 0 for none
    #[arg(long, value_name = "SIZE", value_parser = parse_size_or_zero, default_value = "1G")]
    pub translations: u64,
    /// Also record heap events: calls of malloc, free, new, delete and their kind, with blocks and
    /// sizes
    #[arg(long)]
    pub heap: bool,
    /// Also record values, so that variables are known at each past position. Keeps the newest SIZE
    /// bytes per thread, compressed
    #[arg(long, value_name = "SIZE", value_parser = parse_size, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "256M", conflicts_with = "heap")]
    pub values: Option<u64>,
    /// The size of a segment of values, for tests
    #[arg(long, hide = true, value_name = "SIZE", value_parser = parse_size, requires = "values")]
    pub values_segment: Option<u64>,
    /// Keep no last lines of the program's standard error
    #[arg(long)]
    pub no_stderr: bool,
    /// Keep the newest SIZE bytes of trace per thread (K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M", conflicts_with = "full")]
    pub ring: u64,
    /// Keep the whole trace, of any length
    #[arg(long)]
    pub full: bool,
    /// Record only programs with this name, of a command that starts many: `*` is any text, `?` one
    /// character; repeatable. Each process gets its own bundle
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "daemon", "no_follow", "full", "golden"])]
    pub only: Vec<String>,
    /// The processes whose bundles to keep, one for each process [default: all, with --only]
    #[arg(long, value_enum, conflicts_with_all = ["pid", "daemon", "no_follow", "full", "golden"])]
    pub keep: Option<Keep>,
    /// Do not record child processes
    #[arg(long)]
    pub no_follow: bool,
    /// Disable address space randomization, so that two runs are the same
    #[arg(long)]
    pub no_aslr: bool,
    /// Disable return compression: record the target of each return as a TIP packet; the trace is
    /// larger
    #[arg(long)]
    pub no_compress_returns: bool,
    /// The bundle to write [default: PROG.bundle in the current directory, or PROG.2.bundle and so
    /// on if that exists]. With --only or --keep: the directory of the bundles
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: Option<PathBuf>,
    /// Replace an existing bundle
    #[arg(long)]
    pub overwrite: bool,
    /// Source files for the bundle.
    #[command(flatten)]
    pub sources: SourceOptions,
    /// Run as a service: save each crash to the collector's spool, and exit as the program does
    #[arg(long, conflicts_with_all = ["full", "output", "overwrite", "sources", "golden", "json"])]
    pub daemon: bool,
    /// With --daemon: the collector's configuration [default: /etc/backtrail/collect.toml, if it
    /// exists]
    #[arg(long, value_name = "FILE", requires = "daemon")]
    #[arg(conflicts_with_all = ["full", "output", "overwrite", "golden", "json"])]
    pub config: Option<PathBuf>,
    /// Attach to this running process
    #[arg(long, value_name = "PID", conflicts_with = "program")]
    pub pid: Option<u32>,
    /// Stop after this time (500ms, 10s, 2m); Ctrl-C also stops
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<std::time::Duration>,
    /// Also write the address of each executed instruction, as 8 little-endian bytes, to
    /// DIR/TID.ips (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub golden: Option<PathBuf>,
    /// Exit with status 0 also if the program fails or crashes. Without this option the status is
    /// the program's, or 128 and the number of its signal
    #[arg(long)]
    pub exit_zero: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments. Everything after PROG is the program's; `--` may precede it
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "pid",
        value_name = "PROG"
    )]
    pub program: Vec<std::ffi::OsString>,
}

/// The processes whose bundles are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// All recorded processes
    All,
    /// Those that crashed, exited with another status than 0, or still ran at the end
    Failed,
}

/// Trace sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Hardware if the machine has it, else software
    Auto,
    /// Intel Processor Trace
    Hardware,
    /// The software recorder
    Software,
}

/// The processors that the recorder and the program run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// Together with the engine step, on any processor with translate
    Auto,
    /// The program runs on the processor of its tracing thread, and sees only that one
    Together,
    /// On any processor
    Off,
}

/// Engines of the software recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecordEngine {
    /// Use a code cache; stop the program only for code not seen before
    Translate,
    /// Single-step each instruction: exact, but slow
    Step,
}
