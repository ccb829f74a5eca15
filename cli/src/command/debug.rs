//! `backtrail debug`.

use crate::args::Debug;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::progress::Bar;
use crate::terminal;
use backtrail_console::batch::{self, BatchOptions};
use backtrail_console::repl::{self, ReplOptions};
use backtrail_debugger::OpenOptions;
use backtrail_decoder::{Progress, Watch};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Opens the debugger at the crash. With `--batch`, or without a terminal, runs commands and exits.
pub fn run(args: &Debug) -> Result<(), Failure> {
    let mut commands = Vec::new();
    if let Some(file) = &args.file {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::failed(format_args!("cannot read {}: {error}", file.display())))?;
        commands.extend(text.lines().map(str::to_owned));
    }
    commands.extend(args.commands.iter().cloned());

    let mut options = open::options(&args.decode);
    options.main_calls = true;
    options.first = Some(OpenOptions::FIRST);
    if let Some(symfs) = &args.symfs {
        options.debug_roots.push(symfs.clone());
        options.source_paths.push(symfs.clone());
    }
    let interrupt = Interrupt::install();
    let session = open::session(&args.input, &options, &interrupt)?;
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    let terminal = std::io::stdout().is_terminal();
    let color = terminal::has_color();
    if !args.batch && !args.json && terminal && std::io::stdin().is_terminal() {
        // The REPL handles Ctrl-C from here on.
        interrupt.release();
        commands.insert(0, "crash".to_owned());
        return Ok(repl::run(
            session,
            ReplOptions {
                history_file: history_file(),
                color,
                commands,
            },
            &progress,
        )?);
    }
    if !args.batch && commands.is_empty() {
        let typed = std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::failed(format_args!("cannot read commands from stdin: {error}")))?;
        commands.extend(typed.lines().map(str::to_owned));
    }
    let mut output = Output::new();
    let watch = Watch {
        cancel: interrupt.flag(),
        progress: &progress,
    };
    let options = BatchOptions {
        json: args.json,
        echo: !args.json,
        color,
    };
    let failed = batch::run(
        session,
        commands.iter().map(String::as_str),
        options,
        &watch,
        output.bytes(),
    )?;
    output.finish()?;
    match failed {
        0 => Ok(()),
        1 => Err(Failure::failed("one command failed")),
        count => Err(Failure::failed(format_args!("{count} commands failed"))),
    }
}

/// Returns `$XDG_STATE_HOME/backtrail/history`, by default below `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("backtrail/history"))
}
