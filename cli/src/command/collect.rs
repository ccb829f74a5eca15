//! `backtrail collect`.

use crate::args::Collect;
use crate::exit::Failure;
use backtrail_collector::pattern::Sysctl;
use backtrail_collector::{Config, Runtime, daemon};
use std::io::{IsTerminal, Write};
use tracing_subscriber::EnvFilter;

/// Runs the daemon.
pub fn run(args: &Collect) -> Result<(), Failure> {
    let config = Config::load(args.config.as_deref())?;
    if args.print_config {
        let mut output = crate::output::Output::new();
        output.write_all(config.to_toml().as_bytes())?;
        return output.finish();
    }
    if args.restore {
        return restore(&config);
    }
    log(&config)?;
    let options = daemon::Options {
        config,
        file: args.config.clone(),
    };
    daemon::run(options).map_err(|error| {
        if error.is_denied() {
            Failure::failed(format_args!(
                "{error}; start the collector as root; it drops unnecessary privileges (`backtrail install` makes a systemd unit)"
            ))
        } else {
            error.into()
        }
    })
}

fn restore(config: &Config) -> Result<(), Failure> {
    let runtime = Runtime::new(&config.runtime);
    if runtime.is_occupied() {
        return Err(Failure::failed(format_args!(
            "a collector runs at {}; it restores core_pattern when it ends",
            runtime.path().display()
        )));
    }
    let restored = Sysctl::default().restore(&runtime, None)?;
    let mut output = crate::output::Output::new();
    let said = if restored {
        "core_pattern is restored"
    } else {
        "there was nothing to restore"
    };
    writeln!(output, "{said}")?;
    output.finish()
}

/// Logs go to standard error, where systemd's journal or a terminal reads them.
fn log(config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log)
        .map_err(|error| Failure::usage(format_args!("log = {:?} is no filter: {error}", config.log)))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    if config.log_json {
        builder.json().init();
    } else {
        builder.init();
    }
    Ok(())
}
