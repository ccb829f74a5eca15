//! Arguments of the commands that use a hub.

use clap::Args;
use std::path::PathBuf;

/// The hub, and the token for it.
#[derive(Clone, Debug, Args)]
pub struct HubOptions {
    /// The hub's address [default: $BACKTRAIL_HUB, or the one that `backtrail login` stored]
    #[arg(long, value_name = "URL")]
    pub hub: Option<String>,
    /// A file with the token for the hub [default: $BACKTRAIL_HUB_TOKEN, or the one that
    /// `backtrail login` stored]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Allow HTTP to other machines, which shows the token and the crash to the network
    #[arg(long)]
    pub insecure_http: bool,
}

/// `backtrail push`.
#[derive(Debug, Args)]
pub struct Push {
    /// Bundle directories or .btz files
    #[arg(value_name = "BUNDLE", required = true)]
    pub bundles: Vec<PathBuf>,
    /// The hub.
    #[command(flatten)]
    pub hub: HubOptions,
    /// The build of the program [default: the start of its build id]
    #[arg(long, value_name = "BUILD")]
    pub build: Option<String>,
    /// The service [default: the program's file name]
    #[arg(long, value_name = "SERVICE")]
    pub service: Option<String>,
    /// Send source files that the crashed program executed, if they are below this directory of the
    /// machine; may be repeated
    #[arg(long, value_name = "DIR")]
    pub sources: Vec<PathBuf>,
    /// Remove the values of environment variables with this name from the core; * is any text; may
    /// be repeated
    #[arg(long, value_name = "NAME")]
    pub redact_environment: Vec<String>,
    /// Print JSON, one object per bundle
    #[arg(long)]
    pub json: bool,
}

/// `backtrail push-symbols`.
#[cfg(feature = "profile")]
#[derive(Debug, Args)]
pub struct PushSymbols {
    /// Executables, libraries, debug files, or folders with them
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// The hub.
    #[command(flatten)]
    pub hub: HubOptions,
    /// Print JSON, one object per file
    #[arg(long)]
    pub json: bool,
}

/// `backtrail login`.
#[derive(Debug, Args)]
pub struct Login {
    /// The hub's address
    pub url: String,
    /// Read the token from this file instead of the terminal or standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Allow HTTP to other machines, which shows the token and the crashes to the network
    #[arg(long)]
    pub insecure_http: bool,
}

/// `backtrail open`.
#[derive(Debug, Args)]
pub struct OpenLink {
    /// The link: https://HUB/c/ID or https://HUB/c/ID#POSITION
    pub link: String,
    /// Print the link for VS Code, and start nothing
    #[arg(long)]
    pub print: bool,
    /// Allow HTTP to other machines
    #[arg(long)]
    pub insecure_http: bool,
}
