//! Arguments of the commands around the collector.

use super::Decode;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `backtrail collect`.
#[derive(Debug, Args)]
pub struct Collect {
    /// The configuration [default: /etc/backtrail/collect.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print it, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Restore core_pattern after a collector that was killed, and exit
    #[arg(long, conflicts_with = "print_config")]
    pub restore: bool,
}

/// `backtrail snapshot`.
#[derive(Debug, Args)]
pub struct Snapshot {
    /// The process [default: only the traces of all processors]
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
    /// Print one line per crash, the oldest first
    List(CrashesList),
    /// Print everything about one crash
    Show(CrashesOne),
    /// Step through one crash, forward and backward
    Debug(CrashesDebug),
    /// Print the link that opens it in VS Code
    Link(CrashesOne),
}

/// The location of the crashes.
#[derive(Debug, Args)]
pub struct SpoolPlace {
    /// The collector's configuration, which names the spool
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The spool itself
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "config")]
    pub spool: Option<PathBuf>,
}

/// `backtrail crashes list`.
#[derive(Debug, Args)]
pub struct CrashesList {
    /// The location.
    #[command(flatten)]
    pub place: SpoolPlace,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail crashes show` and `link`.
#[derive(Debug, Args)]
pub struct CrashesOne {
    /// Its id, number, or the start of its id; "latest" is the newest
    #[arg(default_value = "latest")]
    pub id: String,
    /// The location.
    #[command(flatten)]
    pub place: SpoolPlace,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `backtrail crashes debug`.
#[derive(Debug, Args)]
pub struct CrashesDebug {
    /// Its id, number, or the start of its id; "latest" is the newest
    #[arg(default_value = "latest")]
    pub id: String,
    /// The location.
    #[command(flatten)]
    pub place: SpoolPlace,
    /// Read no commands from the terminal; end after those of -e
    #[arg(long)]
    pub batch: bool,
    /// A command to run first (repeatable)
    #[arg(short = 'e', long = "execute", value_name = "COMMAND")]
    pub commands: Vec<String>,
    /// Print JSON, one object per answer
    #[arg(long)]
    pub json: bool,
    /// How to decode.
    #[command(flatten)]
    pub decode: Decode,
}
