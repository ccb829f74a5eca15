//! Arguments of `backtrail profile`.

use clap::{Args, Subcommand, ValueEnum};
use regex::Regex;
use std::path::PathBuf;

/// `backtrail profile`.
#[derive(Debug, Subcommand)]
pub enum Profile {
    /// Sample programs with their stacks, and write a profile while they run
    #[cfg(feature = "profiler")]
    Record(ProfileRecord),
    /// Sample all programs of this host without end, and send the profiles to the hub
    #[cfg(all(feature = "profiler", feature = "hub"))]
    Agent(ProfileAgent),
    /// Show where a profile's weight is: by function, as a tree, or around one function
    Report(ProfileReport),
    /// Compare two profiles by function
    Diff(ProfileDiff),
    /// Convert a profile to the format of another tool
    Export(ProfileExport),
}

/// `backtrail profile record`.
#[cfg(feature = "profiler")]
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["pid", "cgroup", "all", "program"]))]
pub struct ProfileRecord {
    /// Sample this process, and the processes that it starts
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Sample the processes of this control group
    #[arg(long, value_name = "GROUP")]
    pub cgroup: Option<PathBuf>,
    /// Sample all processes and the kernel
    #[arg(long)]
    pub all: bool,
    /// The event; may be repeated
    #[arg(
        long,
        value_name = "EVENT",
        default_value = "cpu",
        value_parser = ProfileEventParser,
        long_help = ProfileEvent::HELP
    )]
    pub event: Vec<ProfileEvent>,
    /// Samples a second of each busy processor
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub freq: u64,
    /// Walk stacks of programs by eBPF, or by copies of the stacks
    #[arg(long, value_enum, value_name = "METHOD", default_value_t)]
    pub stacks: ProfileStacks,
    /// Stop after this time (500ms, 10s, 2m); Ctrl-C also stops
    #[arg(long, value_name = "DURATION", value_parser = super::parse_duration)]
    pub duration: Option<std::time::Duration>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "backtrail.prof")]
    pub output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,
    /// Keep the newest SIZE bytes of samples (K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = super::parse_size, default_value = "256M")]
    pub max_size: u64,
    /// Lower the rate rather than take more of all processors' time
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub cpu_budget: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The program to start and its arguments
    #[arg(last = true, value_name = "PROG")]
    pub program: Vec<std::ffi::OsString>,
}

/// `backtrail profile agent`.
#[cfg(all(feature = "profiler", feature = "hub"))]
#[derive(Debug, Args)]
pub struct ProfileAgent {
    /// The hub.
    #[command(flatten)]
    pub hub: super::HubOptions,
    /// The directory of profiles that wait to be sent
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/backtrail/profiles")]
    pub spool: PathBuf,
    /// Remove the oldest profiles beyond this size, as after a day without the hub (K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = super::parse_size, default_value = "1G")]
    pub max_size: u64,
    /// The time between two profiles (500ms, 10s, 2m)
    #[arg(long, value_name = "DURATION", value_parser = super::parse_duration, default_value = "10s")]
    pub interval: std::time::Duration,
    /// The event; may be repeated
    #[arg(
        long,
        value_name = "EVENT",
        default_value = "cpu",
        value_parser = ProfileEventParser,
        long_help = ProfileEvent::HELP
    )]
    pub event: Vec<ProfileEvent>,
    /// Samples a second of each busy processor
    #[arg(long, value_name = "HZ", default_value_t = 49, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub freq: u64,
    /// Walk stacks of programs by eBPF, or by copies of the stacks
    #[arg(long, value_enum, value_name = "METHOD", default_value_t)]
    pub stacks: ProfileStacks,
    /// Lower the rate rather than take more of all processors' time
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub cpu_budget: f64,
    /// The name of this host [default: that of the system]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// The service of all programs [default: each program is one]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// The build of all programs
    #[arg(long, value_name = "NAME")]
    pub build: Option<String>,
    /// The region of this host
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Stop after this time; Ctrl-C also stops
    #[arg(long, value_name = "DURATION", value_parser = super::parse_duration)]
    pub duration: Option<std::time::Duration>,
    /// Stop when standard input ends (internal: the collector's daemon holds it)
    #[arg(long, hide = true)]
    pub attached: bool,
}

/// Values of `--stacks`.
#[cfg(feature = "profiler")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProfileStacks {
    /// By eBPF where the kernel permits, otherwise by copies
    #[default]
    Auto,
    /// By eBPF, or not at all
    Ebpf,
    /// By copies
    Copy,
}

/// Events of `backtrail profile record`.
#[cfg(feature = "profiler")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileEvent {
    /// Processor time
    Cpu,
    /// Time in which threads wait
    OffCpu,
    /// Cycles, or processor time on machines that do not count them
    Cycles,
    /// Cycles, with the last branches that programs took (LBR)
    Lbr,
    /// Instructions
    Instructions,
    /// Cache misses
    CacheMisses,
    /// Page faults
    PageFaults,
    /// A tracepoint, as `sched:sched_switch`
    Tracepoint(String),
    /// A function or offset of a file, as `./server:handle` or `libc.so.6:0x9f0a0`
    Uprobe(UprobePlace),
}

/// An instruction of a file.
#[cfg(feature = "profiler")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UprobePlace {
    /// The file.
    pub file: PathBuf,
    /// A function, or an offset in the file in hexadecimal with `0x`.
    pub place: String,
}

#[cfg(feature = "profiler")]
impl ProfileEvent {
    /// Names and meanings of events without a parameter.
    const FIXED: [(&str, &str, Self); 7] = [
        ("cpu", "processor time", Self::Cpu),
        (
            "off-cpu",
            "time in which threads wait, and the threads that end the waits",
            Self::OffCpu,
        ),
        (
            "cycles",
            "cycles, or processor time on machines that do not count them",
            Self::Cycles,
        ),
        (
            "lbr",
            "cycles, with the last branches that programs took (LBR), for `backtrail fdo`",
            Self::Lbr,
        ),
        ("instructions", "instructions", Self::Instructions),
        ("cache-misses", "cache misses", Self::CacheMisses),
        ("page-faults", "page faults", Self::PageFaults),
    ];

    const HELP: &str = "\
The event; may be repeated. Besides the values below:
tracepoint:GROUP:NAME: a tracepoint of the kernel, as tracepoint:sched:sched_process_exec
uprobe:FILE:FUNCTION, uprobe:FILE:0xOFFSET: executions of an instruction of a file";

    /// Returns the event without a parameter of this name.
    pub fn fixed(name: &str) -> Option<Self> {
        let found = Self::FIXED.iter().find(|(known, _, _)| *known == name);
        found.map(|(_, _, event)| event.clone())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Some(event) = Self::fixed(text) {
            return Ok(event);
        }
        let event = match text.split_once(':') {
            Some(("tracepoint", name)) if name.contains(':') => Self::Tracepoint(name.to_owned()),
            Some(("uprobe", place)) => {
                let (file, place) = place.rsplit_once(':').unwrap_or_default();
                if file.is_empty() || place.is_empty() {
                    return Err("expected uprobe:FILE:FUNCTION or uprobe:FILE:0xOFFSET".to_owned());
                }
                Self::Uprobe(UprobePlace {
                    file: file.into(),
                    place: place.to_owned(),
                })
            }
            Some(("tracepoint", _)) => return Err("expected tracepoint:GROUP:NAME".to_owned()),
            _ => {
                let names: Vec<&str> = Self::FIXED.iter().map(|(name, _, _)| *name).collect();
                return Err(format!(
                    "expected {}, tracepoint:GROUP:NAME or uprobe:FILE:FUNCTION",
                    names.join(", ")
                ));
            }
        };
        Ok(event)
    }
}

/// Parses events, and lists those without a parameter for completions.
#[cfg(feature = "profiler")]
#[derive(Clone)]
struct ProfileEventParser;

#[cfg(feature = "profiler")]
impl clap::builder::TypedValueParser for ProfileEventParser {
    type Value = ProfileEvent;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<ProfileEvent, clap::Error> {
        let parse: fn(&str) -> Result<ProfileEvent, String> = ProfileEvent::parse;
        parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        let values = ProfileEvent::FIXED.iter();
        Some(Box::new(values.map(|(name, help, _)| {
            clap::builder::PossibleValue::new(*name).help(*help)
        })))
    }
}

/// `backtrail profile report`.
#[derive(Debug, Args)]
pub struct ProfileReport {
    /// A profile: a recording, perf.data, JFR, pprof, OTLP, folded stacks, or a bundle with its
    /// calls
    pub file: PathBuf,
    /// The view
    #[arg(long, value_enum, default_value_t = ProfileView::Top)]
    pub view: ProfileView,
    /// The function for callers and callees
    #[arg(long, value_name = "NAME", required_if_eq_any = [("view", "callers"), ("view", "callees")])]
    pub function: Option<String>,
    /// Show the slowest and a typical call of this function of a bundle, with the commands that
    /// open them in the debugger
    #[arg(long, value_name = "NAME", conflicts_with_all = ["view", "function", "limit", "min_percent"])]
    pub calls: Option<String>,
    /// Show at most this many functions
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub limit: usize,
    /// Leave out branches of a tree below this part of all
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5)]
    pub min_percent: f64,
    /// Samples and frames.
    #[command(flatten)]
    pub selection: ProfileSelection,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write all views to a page for browsers, in one file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["view", "function", "calls", "limit", "min_percent", "json"])]
    pub html: Option<PathBuf>,
    /// Replace an existing page
    #[arg(long, requires = "html")]
    pub overwrite: bool,
}

/// Views of `backtrail profile report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileView {
    /// Functions by their own weight
    Top,
    /// Calls from the outermost function inward
    Tree,
    /// Calls from the innermost function outward
    Inverted,
    /// Callers of one function
    Callers,
    /// Calls that one function makes
    Callees,
    /// Source lines by their own weight
    Lines,
}

/// `backtrail profile diff`.
#[derive(Debug, Args)]
pub struct ProfileDiff {
    /// The profile to compare with
    pub before: PathBuf,
    /// The profile that may differ
    pub after: PathBuf,
    /// Scale the weights of the second profile, so that both have the same total
    #[arg(long)]
    pub normalize: bool,
    /// Show at most this many functions
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub limit: usize,
    /// Samples and frames.
    #[command(flatten)]
    pub selection: ProfileSelection,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the comparison to a page for browsers, in one file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["limit", "json"])]
    pub html: Option<PathBuf>,
    /// Replace an existing page
    #[arg(long, requires = "html")]
    pub overwrite: bool,
}

/// `backtrail profile export`.
#[derive(Debug, Args)]
pub struct ProfileExport {
    /// A profile: a recording, perf.data, JFR, pprof, OTLP, folded stacks, or a bundle with its
    /// calls
    pub file: PathBuf,
    /// The output format
    #[arg(long, value_enum, required_unless_present = "otlp", conflicts_with = "otlp")]
    pub format: Option<ProfileFormat>,
    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE", conflicts_with = "otlp")]
    pub output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,
    /// Send the profile to a collector of OpenTelemetry, as http://localhost:4318
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Send a header with it, such as `Authorization=Bearer …`, beside those of
    /// OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "otlp")]
    pub headers: Vec<String>,
    /// Write only this event [default: the last one for folded and firefox, all for others]
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
}

/// Formats of `backtrail profile export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileFormat {
    /// pprof's protobuf, compressed
    Pprof,
    /// Folded stacks, for flame graphs
    Folded,
    /// speedscope's JSON
    Speedscope,
    /// The Firefox Profiler's JSON
    Firefox,
    /// Perfetto's protobuf, with the weights of samples
    Perfetto,
    /// OpenTelemetry's profiles (v1development), as protobuf
    Otlp,
    /// The data of the page that `profile report --html` writes, as JSON
    HtmlData,
}

/// The samples and frames that a view has.
#[derive(Debug, Default, Args)]
pub struct ProfileSelection {
    /// The event [default: the last one, as in pprof]
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
    /// Only samples with such a function on the stack
    #[arg(long, value_name = "REGEX")]
    pub focus: Option<Regex>,
    /// No samples with such a function on the stack
    #[arg(long, value_name = "REGEX")]
    pub ignore: Option<Regex>,
    /// Begin stacks at the outermost such function
    #[arg(long, value_name = "REGEX")]
    pub show_from: Option<Regex>,
    /// Remove these functions from stacks
    #[arg(long, value_name = "REGEX")]
    pub hide: Option<Regex>,
    /// Show runs of these functions as one frame; may be repeated
    #[arg(long, value_name = "NAME=REGEX", value_parser = parse_named_pattern)]
    pub collapse: Vec<(String, Regex)>,
    /// Only threads or processes of this name or number
    #[arg(long, value_name = "REGEX")]
    pub thread: Option<Regex>,
    /// Only samples with this label; may be repeated
    #[arg(long, value_name = "KEY=REGEX", value_parser = parse_named_pattern)]
    pub label: Vec<(String, Regex)>,
}

fn parse_named_pattern(text: &str) -> Result<(String, Regex), String> {
    let (name, pattern) = text
        .split_once('=')
        .ok_or("expected a name, `=` and a regular expression")?;
    let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), pattern))
}
