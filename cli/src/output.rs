//! Output to stdout: text for people, or JSON for programs. No text from a trace can control the
//! terminal.
//!
//! Every JSON record has a key `"schema": "backtrail-COMMAND/1"`. The number grows when a field is
//! removed or changes its meaning, not when one is added (docs/cli.md).

use crate::exit::Failure;
use backtrail_console::output::{Text, visible_lines, write_json};
use serde::Serialize;
use std::io::{BufWriter, StdoutLock, Write};

/// Buffered standard output; call [`Output::finish`] to flush it. Control characters in its text
/// are escaped, except line feeds and tabs.
pub struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// Locks stdout.
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(1 << 16, std::io::stdout().lock()))
    }

    /// Writes one JSON value on a line of its own, its schema first.
    pub fn json(&mut self, schema: &str, value: &impl Serialize) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct JsonRecord<'a, T> {
            schema: &'a str,
            #[serde(flatten)]
            value: &'a T,
        }
        write_json(&mut self.0, &JsonRecord { schema, value })?;
        writeln!(self.0)?;
        Ok(())
    }

    /// Writes text that the debugger rendered, with its colors.
    pub fn text(&mut self, text: Text) -> Result<(), Failure> {
        self.0.write_all(text.into_string().as_bytes())?;
        Ok(())
    }

    /// Returns the underlying stream, for binary data and for callers that escape text themselves.
    pub fn bytes(&mut self) -> &mut impl Write {
        &mut self.0
    }

    /// Flushes the output.
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
