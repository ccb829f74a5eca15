//! What goes to stdout: text for people, or JSON for programs.
//!
//! Every JSON record carries `"schema": "backtrail-COMMAND/1"`; the number grows when a field
//! changes its meaning or goes, not when one is added (docs/cli.md).

use crate::exit::Failure;
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
    text.replace(char::is_control, "\u{fffd}")
}

/// Standard output, buffered; flush it with [`Output::finish`].
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
        serde_json::to_writer(&mut self.0, &Record { schema, value }).map_err(std::io::Error::from)?;
        writeln!(self.0)?;
        Ok(())
    }

    /// Everything is written.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.0.flush()?;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
