//! The command line.

use crate::distributed::WorkerLimits;
use crate::request::{Format, Limits};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use url::Url;

/// SQL over the profile store.
#[derive(Debug, Parser)]
#[command(name = "backtrail-query", version)]
pub(crate) struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer the request on standard input, as a hub asks
    Run(RunArguments),
    /// Answer a query, and print a table
    Sql(SqlArguments),
    /// Run parts of the queries of coordinators
    Worker(WorkerArguments),
}

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The folder of the store, or `s3://BUCKET/PREFIX`
    #[arg(long, value_name = "PLACE")]
    pub(crate) objects: String,
    /// The URLs of workers, as `http://10.0.0.2:8476`
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(crate) workers: Vec<Url>,
    /// The folder for rows that do not fit into memory
    #[arg(long, value_name = "FOLDER")]
    pub(crate) temp: Option<PathBuf>,
}

/// The arguments of `worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// The address for coordinators, as `10.0.0.2:8476`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The folder of the store, or `s3://BUCKET/PREFIX`
    #[arg(long, value_name = "PLACE")]
    pub(crate) objects: String,
    /// The maximum memory of all queries in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u64,
    /// The folder for rows that do not fit into memory
    #[arg(long, value_name = "FOLDER")]
    pub(crate) temp: Option<PathBuf>,
}

impl WorkerArguments {
    /// Returns the limits.
    pub(crate) fn limits(&self) -> WorkerLimits {
        WorkerLimits {
            memory_bytes: self.memory.saturating_mul(1 << 20),
        }
    }
}

/// The arguments of `sql`.
#[derive(Debug, Args)]
pub(crate) struct SqlArguments {
    /// The query
    pub(crate) sql: String,
    /// The folder of the store, or `s3://BUCKET/PREFIX`
    #[arg(long, value_name = "PLACE")]
    pub(crate) store: String,
    /// Print a JSON object per row
    #[arg(long, conflicts_with_all = ["csv", "arrow"])]
    json: bool,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "arrow")]
    csv: bool,
    /// Print a stream of Arrow's IPC format
    #[arg(long)]
    arrow: bool,
    /// The maximum memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u64,
    /// The maximum time
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The maximum number of MiB that are read
    #[arg(long, value_name = "MIB", default_value_t = 16 << 10)]
    scan: u64,
    /// The maximum number of rows. Later ones are left out
    #[arg(long, default_value_t = 1000)]
    rows: u64,
    /// The folder for rows that do not fit into memory
    #[arg(long, value_name = "FOLDER")]
    pub(crate) temp: Option<PathBuf>,
}

impl SqlArguments {
    /// Returns the limits of the query.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            memory_bytes: self.memory.saturating_mul(1 << 20),
            seconds: self.seconds,
            scanned_bytes: self.scan.saturating_mul(1 << 20),
            rows: self.rows,
        }
    }

    /// Returns the format of the rows.
    pub(crate) fn format(&self) -> Format {
        match (self.json, self.csv, self.arrow) {
            (true, ..) => Format::Json,
            (_, true, _) => Format::Csv,
            (.., true) => Format::Arrow,
            _ => Format::Table,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
        let words = ["backtrail-query", "sql", "--store", "x", "--csv", "SELECT 1"];
        let Command::Sql(sql) = Arguments::parse_from(words).command else {
            unreachable!("`sql` was given");
        };
        assert_eq!((sql.format(), sql.limits().rows), (Format::Csv, 1000));
    }
}
