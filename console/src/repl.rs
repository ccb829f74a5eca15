//! The command line for a person: history, completion, colors. Every command's logic is elsewhere.

mod input;
mod pager;

use crate::commands;
use crate::output::{Output, Text};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::Session;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{Progress, Watch};
use input::{Input, Typed};
use pager::Pager;
use rustyline::error::ReadlineError;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The options of the REPL.
#[derive(Clone, Debug, Default)]
pub struct ReplOptions {
    /// The file that stores typed commands between sessions; `None` stores none.
    pub history_file: Option<PathBuf>,
    /// Colors the output.
    pub color: bool,
    /// Commands to run before the first prompt.
    pub commands: Vec<String>,
    /// Shows output longer than the terminal in a pager.
    pub pager: bool,
}

/// Opens the debugger at the crash and runs commands until `quit` or the end of the input.
///
/// Ctrl-C ends the running command, not the program, and drops the lines that were typed ahead.
/// While the user types, the rest of the trace is decoded. If a command waits for that or for other
/// long work, `progress` receives the progress.
///
/// # Errors
///
/// If the session has no thread, or the terminal cannot be used.
pub fn run(session: Session, options: ReplOptions, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
    let mut navigator = Navigator::new(session)?;
    navigator.pager = options.pager;
    navigator.decode_ahead();
    let navigator = Rc::new(RefCell::new(navigator));
    let terminal = |error: ReadlineError| Error::Cannot(format!("cannot use the terminal: {error}"));
    let mut input = Input::new(Rc::clone(&navigator)).map_err(terminal)?;
    if let Some(file) = &options.history_file {
        input.load_history(file);
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let registered = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&cancel))
        .map_err(|source| Error::Cannot(format!("cannot handle the interrupt signal: {source}")))?;
    let watch = Watch {
        cancel: &cancel,
        progress,
    };
    let ended = converse(&mut input, &navigator, &watch, &options);
    signal_hook::low_level::unregister(registered);
    if let Some(file) = &options.history_file {
        input.save_history(file);
    }
    ended.map_err(terminal)
}

/// Reads commands and obeys them until the session ends.
fn converse(
    input: &mut Input,
    navigator: &RefCell<Navigator>,
    watch: &Watch<'_>,
    options: &ReplOptions,
) -> std::result::Result<(), ReadlineError> {
    for line in &options.commands {
        if let Some(text) = obey(navigator, line, watch, options.color) {
            print!("{text}");
        } else {
            return Ok(());
        }
    }
    let mut last = String::new();
    let mut pager = Pager::from_environment();
    loop {
        let line = match input.read()? {
            Typed::Line(line) => line,
            Typed::Empty => last.clone(),
            Typed::Interrupted => String::new(),
            Typed::End => return Ok(()),
        };
        last = repeated(&line);
        let size = input.dimensions();
        if let Some((columns, _)) = size {
            navigator.borrow_mut().width = columns;
        }
        if line.is_empty() {
            continue;
        }
        let Some(text) = obey(navigator, &line, watch, options.color) else {
            return Ok(());
        };
        let interrupted = watch.cancel.swap(false, Ordering::Relaxed);
        if interrupted {
            // The terminal drops what it has; as in GDB, nothing runs that was typed before.
            input.drop_typed_ahead()?;
        }
        let is_paged = navigator.borrow().pager && !input.is_waiting();
        show(&text, size.filter(|_| is_paged), &mut pager);
    }
}

/// Prints an answer, in the pager if it is longer than a terminal of that size.
fn show(text: &str, size: Option<(usize, usize)>, pager: &mut Option<Pager>) {
    let is_long = size.is_some_and(|(columns, rows)| pager::rows_of(text, columns) >= rows);
    if let Some(program) = pager.as_ref().filter(|_| is_long) {
        let Err(problem) = program.show(text) else {
            return;
        };
        print!("{text}");
        if let Some(problem) = problem {
            println!("{problem}");
        }
        *pager = None;
        return;
    }
    print!("{text}");
}

/// Returns the command that an empty line after `line` repeats. Repeatable commands are repeated,
/// `list` without its location.
fn repeated(line: &str) -> String {
    match commands::parse(line) {
        Ok((command, _)) if command.name == "list" => "list".to_owned(),
        Ok((command, _)) if command.repeats => line.to_owned(),
        _ => String::new(),
    }
}

/// Returns the answer to a command; `None` if the session ends.
fn obey(navigator: &RefCell<Navigator>, line: &str, watch: &Watch<'_>, color: bool) -> Option<String> {
    let mut text = Text::new(color);
    if line.trim_start().starts_with('#') {
        return Some(text.into_string());
    }
    watch.cancel.store(false, Ordering::Relaxed);
    match commands::execute(&mut navigator.borrow_mut(), line, watch) {
        Ok(Output::Quit) => return None,
        Ok(output) => output.render(&mut text),
        Err(error) => text.line(error.to_string()),
    }
    Some(text.into_string())
}
