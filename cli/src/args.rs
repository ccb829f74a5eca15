//! The command line as types: every command, its arguments and their help.

mod collector;

pub use collector::{Collect, Crashes, CrashesDebug, CrashesList, CrashesOne, Snapshot, SpoolPlace};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Reverse debugging of crashes: what the program did before it crashed.
#[derive(Debug, Parser)]
#[command(
    name = "backtrail",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit status: 0 done, 1 could not do it, 2 wrong usage, 3 the input was refused: malformed, or of a kind that is not read."
)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What this machine can do: Intel PT, recording in software, core dumps; why not, and the fix
    Doctor(Doctor),
    /// Run a program, or attach to one, and record what it executes
    Record(Record),
    /// Watch all processes, and save the last moments of those that crash: the daemon
    Collect(Collect),
    /// Have the collector save a process that goes on, or the traces of all
    Snapshot(Snapshot),
    /// The crashes that the collector saved
    #[command(subcommand)]
    Crashes(Crashes),
    /// Write the files that have systemd run the collector, or a service under the recorder
    Install(Install),
    /// Turn somebody else's recording into a bundle
    #[command(subcommand)]
    Import(Import),
    /// What a bundle holds: source, crash, threads, instructions, gaps
    Info(Info),
    /// Everything a reader would refuse, and every gap with its cause
    Check(Check),
    /// Print packets, instructions, blocks or calls, one a line
    Dump(Dump),
    /// Walk through a recording, forward and backward
    Debug(Debug),
    /// Let an editor drive the debugger, by the Debug Adapter Protocol
    Dap(Dap),
    /// How long the calls of functions took, and where the time went
    Latency(Latency),
    /// Write calls and their times for another tool: Perfetto, Chrome, Firefox, speedscope, flame graphs, pprof, LLDB
    Export(Export),
    /// Pack a bundle directory into one .btz file
    Pack(Pack),
    /// Unpack a .btz file into a bundle directory
    Unpack(Unpack),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Say what became of a program when its recorder was killed
    #[command(hide = true)]
    LastWord(LastWord),
    /// What the kernel starts at a crash, by core_pattern
    #[command(hide = true)]
    CoreHandler(CoreHandler),
    /// What the collector starts to read one crash
    #[command(hide = true)]
    CoreWorker,
    /// What puts core_pattern back when the collector is killed
    #[command(hide = true)]
    CoreGuard(CoreGuard),
}

/// `backtrail core-handler`.
#[derive(Debug, Args)]
pub struct CoreHandler {
    /// As the pattern asks for them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `backtrail core-guard`.
#[derive(Debug, Args)]
pub struct CoreGuard {
    /// The collector's runtime directory
    pub runtime: PathBuf,
}

/// `backtrail dap`.
#[derive(Debug, Args)]
pub struct Dap {
    /// Listen at unix:PATH or, on this machine alone, 127.0.0.1:PORT (0 for any free port, which is printed), instead of
    /// speaking over standard input and output; only your own user can connect
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<backtrail_dap::Address>,
    /// Fetch traces from this server alone, https://HOST[:PORT]; may be given several times; "none" for no server
    #[arg(long, value_name = "ORIGIN", value_parser = parse_allowed_origin)]
    pub allow_origin: Vec<AllowedOrigin>,
    /// Fetch no trace that is larger, in MiB
    #[arg(long, value_name = "MIB")]
    pub download_limit: Option<u64>,
}

/// A server that traces may be fetched from; `None`: no server.
pub type AllowedOrigin = Option<backtrail_dap::Origin>;

fn parse_allowed_origin(text: &str) -> Result<AllowedOrigin, String> {
    match text {
        "none" => Ok(None),
        origin => origin.parse().map(Some),
    }
}

/// `backtrail last-word`.
#[derive(Debug, Args)]
pub struct LastWord {
    /// The process that the recorder was attached to
    pub pid: Option<u32>,
}

/// `backtrail install`.
#[derive(Debug, Args)]
pub struct Install {
    /// Write under this folder instead of /, and look for units there: for a package, or an image
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    /// Also have this service run under the recorder, by a drop-in
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Say what would be written where, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replace files that are there and differ; the configuration stays in any case
    #[arg(long)]
    pub overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Trace for a moment with Intel PT, and check all that the collector needs of it
    #[arg(long)]
    pub self_test: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Where the trace comes from
    #[arg(long, value_enum, default_value_t = Source::Auto)]
    pub source: Source,
    /// How the software source follows the program
    #[arg(long, value_enum, default_value_t = RecordEngine::Translate)]
    pub engine: RecordEngine,
    /// Which processors recorder and program run on
    #[arg(long, value_enum, default_value_t = Pin::Auto)]
    pub pin: Pin,
    /// Room for translated code near each part of the program, 64K to 64M; when full, it is emptied
    #[arg(long, value_name = "SIZE", value_parser = parse_cache, default_value = "64M")]
    pub cache: u64,
    /// Keep the newest SIZE bytes of trace a thread (K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M", conflicts_with = "full")]
    pub ring: u64,
    /// Keep the whole trace, however long
    #[arg(long)]
    pub full: bool,
    /// Let child processes go unrecorded
    #[arg(long)]
    pub no_follow: bool,
    /// Run the program at fixed addresses, so that two runs are the same
    #[arg(long)]
    pub no_aslr: bool,
    /// Tell in full where each return goes, not by one bit where its call says so: a larger trace
    #[arg(long)]
    pub no_compress_returns: bool,
    /// Where to write the bundle [default: PROG.bundle in this folder]
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: Option<PathBuf>,
    /// Replace an earlier bundle at the same place
    #[arg(long)]
    pub overwrite: bool,
    /// Run as a service: save each crash into the collector's spool, and end as the program ends
    #[arg(long, conflicts_with_all = ["full", "output", "overwrite", "golden", "json"])]
    pub daemon: bool,
    /// With --daemon: the collector's configuration; /etc/backtrail/collect.toml if there is one
    #[arg(long, value_name = "FILE", requires = "daemon")]
    #[arg(conflicts_with_all = ["full", "output", "overwrite", "golden", "json"])]
    pub config: Option<PathBuf>,
    /// Attach to this running process instead
    #[arg(long, value_name = "PID", conflicts_with = "program")]
    pub pid: Option<u32>,
    /// End after this long (500ms, 10s, 2m); Ctrl-C ends it too
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<std::time::Duration>,
    /// Also write the executed instruction addresses, 8 little-endian bytes each, to DIR/TID.ips (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub golden: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "pid", value_name = "PROG")]
    pub program: Vec<std::ffi::OsString>,
}

/// Trace sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Hardware where the machine has it, else software
    Auto,
    /// Intel Processor Trace
    Hardware,
    /// The software recorder
    Software,
}

/// Which processors recorder and program run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// Together with the engine step, anywhere with translate
    Auto,
    /// The program on the processor of the thread that minds it; it sees one processor
    Together,
    /// Anywhere
    Off,
}

/// Engines of the software recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecordEngine {
    /// In a code cache, stopped only for code not seen before
    Translate,
    /// One instruction at a time: exact, slow
    Step,
}

/// `backtrail import`.
#[derive(Debug, Subcommand)]
pub enum Import {
    /// An LLDB trace bundle (its trace.json)
    Lldb {
        /// LLDB's trace.json
        #[arg(value_name = "TRACE.json")]
        trace: PathBuf,
        #[command(flatten)]
        to: ImportTo,
    },
    /// A perf.data file recorded with intel_pt
    Perf {
        /// The perf.data file
        #[arg(value_name = "PERF.DATA")]
        data: PathBuf,
        /// The core of the crash that ended the recording
        #[arg(long)]
        core: Option<PathBuf>,
        /// Where the recorded machine's binaries are, as perf's --symfs
        #[arg(long, value_name = "DIR")]
        symfs: Option<PathBuf>,
        #[command(flatten)]
        to: ImportTo,
    },
    /// Raw PT bytes with the code they ran through
    Raw(ImportRaw),
}

/// Where an import goes.
#[derive(Debug, Args)]
pub struct ImportTo {
    /// Where to write the bundle
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: PathBuf,
    /// Replace an earlier bundle at the same place
    #[arg(long)]
    pub overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail import raw`.
#[derive(Debug, Args)]
pub struct ImportRaw {
    /// The PT bytes
    #[arg(long, value_name = "FILE")]
    pub pt: PathBuf,
    /// Code: FILE[:OFFSET:SIZE][@ADDRESS]; an ELF file loads itself, anything else is bytes at ADDRESS
    #[arg(long = "image", value_name = "IMAGE", required = true)]
    pub images: Vec<String>,
    /// Addresses that were traced: FROM-TO
    #[arg(long = "addr-filter", value_name = "FROM-TO")]
    pub filters: Vec<String>,
    /// The processor: FAMILY/MODEL/STEPPING
    #[arg(long, value_name = "F/M/S")]
    pub cpu: Option<backtrail_pt::CpuModel>,
    /// MTC packets come every 2^N crystal clock ticks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub mtc_freq: u8,
    /// Nominal frequency ratio
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub nom_freq: u8,
    /// CPUID leaf 15h: the TSC to crystal clock ratio
    #[arg(long, value_name = "EAX/EBX", value_parser = parse_pair)]
    pub cpuid_15h: Option<(u32, u32)>,
    /// The core of the crash that ended the recording
    #[arg(long)]
    pub core: Option<PathBuf>,
    /// Where it goes.
    #[command(flatten)]
    pub to: ImportTo,
}

/// Which decode engine, and how wide.
#[derive(Clone, Debug, Args)]
pub struct Decode {
    /// The decode engine
    #[arg(long, value_name = "ENGINE", default_value = "native")]
    pub engine: String,
    /// At most so many threads decode at once; as many as there are processors if not given
    #[arg(long, value_name = "N")]
    pub jobs: Option<std::num::NonZeroUsize>,
    /// Decodes only about the last MIB of each trace, for less time and memory; history begins there
    #[arg(long, value_name = "MIB")]
    pub last: Option<std::num::NonZeroU32>,
}

/// `backtrail info`.
#[derive(Debug, Args)]
pub struct Info {
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// One line a thread: instructions, errors and a digest of every instruction's address
    #[arg(long)]
    pub digest: bool,
    #[command(flatten)]
    /// How to decode.
    pub decode: Decode,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail check`.
#[derive(Debug, Args)]
pub struct Check {
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// How to decode.
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// What to print
    #[arg(value_enum)]
    pub what: DumpWhat,
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// Only this thread (of packets in a per-processor bundle: this processor)
    #[arg(long, value_name = "TID")]
    pub thread: Option<u32>,
    /// Begin here: a position (t1#250, t1#-250 from the end), an index (250), or of packets a byte offset
    #[arg(long, value_name = "POSITION")]
    pub from: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// How to decode.
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// What `backtrail dump` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpWhat {
    /// PT packets with their offsets
    Packets,
    /// Instructions in the order they ran
    Instructions,
    /// Runs of instructions up to a branch
    Blocks,
    /// The call forest
    Calls,
}

/// `backtrail debug`.
#[derive(Debug, Args)]
pub struct Debug {
    /// A bundle directory, a .btz file, or an ELF core
    #[arg(value_name = "BUNDLE|CORE")]
    pub input: PathBuf,
    /// Read no commands from the terminal; end after those of -x and -e
    #[arg(long)]
    pub batch: bool,
    /// A command to run first (again for more)
    #[arg(short = 'e', long = "execute", value_name = "COMMAND")]
    pub commands: Vec<String>,
    /// A file of commands to run first
    #[arg(short = 'x', long = "command-file", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How to decode.
    #[command(flatten)]
    pub decode: Decode,
    /// Where the recorded machine's binaries and debug files are
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,
    /// Print JSON, one object a command
    #[arg(long)]
    pub json: bool,
}

/// `backtrail latency`.
#[derive(Debug, Args)]
pub struct Latency {
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// A function, or /REGEX/ for all that match together
    #[arg(value_name = "FUNCTION", required = true)]
    pub functions: Vec<String>,
    /// Count instructions instead of time
    #[arg(long)]
    pub instructions: bool,
    /// List the calls that took longest too, so many of them
    #[arg(long, value_name = "N")]
    pub slowest: Option<std::num::NonZeroU32>,
    /// Of the process of this thread, instead of the one that crashed
    #[arg(long, value_name = "TID")]
    pub thread: Option<u32>,
    /// How to decode.
    #[command(flatten)]
    pub decode: Decode,
    /// Where the recorded machine's binaries and debug files are
    #[arg(long, value_name = "DIR")]
    pub symfs: Option<PathBuf>,
    /// Print JSON, one object a function
    #[arg(long)]
    pub json: bool,
}

/// `backtrail export`.
#[derive(Debug, Args)]
pub struct Export {
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// For which tool
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// Where to write; standard output if not given, but for lldb
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an earlier file at the same place
    #[arg(long)]
    pub overwrite: bool,
    /// Only this thread
    #[arg(long, value_name = "TID")]
    pub thread: Option<u32>,
    /// Begin at this position (t1#250, t1#-250 from the end), in its thread alone
    #[arg(long, value_name = "POSITION")]
    pub from: Option<backtrail_decoder::Position>,
    /// End at this position, in its thread alone
    #[arg(long, value_name = "POSITION")]
    pub to: Option<backtrail_decoder::Position>,
    /// Only calls that are inside of fewer than N others
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// What moments are counted in
    #[arg(long, value_enum, default_value_t = ExportClock::Auto)]
    pub clock: ExportClock,
    /// How to decode.
    #[command(flatten)]
    pub decode: Decode,
}

/// Formats of `backtrail export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Perfetto's protobuf, a timeline
    Perfetto,
    /// Chrome's trace events, JSON, a timeline
    Chrome,
    /// The Firefox Profiler's JSON, sampled
    Firefox,
    /// speedscope's JSON, a timeline
    Speedscope,
    /// Folded stacks, for flame graphs
    Folded,
    /// pprof's protobuf, compressed
    Pprof,
    /// A trace bundle as LLDB loads it: its trace.json
    Lldb,
}

/// What moments are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportClock {
    /// Time where the trace has it, else instructions
    Auto,
    /// Time
    Time,
    /// Instructions of each thread
    Instructions,
}

/// `backtrail pack`.
#[derive(Debug, Args)]
pub struct Pack {
    /// The bundle directory
    pub bundle: PathBuf,
    /// The .btz file to write
    #[arg(short, long, value_name = "FILE.btz")]
    pub output: PathBuf,
}

/// `backtrail unpack`.
#[derive(Debug, Args)]
pub struct Unpack {
    /// The .btz file
    #[arg(value_name = "FILE.btz")]
    pub file: PathBuf,
    /// The bundle directory to write
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: PathBuf,
}

/// `backtrail completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// Whose
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Bytes: a number with an optional K, M or G (1024-based).
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: write for example 512K, 64M or 1G");
    let (digits, shift) = match text
        .trim_end_matches("iB")
        .trim_end_matches('B')
        .char_indices()
        .next_back()
    {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(1 << shift)
        .filter(|&size| size > 0)
        .ok_or_else(wrong)
}

/// Bytes that the code cache can be limited to.
fn parse_cache(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    match backtrail_recorder::RecordOptions::CACHE.contains(&size) {
        true => Ok(size),
        false => Err(format!("'{text}' is no size of the cache: it has 64K to 64M")),
    }
}

/// A time span: a number with ms, s, m or h.
fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("'{text}' is no duration: write for example 500ms, 10s or 2m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let factor = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(factor)
        .map(std::time::Duration::from_millis)
        .ok_or_else(wrong)
}

/// Two numbers with a slash between.
fn parse_pair(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("'{text}' is no EAX/EBX: write for example 2/266");
    let (first, second) = text.split_once('/').ok_or_else(wrong)?;
    Ok((
        first.parse().map_err(|_| wrong())?,
        second.parse().map_err(|_| wrong())?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_of_commands_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn sizes_and_durations_are_read_or_refused() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        for text in ["", "M", "0", "-1", "20000000000G", "1T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_cache("64K"), Ok(64 << 10));
        assert_eq!(parse_cache("64M"), Ok(64 << 20));
        for text in ["65535", "65M", "1", "1G", "x"] {
            assert!(parse_cache(text).is_err(), "{text}");
        }
        assert_eq!(parse_duration("500ms"), Ok(std::time::Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(std::time::Duration::from_secs(120)));
        for text in ["", "s", "1d", "99999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_pair("2/266"), Ok((2, 266)));
        assert!(parse_pair("2").is_err());
    }

    /// Options that rule out --daemon must not let --config pass without it.
    #[test]
    fn the_collectors_configuration_goes_with_daemon_alone() {
        let parses = |options: &[&str]| {
            let words = [
                &["backtrail", "record", "--config", "c"],
                options,
                &["--", "true"],
            ];
            CommandLine::try_parse_from(words.concat()).is_ok()
        };
        assert!(parses(&["--daemon"]));
        for options in [&[][..], &["-o", "b"], &["--full"], &["--overwrite"], &["--json"]] {
            assert!(!parses(options), "{options:?}");
        }
    }
}
