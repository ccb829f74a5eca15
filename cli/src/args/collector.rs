//! What the commands around the collector take.

use super::Decode;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `backtrail collect`.
#[derive(Debug, Args)]
pub struct Collect {
    /// The configuration; /etc/backtrail/collect.toml if there is one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print all of it, and end
    #[arg(long)]
    pub print_config: bool,
    /// Put core_pattern back as it was before a collector that is gone, and end
    #[arg(long, conflicts_with = "print_config")]
    pub restore: bool,
}

/// `backtrail snapshot`.
#[derive(Debug, Args)]
pub struct Snapshot {
    /// The process; without it, the traces of all processors alone
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
    /// One line a crash, the oldest first
    List(CrashesList),
    /// All that is known of one
    Show(CrashesOne),
    /// Walk through one, forward and backward
    Debug(CrashesDebug),
    /// Print the link that opens it in VS Code
    Link(CrashesOne),
}

/// Where the crashes are.
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
    /// Where.
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
    /// Where.
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
    /// Where.
    #[command(flatten)]
    pub place: SpoolPlace,
    /// Read no commands from the terminal; end after those of -e
    #[arg(long)]
    pub batch: bool,
    /// A command to run first (again for more)
    #[arg(short = 'e', long = "execute", value_name = "COMMAND")]
    pub commands: Vec<String>,
    /// Print JSON, one object an answer
    #[arg(long)]
    pub json: bool,
    /// How to decode.
    #[command(flatten)]
    pub decode: Decode,
}
