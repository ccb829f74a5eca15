//! Standard output: text for people, or JSON for programs. Text of a trace never controls the
//! terminal.
//!
//! Every JSON record has `"schema": "backtrail-COMMAND/1"`. The number increases when a field is
//! removed or changes its meaning, and not when one is added (docs/cli.md).

use crate::exit::Failure;
use backtrail_debugger::output::{Text, visible, visible_lines, write_json};
use serde::Serialize;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

/// Returns whether stdout is a terminal with colors that `NO_COLOR` does not disable.
pub fn has_color() -> bool {
    let says_no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    std::io::stdout().is_terminal() && !says_no && !is_dumb
}

/// Text that comes from a bundle, on one line and without anything that would steer the terminal.
pub fn plain(text: &str) -> String {
    visible(text).into_owned()
}

/// A line on standard error, on one line whatever it says.
pub fn complain(line: &str) {
    // The reader may have closed the pipe, and there is no other output for the error.
    let _ = writeln!(std::io::stderr(), "backtrail: {}", visible(line));
}

/// Buffered standard output; flush it with [`Output::finish`].
///
/// Line feeds and tabs are written as they are, and other control characters as U+FFFD.
pub struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// Locks stdout.
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(1 << 16, std::io::stdout().lock()))
    }

    /// One JSON value on a line of its own, its schema first.
    pub fn json(&mut self, schema: &str, value: &impl Serialize) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Record<'a, T> {
            schema: &'a str,
            #[serde(flatten)]
            value: &'a T,
        }
        write_json(&mut self.0, &Record { schema, value })?;
        writeln!(self.0)?;
        Ok(())
    }

    /// Writes text that the debugger rendered, with its colors.
    pub fn text(&mut self, text: Text) -> Result<(), Failure> {
        self.0.write_all(text.into_string().as_bytes())?;
        Ok(())
    }

    /// The stream itself, for bytes that are no text, and for what has its own way with text.
    pub fn bytes(&mut self) -> &mut impl Write {
        &mut self.0
    }

    /// Everything is written.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.0.flush()?;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for chunk in bytes.utf8_chunks() {
            self.0.write_all(visible_lines(chunk.valid()).as_bytes())?;
            if !chunk.invalid().is_empty() {
                self.0.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
