//! `backtrail debug`.

use crate::args::Debug;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::progress::Bar;
use crate::{shell, stored_cores, terminal};
use backtrail_console::batch::{self, BatchOptions};
use backtrail_console::repl::{self, ReplOptions};
use backtrail_debugger::OpenOptions;
use backtrail_decoder::{Progress, Watch};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Opens the debugger at the crash. With `--batch`, or without a terminal, runs commands and exits.
pub fn run(args: &Debug) -> Result<(), Failure> {
    let can_ask = !args.batch && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let input = match &args.input {
        Some(input) => input.clone(),
        // Ctrl-C at its question ends the program.
        None => newest_core(&args.core_dir, can_ask)?,
    };
    let interrupt = Interrupt::install();
    let (input, linked_position) = located(&input, &interrupt)?;
    let at = args.at.as_ref().or(linked_position.as_ref());
    let mut commands = Vec::new();
    commands.extend(at.map(|position| format!("goto {position}")));
    if let Some(file) = &args.file {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::failed(format_args!("cannot read {}: {error}", file.display())))?;
        commands.extend(text.lines().map(str::to_owned));
    }
    commands.extend(args.commands.iter().cloned());

    let mut options = open::options(&args.decode);
    options.main_calls = true;
    options.first = Some(OpenOptions::FIRST);
    options.source_paths.extend(args.decode.symfs.iter().cloned());
    let session = open::session(&input, &options, &interrupt)?;
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
                pager: !args.no_pager,
            },
            &progress,
        )?);
    }
    if !args.batch && commands.len() == usize::from(at.is_some()) {
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

/// Returns the file of an input, and the position that it names. Downloads the bundle of a link.
#[cfg(feature = "hub")]
fn located(input: &Path, interrupt: &Interrupt) -> Result<(PathBuf, Option<String>), Failure> {
    use crate::hub::{cache, settings};
    use backtrail_report::client::CrashLink;
    match input.to_str().filter(|text| CrashLink::is_address(text)) {
        Some(text) => {
            let allows_http = settings::allows_http();
            let link = CrashLink::parse(text, allows_http)?;
            Ok((cache::bundle(&link, allows_http, interrupt)?, link.position))
        }
        None => Ok((input.to_owned(), None)),
    }
}

/// Returns the file of an input.
#[cfg(not(feature = "hub"))]
fn located(input: &Path, _interrupt: &Interrupt) -> Result<(PathBuf, Option<String>), Failure> {
    Ok((input.to_owned(), None))
}

/// Returns the newest stored core if the user wants it. Without a terminal, only names it.
fn newest_core(directory: &Path, can_ask: bool) -> Result<PathBuf, Failure> {
    let newest = stored_cores::newest(directory)?;
    let described = newest.describe();
    let Some(path) = newest.path else {
        let export = format!("coredumpctl dump {} -o core", newest.pid);
        return Err(Failure::failed(format_args!(
            "the newest core, {described}, is not a file in {}; write it by `{export}`, and open that",
            directory.display()
        )));
    };
    let path_word = shell::word(path.display().to_string());
    if !can_ask {
        return Err(Failure::usage(format_args!(
            "no bundle or core is given; the newest core is that of {described}: backtrail debug {path_word}"
        )));
    }
    let question = format!("Open the newest core, that of {described}, {path_word}? [Y/n] ");
    match terminal::ask(&question).map_err(Failure::failed)? {
        true => Ok(path),
        false => Err(Failure::failed("no core was opened")),
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
