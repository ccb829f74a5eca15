//! `backtrail`: argument parsing and wiring. Each command is one file under `command/`.
#![forbid(unsafe_code)]

mod args;
mod cache_directory;
mod command;
mod exit;
#[cfg(feature = "hub")]
mod hub;
mod interrupt;
mod open;
mod output;
mod output_file;
mod progress;
mod published_context;
mod shell;
mod sources;
mod stored_cores;
mod terminal;

use args::{Command, CommandLine};
use clap::Parser;
use exit::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The kernel holds the crashed process until this handler exits, so nothing else is set up
    // first.
    #[cfg(feature = "collector")]
    if let Some(done) = command::core_handler::run_for_kernel() {
        return done.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS);
    }
    let line = CommandLine::parse();
    terminal::set_color(line.color);
    interrupt::outlive_file_limits();
    match run(line.command) {
        Ok(code) => code,
        // A reader that closes our pipe early is not a failure.
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let done = match command {
        #[cfg(feature = "collector")]
        Command::Doctor(args) => command::doctor::run(&args),
        Command::Record(args) => return command::record::run(&args),
        #[cfg(feature = "collector")]
        Command::Collect(args) => command::collect::run(&args),
        #[cfg(feature = "collector")]
        Command::Snapshot(args) => command::snapshot::run(&args),
        #[cfg(feature = "collector")]
        Command::Crashes(crashes) => command::crashes::run(&crashes),
        #[cfg(feature = "collector")]
        Command::Install(args) => command::install::run(&args),
        #[cfg(feature = "collector")]
        Command::CoreHandler(args) => command::core_handler::run(&args),
        #[cfg(feature = "collector")]
        Command::CoreWorker => command::core_worker::run(),
        #[cfg(all(feature = "collector", feature = "hub"))]
        Command::CollectSender => command::collect_sender::run(),
        #[cfg(all(feature = "collector", feature = "hub"))]
        Command::CollectSources => command::collect_sources::run(),
        #[cfg(feature = "collector")]
        Command::CoreGuard(args) => command::core_guard::run(&args),
        Command::Import(import) => command::import::run(&import),
        Command::Info(args) => command::info::run(&args),
        Command::Check(args) => command::check::run(&args),
        Command::Dump(args) => command::dump::run(&args),
        Command::Debug(args) => command::debug::run(&args),
        #[cfg(feature = "dap")]
        Command::Dap(args) => command::dap::run(&args),
        Command::Latency(args) => command::latency::run(&args),
        Command::Export(args) => command::export::run(&args),
        #[cfg(feature = "profile")]
        Command::Profile(args) => return command::profile::run(&args),
        #[cfg(feature = "profile")]
        Command::Fdo(args) => command::fdo::run(&args),
        Command::Pack(args) => command::pack::pack(&args),
        Command::Unpack(args) => command::pack::unpack(&args),
        #[cfg(feature = "hub")]
        Command::Push(args) => command::push::run(&args),
        #[cfg(all(feature = "hub", feature = "profile"))]
        Command::PushSymbols(args) => command::push_symbols::run(&args),
        #[cfg(feature = "hub")]
        Command::Login(args) => command::login::run(&args),
        #[cfg(feature = "hub")]
        Command::Open(args) => command::open_link::run(&args),
        Command::LastWord(args) => command::last_word::run(&args),
        Command::Completions(args) => command::completions::run(&args),
        #[cfg(feature = "collector")]
        Command::PackageFiles(args) => command::package_files::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
