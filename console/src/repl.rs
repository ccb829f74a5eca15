//! The command line for a person: history, completion, colors. Every command's logic is elsewhere.

use crate::commands;
use crate::complete::complete;
use crate::output::{Output, Text, is_invisible};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::Session;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{Progress, Watch};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Editor, Helper};
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
}

struct Assistant(Rc<RefCell<Navigator>>);

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let (begin, mut found) = complete(&self.0.borrow(), line.get(..pos).unwrap_or(line));
        // The terminal shows candidates as they are.
        found.retain(|candidate| !candidate.contains(is_invisible));
        Ok((begin, found))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}
impl Highlighter for Assistant {}
impl Validator for Assistant {}
impl Helper for Assistant {}

/// Opens the debugger at the crash and runs commands until `quit` or the end of the input.
///
/// Ctrl-C ends the running command, not the program. While the user types, the rest of the trace is
/// decoded. If a command waits for that or for other long work, `progress` receives the progress.
///
/// # Errors
///
/// If the session has no thread, or the terminal cannot be used.
pub fn run(session: Session, options: ReplOptions, progress: &(dyn Fn(Progress) + Sync)) -> Result<()> {
    let mut navigator = Navigator::new(session)?;
    navigator.decode_ahead();
    let navigator = Rc::new(RefCell::new(navigator));
    let terminal = |error: ReadlineError| Error::Cannot(format!("cannot use the terminal: {error}"));
    let config = Config::builder()
        .auto_add_history(true)
        .completion_type(CompletionType::List)
        .build();
    let mut editor: Editor<Assistant, DefaultHistory> = Editor::with_config(config).map_err(terminal)?;
    editor.set_helper(Some(Assistant(Rc::clone(&navigator))));
    if let Some(file) = &options.history_file {
        // The first session has none.
        let _ = editor.load_history(file);
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let registered = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&cancel))
        .map_err(|source| Error::Cannot(format!("cannot handle the interrupt signal: {source}")))?;
    let watch = Watch {
        cancel: &cancel,
        progress,
    };
    let ended = converse(&mut editor, &navigator, &watch, &options);
    signal_hook::low_level::unregister(registered);
    if let Some(file) = &options.history_file {
        save_history(&mut editor, file);
    }
    ended.map_err(terminal)
}

/// Reads commands and obeys them until the session ends.
fn converse(
    editor: &mut Editor<Assistant, DefaultHistory>,
    navigator: &RefCell<Navigator>,
    watch: &Watch<'_>,
    options: &ReplOptions,
) -> std::result::Result<(), ReadlineError> {
    if options
        .commands
        .iter()
        .any(|line| obey(navigator, line, watch, options.color))
    {
        return Ok(());
    }
    let mut last = String::new();
    loop {
        let line = match editor.readline("(backtrail) ") {
            Ok(line) if line.trim().is_empty() => last.clone(),
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => String::new(),
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error),
        };
        last = repeated(&line);
        if let Some((columns, _)) = editor.dimensions() {
            navigator.borrow_mut().width = usize::from(columns);
        }
        if !line.trim().is_empty() && obey(navigator, &line, watch, options.color) {
            return Ok(());
        }
    }
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

/// Runs a command and prints its answer; says whether the session ends.
fn obey(navigator: &RefCell<Navigator>, line: &str, watch: &Watch<'_>, color: bool) -> bool {
    watch.cancel.store(false, Ordering::Relaxed);
    let answer = commands::execute(&mut navigator.borrow_mut(), line, watch);
    let mut text = Text::new(color);
    match &answer {
        Ok(output) => output.render(&mut text),
        Err(error) => text.line(error.to_string()),
    }
    print!("{}", text.into_string());
    matches!(answer, Ok(Output::Quit))
}

/// Not being able to keep the history is no reason to fail.
fn save_history(editor: &mut Editor<Assistant, DefaultHistory>, file: &PathBuf) {
    if let Some(directory) = file.parent() {
        let _ = std::fs::create_dir_all(directory);
    }
    let _ = editor.save_history(file);
}
