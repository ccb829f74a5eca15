//! Arguments of the commands that use the collector.

use super::Decode;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `backtrail collect`.
#[derive(Debug, Args)]
pub struct Collect {
    /// The configuration [default: /etc/backtrail/collect.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print all of it, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Restore the core_pattern from before a collector that no longer runs, and exit
    #[arg(long, conflicts_with = "print_config")]
    pub restore: bool,
}

/// `backtrail snapshot`.
#[derive(Debug, Args)]
pub struct Snapshot {
    /// The process; without it, save only the traces of all processors
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// The collector's configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail crashes`.
#[derive(Debug, Subcommand)]
pub enum Crashes {
    /// List the crashes, the oldest first
    List(CrashesList),
    /// Show the details of one crash
    Show(CrashSelection),
    /// Step through one crash, forward and backward
    Debug(CrashesDebug),
    /// Print the link that opens a crash in VS Code
    Link(CrashSelection),
}

/// The spool to read.
#[derive(Debug, Args)]
pub struct SpoolOptions {
    /// The collector's configuration, which names the spool
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The spool directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "config")]
    pub spool: Option<PathBuf>,
}

/// `backtrail crashes list`.
#[derive(Debug, Args)]
pub struct CrashesList {
    /// The spool.
    #[command(flatten)]
    pub spool: SpoolOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail crashes show` and `link`.
#[derive(Debug, Args)]
pub struct CrashSelection {
    /// The crash: its id, its number, or the start of its id; "latest" is the newest
    #[arg(default_value = "latest")]
    pub id: String,
    /// The spool.
    #[command(flatten)]
    pub spool: SpoolOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail crashes debug`.
#[derive(Debug, Args)]
pub struct CrashesDebug {
    /// The crash: its id, its number, or the start of its id; "latest" is the newest
    #[arg(default_value = "latest")]
    pub id: String,
    /// The spool.
    #[command(flatten)]
    pub spool: SpoolOptions,
    /// Read no commands from the terminal; exit after those of -e
    #[arg(long)]
    pub batch: bool,
    /// A command to run first (may be repeated)
    #[arg(short = 'e', long = "execute", value_name = "COMMAND")]
    pub commands: Vec<String>,
    /// Print JSON, one object per command
    #[arg(long)]
    pub json: bool,
    /// Decoder options.
    #[command(flatten)]
    pub decode: Decode,
}
