//! The command line as types: every command with its arguments and help texts.

#[cfg(feature = "collector")]
mod collector;

#[cfg(feature = "collector")]
pub use collector::{Collect, CrashSelection, Crashes, CrashesDebug, CrashesList, Snapshot, SpoolOptions};

mod export;
#[cfg(feature = "profile")]
mod fdo;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "profile")]
mod profile;
mod record;

pub use export::{Export, ExportClock, ExportFormat};
#[cfg(feature = "profile")]
pub use fdo::{Fdo, FdoFormat};
#[cfg(all(feature = "hub", feature = "profile"))]
pub use hub::PushSymbols;
#[cfg(feature = "hub")]
pub use hub::{HubOptions, Login, OpenLink, Push};
#[cfg(all(feature = "profiler", feature = "hub"))]
pub use profile::ProfileAgent;
#[cfg(feature = "profile")]
pub use profile::{
    Profile, ProfileDiff, ProfileExport, ProfileFormat, ProfileReport, ProfileSelection, ProfileView,
};
#[cfg(feature = "profiler")]
pub use profile::{ProfileEvent, ProfileRecord, ProfileStacks, UprobePlace};

pub use record::{Keep, Pin, Record, RecordEngine, Source};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Reverse debugger for crashes: shows what a program did before it crashed
#[derive(Debug, Parser)]
#[command(
    name = "backtrail",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit status: 0 success, 1 failure, 2 wrong usage, 3 input refused (malformed or unsupported)."
)]
pub struct CommandLine {
    /// When to use colors. `auto` means: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto, global = true)]
    pub color: ColorChoice,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// When output has colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always, also into a file or a pipe.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "collector")]
    /// Report what this machine supports (Intel PT, software recording, core dumps), and how to fix
    /// the rest
    Doctor(Doctor),
    /// Run a program, or attach to one, and record what it executes
    Record(Record),
    #[cfg(feature = "collector")]
    /// Run the daemon that watches all processes and saves the recent history of those that crash
    Collect(Collect),
    #[cfg(feature = "collector")]
    /// Have the collector save a running process, or the traces of all processors
    Snapshot(Snapshot),
    #[cfg(feature = "collector")]
    /// List and open the crashes that the collector saved
    #[command(subcommand)]
    Crashes(Crashes),
    #[cfg(feature = "collector")]
    /// Install systemd units for the collector, or for a service under the recorder
    Install(Install),
    /// Convert a recording of another tool to a bundle
    #[command(subcommand)]
    Import(Import),
    /// Show the contents of a bundle: source, crash, threads, instructions, gaps
    Info(Info),
    /// List everything that a reader would refuse, and every gap with its cause
    Check(Check),
    /// Print packets, instructions, blocks or calls, one per line
    Dump(Dump),
    /// Step through a recording, forward and backward
    Debug(Debug),
    #[cfg(feature = "dap")]
    /// Run the debugger for an editor, by the Debug Adapter Protocol
    Dap(Dap),
    /// Show how long calls of functions took, and where the time was spent
    Latency(Latency),
    /// Export calls and their times to another tool: Perfetto, Chrome, Firefox, speedscope, flame
    /// graphs, pprof, LLDB
    Export(Export),
    #[cfg(feature = "profile")]
    /// Show, compare and convert profiles
    #[command(subcommand)]
    Profile(Profile),
    #[cfg(feature = "profile")]
    /// Write what a binary executed as input for its next build: AutoFDO for clang, BOLT
    Fdo(Fdo),
    /// Pack a bundle directory into one .btz file
    Pack(Pack),
    /// Unpack a .btz file into a bundle directory
    Unpack(Unpack),
    #[cfg(feature = "hub")]
    /// Send crashes to the hub of a team, and print their links
    Push(Push),
    #[cfg(all(feature = "hub", feature = "profile"))]
    /// Send executables and debug files to the hub, which names functions by them
    PushSymbols(PushSymbols),
    #[cfg(feature = "hub")]
    /// Store the address of a hub and a token for it
    Login(Login),
    #[cfg(feature = "hub")]
    /// Open the link of a hub's crash in VS Code
    Open(OpenLink),
    /// Print the completion script for a shell
    Completions(Completions),
    #[cfg(feature = "collector")]
    /// Write the files of a package: systemd units, manual pages, completions
    #[command(hide = true)]
    PackageFiles(PackageFiles),
    /// Report the state of a program after its recorder was killed
    #[command(hide = true)]
    LastWord(LastWord),
    #[cfg(feature = "collector")]
    /// Handle a crash for the kernel, as core_pattern requests
    #[command(hide = true)]
    CoreHandler(CoreHandler),
    #[cfg(feature = "collector")]
    /// Read one crash for the collector
    #[command(hide = true)]
    CoreWorker,
    #[cfg(all(feature = "collector", feature = "hub"))]
    /// Send the collector's crashes to a hub
    #[command(hide = true)]
    CollectSender,
    /// Reads source files for the sender (internal)
    #[cfg(all(feature = "collector", feature = "hub"))]
    #[command(hide = true)]
    CollectSources,
    #[cfg(feature = "collector")]
    /// Restore core_pattern after the collector was killed
    #[command(hide = true)]
    CoreGuard(CoreGuard),
}

#[cfg(feature = "collector")]
/// `backtrail core-handler`.
#[derive(Debug, Args)]
pub struct CoreHandler {
    /// The arguments that core_pattern lists
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<std::ffi::OsString>,
}

#[cfg(feature = "collector")]
/// `backtrail core-guard`.
#[derive(Debug, Args)]
pub struct CoreGuard {
    /// The collector's runtime directory
    pub runtime: PathBuf,
}

#[cfg(feature = "dap")]
/// `backtrail dap`.
#[derive(Debug, Args)]
pub struct Dap {
    /// Listen at unix:PATH or at 127.0.0.1:PORT (0 picks a free port and prints it) instead of
    /// standard input and output, for your own user
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<backtrail_dap::Address>,
    /// Fetch traces only from this server, https://HOST[:PORT]; may be repeated; "none" allows no
    /// server
    #[arg(long, value_name = "ORIGIN", value_parser = parse_allowed_origin)]
    pub allow_origin: Vec<AllowedOrigin>,
    /// Fetch no trace larger than this many MiB
    #[arg(long, value_name = "MIB")]
    pub download_limit: Option<u64>,
}

#[cfg(feature = "dap")]
/// A server that traces may be fetched from. `None` means no server.
pub type AllowedOrigin = Option<backtrail_dap::Origin>;

#[cfg(feature = "dap")]
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

#[cfg(feature = "collector")]
/// `backtrail install`.
#[derive(Debug, Args)]
pub struct Install {
    /// Write below this directory instead of /, and search it for units (for packages and images)
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    /// Also run this service under the recorder, by a drop-in
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Print what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replace existing files that differ; an existing configuration is always kept
    #[arg(long)]
    pub overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(feature = "collector")]
/// `backtrail doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Trace briefly with Intel PT, and check everything that the collector needs
    #[arg(long)]
    pub self_test: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
        to: ImportOutput,
    },
    /// A perf.data file recorded with intel_pt
    Perf {
        /// The perf.data file
        #[arg(value_name = "PERF.DATA")]
        data: PathBuf,
        /// The core of the crash that ended the recording
        #[arg(long)]
        core: Option<PathBuf>,
        /// A directory with the recorded machine's binaries, by path or as .build-id/xx/yyyy; may
        /// be repeated
        #[arg(long, value_name = "DIR")]
        symfs: Vec<PathBuf>,
        #[command(flatten)]
        to: ImportOutput,
    },
    /// Raw PT packets with the code that they executed
    Raw(ImportRaw),
}

/// The output of an import.
#[derive(Debug, Args)]
pub struct ImportOutput {
    /// The bundle to write
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: PathBuf,
    /// Replace an existing bundle
    #[arg(long)]
    pub overwrite: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail import raw`.
#[derive(Debug, Args)]
pub struct ImportRaw {
    /// The file with the PT packets
    #[arg(long, value_name = "FILE")]
    pub pt: PathBuf,
    /// Code: FILE[:OFFSET:SIZE][@ADDRESS]; an ELF file has its own addresses, other files need
    /// ADDRESS
    #[arg(long = "image", value_name = "IMAGE", required_unless_present = "pages")]
    pub images: Vec<String>,
    /// A page list: text lines of an address and the code bytes there, in hexadecimal digits
    #[arg(long = "pages", value_name = "FILE")]
    pub pages: Vec<PathBuf>,
    /// A traced address range: FROM-TO
    #[arg(long = "addr-filter", value_name = "FROM-TO")]
    pub filters: Vec<String>,
    /// The processor: FAMILY/MODEL/STEPPING
    #[arg(long, value_name = "F/M/S")]
    pub cpu: Option<backtrail_pt::CpuModel>,
    /// The MTC period is 2^N crystal clock ticks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub mtc_freq: u8,
    /// Nominal frequency ratio
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub nom_freq: u8,
    /// CPUID leaf 15h, EAX/EBX: the ratio of the TSC to the crystal clock
    #[arg(long, value_name = "EAX/EBX", value_parser = parse_pair)]
    pub cpuid_15h: Option<(u32, u32)>,
    /// The core of the crash that ended the recording
    #[arg(long)]
    pub core: Option<PathBuf>,
    /// The output.
    #[command(flatten)]
    pub to: ImportOutput,
}

/// Options of commands that decode.
#[derive(Clone, Debug, Args)]
pub struct Decode {
    /// The decode engine; there is one
    #[arg(long, value_name = "ENGINE", default_value = "native", value_parser = ["native"], hide = true)]
    pub engine: String,
    /// The most decoder threads [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<std::num::NonZeroUsize>,
    /// Decode only about the last MIB of each trace, to save time and memory; history begins there
    #[arg(long, value_name = "MIB")]
    pub last: Option<std::num::NonZeroU32>,
    /// A directory with the recorded machine's binaries and debug files, by path or as
    /// .build-id/xx/yyyy; may be repeated
    #[arg(long, value_name = "DIR")]
    pub symfs: Vec<PathBuf>,
}

/// `backtrail info`.
#[derive(Debug, Args)]
pub struct Info {
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// Print one line per thread: instructions, errors and a digest of all instruction addresses
    #[arg(long)]
    pub digest: bool,
    #[command(flatten)]
    /// Decoder options.
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
    /// Decoder options.
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// The items to print
    #[arg(value_enum)]
    pub what: DumpKind,
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// Print only this thread (for packets of a per-processor bundle: this processor)
    #[arg(long, value_name = "TID")]
    pub thread: Option<u32>,
    /// Start at a position (t1#250, or t1#-250 from the end), an index (250), or a byte offset for
    /// packets
    #[arg(long, value_name = "POSITION")]
    pub from: Option<String>,
    /// Print at most this many items
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Decoder options.
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// The items that `backtrail dump` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpKind {
    /// PT packets with their offsets
    Packets,
    /// Instructions in execution order
    Instructions,
    /// Basic blocks
    Blocks,
    /// The call forest
    Calls,
}

/// `backtrail debug`.
#[derive(Debug, Args)]
pub struct Debug {
    /// A bundle directory, a .btz file, the link of a hub's crash, or an ELF core, also compressed
    /// [default: the newest core of systemd-coredump]
    #[arg(value_name = "BUNDLE|LINK|CORE")]
    pub input: Option<PathBuf>,
    /// The directory of systemd-coredump
    #[arg(long, value_name = "DIR", default_value = "/var/lib/systemd/coredump")]
    pub core_dir: PathBuf,
    /// Start at this position (t1#250), or at whatever `goto` takes, instead of at the crash
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Read no commands from the terminal; exit after those of -x and -e
    #[arg(long)]
    pub batch: bool,
    /// Print output longer than the terminal without a pager
    #[arg(long)]
    pub no_pager: bool,
    /// A command to run first (may be repeated)
    #[arg(short = 'e', long = "execute", value_name = "COMMAND")]
    pub commands: Vec<String>,
    /// A file with commands to run first
    #[arg(short = 'x', long = "command-file", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Decoder options.
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON, one object per command
    #[arg(long)]
    pub json: bool,
}

/// `backtrail latency`.
#[derive(Debug, Args)]
pub struct Latency {
    /// A bundle directory or .btz file
    pub bundle: PathBuf,
    /// A function, or /REGEX/ for all matching functions together
    #[arg(value_name = "FUNCTION", required = true)]
    pub functions: Vec<String>,
    /// Count instructions instead of time
    #[arg(long)]
    pub instructions: bool,
    /// Also list this many of the slowest calls
    #[arg(long, value_name = "N")]
    pub slowest: Option<std::num::NonZeroU32>,
    /// Use the process of this thread, instead of the one that crashed
    #[arg(long, value_name = "TID")]
    pub thread: Option<u32>,
    /// Decoder options.
    #[command(flatten)]
    pub decode: Decode,
    /// Print JSON, one object per function
    #[arg(long)]
    pub json: bool,
}

/// `backtrail pack`.
#[derive(Debug, Args)]
pub struct Pack {
    /// The bundle directory, or a .btz file to change
    pub bundle: PathBuf,
    /// The .btz file to write
    #[arg(short, long, value_name = "FILE.btz")]
    pub output: PathBuf,
    /// Source files for the bundle.
    #[command(flatten)]
    pub sources: SourceOptions,
    /// Remove data from the packed bundle, to share it; several are separated by commas. The bundle
    /// directory stays as it is
    #[arg(long, value_enum, value_name = "DATA", value_delimiter = ',')]
    pub redact: Vec<RedactedData>,
}

/// Data that `backtrail pack` removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RedactedData {
    /// The values of environment variables, and their copies of at least 8 bytes
    Env,
    /// The arguments of the command line, and their copies of at least 8 bytes
    Args,
    /// The memory of the process, and its vector registers
    Memory,
}

/// Options for source files in a bundle.
#[derive(Debug, Args)]
pub struct SourceOptions {
    /// Add source files that the program executed: the lines around executed ones, or whole files
    #[arg(
        long,
        value_enum,
        value_name = "EXTENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "lines"
    )]
    pub sources: Option<SourceExtent>,
    /// With --sources: add files below this directory only; may be repeated [default: the directory
    /// in which a file was compiled, except those of the system]
    #[arg(long = "source-dir", value_name = "DIR", requires = "sources")]
    pub directories: Vec<PathBuf>,
}

/// The part of source files that a bundle gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceExtent {
    /// Ten lines before and after each executed line
    Lines,
    /// Whole files
    Files,
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
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[cfg(feature = "collector")]
/// `backtrail package-files`.
#[derive(Debug, Args)]
pub struct PackageFiles {
    /// The root directory of the package
    #[arg(value_name = "DIR")]
    pub root: PathBuf,
}

/// Parses a size in bytes: a number with an optional K, M or G (1024-based).
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; examples: 512K, 64M, 1G");
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

/// Parses a size in bytes that may be 0.
fn parse_size_or_zero(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        _ => parse_size(text),
    }
}

/// Parses a limit for the size of the code cache.
fn parse_cache(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    match backtrail_recorder::RecordOptions::CACHE.contains(&size) {
        true => Ok(size),
        false => Err(format!("the cache size '{text}' is out of range; use 64K to 64M")),
    }
}

/// Parses a duration: a number with ms, s, m or h.
fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("'{text}' is not a duration; examples: 500ms, 10s, 2m");
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

/// Parses two numbers separated by a slash.
fn parse_pair(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("'{text}' is not EAX/EBX; example: 2/266");
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
    fn command_table_is_consistent() {
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

    /// Other options that conflict with --daemon must not make --config valid without it.
    #[test]
    fn config_option_requires_daemon() {
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
