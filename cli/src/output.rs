//! What goes to stdout: text for people, or JSON for programs. None of it commands the terminal, whatever it says of a trace.
//!
//! Every JSON record carries `"schema": "backtrail-COMMAND/1"`; the number grows when a field
//! changes its meaning or goes, not when one is added (docs/cli.md).

use crate::exit::Failure;
use backtrail_console::output::{Text, visible, visible_lines, write_json};
use serde::Serialize;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

/// Stdout is a terminal that shows colors, and nobody said no (<https://no-color.org>).
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
    // Whoever reads it may be gone, and nothing else hears of it.
    let _ = writeln!(std::io::stderr(), "backtrail: {}", visible(line));
}

/// Standard output, buffered; flush it with [`Output::finish`]. Of text that is written to it, line feeds and tabs are all that is not
/// shown as a character.
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

    /// What the debugger rendered, with its colors.
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
