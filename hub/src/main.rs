//! The binary `backtrail-hub`: the server, and what an administrator does with its data.
#![forbid(unsafe_code)]

use backtrail_hub::access::{self, Scope};
use backtrail_hub::admin::{backup, maintain, rebuild};
use backtrail_hub::analysis::elf_file::ElfArguments;
use backtrail_hub::analysis::repack::RepackArguments;
use backtrail_hub::analysis::{self, AnalyzeArguments};
use backtrail_hub::config::Config;
use backtrail_hub::data_lock::DataLock;
use backtrail_hub::database::Database;
use backtrail_hub::error::{Error, Result};
use backtrail_hub::hub::{Hub, open_objects};
use backtrail_hub::profiles::maintain as profile_maintenance;
use backtrail_hub::profiles::query_worker::{self, WorkerOptions};
use backtrail_hub::{package_files, serve, unit};
use clap::{Args, CommandFactory, Parser, Subcommand};
use nix::sys::stat::{Mode, umask};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Takes, groups and shows the crashes of a fleet.
#[derive(Parser)]
#[command(name = "backtrail-hub", version)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args)]
struct Common {
    /// The configuration file.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The directory of the hub's files.
    #[arg(long, value_name = "DIRECTORY", global = true)]
    data: Option<PathBuf>,
    /// The address to listen at.
    #[arg(long, value_name = "ADDRESS:PORT", global = true)]
    listen: Option<SocketAddr>,
    /// The database: sqlite:///PATH or postgres://USER@HOST/NAME.
    #[arg(long, value_name = "URL", global = true)]
    database: Option<String>,
    /// The bucket: s3://BUCKET/PREFIX.
    #[arg(long, value_name = "URL", global = true)]
    objects: Option<String>,
    /// The address under which people and hosts reach the hub.
    #[arg(long, value_name = "URL", global = true)]
    public_url: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Serves crash reports and pages (the default).
    Serve,
    /// Analyzes a bundle. The hub starts this command itself.
    #[command(hide = true)]
    Analyze(AnalyzeArguments),
    /// Unpacks or packs a bundle. The hub starts this command itself.
    #[command(hide = true)]
    Bundle(RepackArguments),
    /// Reads an ELF file. The hub starts this command itself.
    #[command(hide = true)]
    Elf(ElfArguments),
    /// Creates a token, and prints it once.
    Token {
        /// Its name in the audit log.
        name: String,
        /// A permission: ingest, read or admin. May be repeated.
        #[arg(long, value_name = "SCOPE", required = true)]
        scope: Vec<String>,
        /// Days until it expires.
        #[arg(long)]
        days: Option<u32>,
    },
    /// Removes reports and bundles beyond the retention, and files that nothing uses. The hub does
    /// so every hour by itself.
    Gc,
    /// Computes the database from the stored objects, and keeps people's decisions. No hub may run
    /// at the same time.
    RebuildIndex,
    /// Writes a backup to a directory, or brings an earlier one up to date. The hub may run.
    Backup {
        /// The directory.
        directory: PathBuf,
    },
    /// Runs parts of the SQL queries of hubs, which name this machine as query.workers. `--listen`
    /// is its address.
    Worker {
        /// The maximum memory of all queries in MiB.
        #[arg(long, value_name = "MIB")]
        memory: Option<u64>,
        /// The folder for rows that do not fit into memory.
        #[arg(long, value_name = "FOLDER")]
        temp: Option<PathBuf>,
    },
    /// Prints the systemd unit of this program.
    Unit,
    /// Writes the files of a package: systemd unit, configuration, manual pages, completions.
    #[command(hide = true)]
    PackageFiles {
        /// The root directory of the package.
        #[arg(value_name = "DIR")]
        root: PathBuf,
    },
    /// Puts a backup in the place of an empty hub.
    Restore {
        /// The directory.
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Child processes confine themselves before they have a second thread.
    match &arguments.command {
        Some(Command::Analyze(arguments)) => return analysis::run(arguments),
        Some(Command::Bundle(arguments)) => return analysis::repack::run(arguments),
        Some(Command::Elf(arguments)) => return analysis::elf_file::run(arguments),
        Some(Command::Unit) => return print_unit(),
        Some(Command::PackageFiles { root }) => {
            return exit_code(package_files::write(root, &Arguments::command()));
        }
        _ => {}
    }
    // The hub's files have tokens, and the memory of programs.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("BACKTRAIL_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,sqlx=warn,object_store=warn")),
        )
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("backtrail-hub: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    exit_code(runtime.block_on(run(arguments)))
}

/// Returns the exit code of a result. An error is printed.
fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("backtrail-hub: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_unit() -> ExitCode {
    match std::env::current_exe() {
        Ok(program) => {
            print!("{}", unit::unit(&program));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("backtrail-hub: cannot find this program: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let listen = arguments.common.listen;
    let config = configuration(arguments.common)?;
    match arguments.command.unwrap_or(Command::Serve) {
        Command::Analyze(_)
        | Command::Bundle(_)
        | Command::Elf(_)
        | Command::PackageFiles { .. }
        | Command::Unit => Ok(()),
        Command::Serve => serve::serve(config).await,
        Command::Worker { memory, temp } => {
            let options = WorkerOptions { listen, memory, temp };
            query_worker::become_worker(&config, &options)
        }
        Command::Gc => {
            let hub = Hub::open(config).await?;
            let (removed, collected) = maintain::once(&hub).await?;
            let (segments, files) = profile_maintenance::expire(&hub).await?;
            eprintln!(
                "removed {} reports, {} bundles of other reports, {} blobs with {} bytes, {} uploads, {} chunks, {} indexes, {segments} segments of profiles, {files} unused files of these",
                removed.reports,
                removed.bundles,
                collected.blobs,
                collected.bytes,
                collected.uploads,
                collected.chunks,
                collected.indexes
            );
            Ok(())
        }
        Command::RebuildIndex => {
            let _lock = DataLock::take(&config.data)?;
            let objects = open_objects(&config)?;
            let rebuilt = rebuild::run(&config.database_url(), &config.data, &objects).await?;
            eprintln!(
                "the index has {} bundles and {} decisions from {} segments; {} bundles and {} lines are damaged",
                rebuilt.bundles, rebuilt.decisions, rebuilt.segments, rebuilt.broken, rebuilt.damaged
            );
            if rebuilt.profiles > 0 {
                eprintln!(
                    "the files of the profile store describe {} segments",
                    rebuilt.profiles
                );
            }
            Ok(())
        }
        Command::Backup { directory } => {
            let database = Database::open(&config.database_url()).await?;
            let copied = backup::backup(&database, &open_objects(&config)?, &directory).await?;
            eprintln!(
                "copied {} objects with {} bytes; {} were there already",
                copied.objects, copied.bytes, copied.known
            );
            Ok(())
        }
        Command::Restore { directory } => {
            let _lock = DataLock::take(&config.data)?;
            let objects = open_objects(&config)?;
            let copied = backup::restore(&config.database_url(), &config.data, &objects, &directory).await?;
            eprintln!("restored {} objects with {} bytes", copied.objects, copied.bytes);
            Ok(())
        }
        Command::Token { name, scope, days } => {
            let unknown = |name: &str| {
                Error::Configuration(format!("\"{name}\" is no scope; use ingest, read or admin"))
            };
            let scopes: Vec<_> = scope
                .iter()
                .map(|name| Scope::named(name).ok_or_else(|| unknown(name)))
                .collect::<Result<_>>()?;
            let hub = Hub::open(config).await?;
            let expires = access::expiry(days)?;
            let (_, secret) = hub.database.create_token(&name, &scopes, expires).await?;
            println!("{}", secret.reveal());
            Ok(())
        }
    }
}

/// Returns the configuration: the file, and over it the options.
fn configuration(common: Common) -> Result<Config> {
    let mut config = match &common.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if let Some(data) = common.data {
        config.data = data;
    }
    if let Some(listen) = common.listen {
        config.listen = listen;
    }
    config.database = common.database.or(config.database);
    config.objects = common.objects.or(config.objects);
    config.public_url = common.public_url.or(config.public_url);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn package_has_unit_configuration_completions_and_pages() {
        let root = tempfile::tempdir().unwrap();
        package_files::write(root.path(), &Arguments::command()).unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        let unit = read("usr/lib/systemd/system/backtrail-hub.service");
        assert!(
            unit.contains("\nExecStart=\"/usr/bin/backtrail-hub\" --config /etc/backtrail-hub/hub.toml ")
        );
        Config::read(&root.path().join("etc/backtrail-hub/hub.toml")).unwrap();
        let completions = [
            "usr/share/bash-completion/completions/backtrail-hub",
            "usr/share/zsh/vendor-completions/_backtrail-hub",
            "usr/share/fish/vendor_completions.d/backtrail-hub.fish",
        ]
        .map(read);
        let whole = read("usr/share/man/man1/backtrail-hub.1");
        for command in Arguments::command().get_subcommands() {
            let (name, is_hidden) = (command.get_name(), command.is_hide_set());
            let page = format!("usr/share/man/man1/backtrail-hub-{name}.1");
            assert_eq!(root.path().join(&page).exists(), !is_hidden, "{page}");
            let roff = name.replace('-', "\\-");
            // The names of hidden commands are also words of descriptions.
            if !is_hidden {
                assert!(completions.iter().all(|script| script.contains(name)), "{name}");
                assert!(whole.contains(&format!("hub\\-{roff}(1)")), "{name}: {whole}");
            }
            let bash = format!("backtrail__hub,{name})");
            assert_eq!(completions[0].contains(&bash), !is_hidden, "{bash}");
        }
        assert!(read("usr/share/man/man1/backtrail-hub-token.1").contains("\\-\\-scope"));
        assert!(!whole.contains("package"));
    }
}
