//! The lines that a person types or pastes at the prompt, in order.

use crate::complete::complete;
use crate::output::{Text, is_invisible};
use backtrail_debugger::navigator::Navigator;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, CompletionType, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, Helper,
    KeyEvent, RepeatCount,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The prompt.
const PROMPT: &str = "(backtrail) ";

/// A line of input.
pub(super) enum Typed {
    /// A command, without space around it.
    Line(String),
    /// An empty line, which repeats a command.
    Empty,
    /// Ctrl-C at the prompt, which drops the line.
    Interrupted,
    /// The end of the input.
    End,
}

/// Completes the words of commands.
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

/// Ends the line at Ctrl-C. The editor's own interruption would drop input that follows.
struct LineInterrupt(Arc<AtomicBool>);

impl ConditionalEventHandler for LineInterrupt {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(true, Ordering::Relaxed);
        Some(Cmd::AcceptLine)
    }
}

type LineEditor = Editor<Assistant, DefaultHistory>;

/// The lines of a terminal.
///
/// The editor reads more than a line when several are typed ahead, and keeps the others for its
/// next line. A paste arrives as one text of several lines.
pub(super) struct Input {
    navigator: Rc<RefCell<Navigator>>,
    editor: LineEditor,
    /// The lines of a paste that have not run.
    pasted: VecDeque<String>,
    /// Whether Ctrl-C ended the line.
    interrupted: Arc<AtomicBool>,
}

impl Input {
    /// Opens the terminal.
    pub(super) fn new(navigator: Rc<RefCell<Navigator>>) -> rustyline::Result<Self> {
        let interrupted = Arc::default();
        Ok(Self {
            editor: editor(&navigator, &interrupted, DefaultHistory::new())?,
            navigator,
            pasted: VecDeque::new(),
            interrupted,
        })
    }

    /// Reads the history of earlier sessions, if there is one.
    pub(super) fn load_history(&mut self, file: &Path) {
        // The first session has none.
        let _ = self.editor.load_history(file);
    }

    /// Writes the history. A failure is no reason to fail.
    pub(super) fn save_history(&mut self, file: &Path) {
        if let Some(directory) = file.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let _ = self.editor.save_history(file);
    }

    /// Returns the columns and rows of the terminal.
    pub(super) fn dimensions(&mut self) -> Option<(usize, usize)> {
        let (columns, rows) = self.editor.dimensions()?;
        Some((usize::from(columns), usize::from(rows)))
    }

    /// Returns the next line: of a paste, typed ahead, or typed now.
    pub(super) fn read(&mut self) -> Result<Typed, ReadlineError> {
        if let Some(line) = self.pasted.pop_front() {
            let mut echo = Text::plain();
            echo.line(format!("{PROMPT}{line}"));
            print!("{}", echo.into_string());
            return Ok(Typed::Line(line));
        }
        self.interrupted.store(false, Ordering::Relaxed);
        let text = match self.editor.readline(PROMPT) {
            _ if self.interrupted.load(Ordering::Relaxed) => return Ok(Typed::Interrupted),
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => return Ok(Typed::Interrupted),
            Err(ReadlineError::Eof) => return Ok(Typed::End),
            Err(error) => return Err(error),
        };
        self.pasted = commands_of(&text);
        for line in &self.pasted {
            self.editor.add_history_entry(line)?;
        }
        Ok(self.pasted.pop_front().map_or(Typed::Empty, Typed::Line))
    }

    /// Returns whether lines wait that a pager would take or delay.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pasted.is_empty() || has_typed_ahead()
    }

    /// Drops the lines that were typed or pasted and have not run.
    pub(super) fn drop_typed_ahead(&mut self) -> Result<(), ReadlineError> {
        self.pasted.clear();
        // Only a new editor has nothing read ahead.
        let history = std::mem::replace(self.editor.history_mut(), DefaultHistory::new());
        self.editor = editor(&self.navigator, &self.interrupted, history)?;
        Ok(())
    }
}

/// Returns an editor of lines on this terminal.
fn editor(
    navigator: &Rc<RefCell<Navigator>>,
    interrupted: &Arc<AtomicBool>,
    history: DefaultHistory,
) -> rustyline::Result<LineEditor> {
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor = Editor::with_history(config, history)?;
    editor.set_helper(Some(Assistant(Rc::clone(navigator))));
    let interrupt = LineInterrupt(Arc::clone(interrupted));
    editor.bind_sequence(
        KeyEvent::ctrl('c'),
        EventHandler::Conditional(Box::new(interrupt)),
    );
    Ok(editor)
}

/// Returns whether the terminal has a line that the editor has not read.
#[cfg(unix)]
fn has_typed_ahead() -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let input = std::io::stdin();
    let mut files = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    poll(&mut files, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Returns whether the terminal has a line that the editor has not read, which is not known.
#[cfg(not(unix))]
const fn has_typed_ahead() -> bool {
    false
}

/// Returns the commands of a text, one a line. Empty lines of a paste repeat nothing.
fn commands_of(text: &str) -> VecDeque<String> {
    let lines = text.split(['\n', '\r']).map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pasted_text_is_one_command_a_line() {
        assert_eq!(
            commands_of("break f \n\n  step\r\nwhen\n"),
            ["break f", "step", "when"]
        );
        assert!(commands_of(" \n ").is_empty());
    }
}
