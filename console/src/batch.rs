//! Commands without a terminal: `--batch`, `-e`, `-x`, `--json`.
//!
//! With JSON, each line of the output is an object. The first is `{"schema": "backtrail-debug/1"}`,
//! each other `{"command": "…", "ok": true, "result": {"kind": "…", …}}` or `{"command": "…", "ok":
//! false, "error": "…"}`. Within a schema's number, members are added and never removed or changed.

use crate::commands;
use crate::output::{Output, Text};
use backtrail_debugger::Result;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::Session;
use backtrail_decoder::Watch;
use serde::Serialize;
use std::io::{self, Write};

/// The name and number of the JSON schema.
pub const SCHEMA: &str = "backtrail-debug/1";

#[derive(Serialize)]
struct Header {
    schema: &'static str,
}

#[derive(Serialize)]
struct Record<'a> {
    command: &'a str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Output>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The reason why a batch ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The session cannot be debugged.
    #[error(transparent)]
    Debugger(#[from] backtrail_debugger::Error),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
}

/// The options of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchOptions {
    /// JSON instead of text.
    pub json: bool,
    /// Shows each command before its answer: a transcript.
    pub echo: bool,
    /// Colors the text.
    pub color: bool,
}

/// Runs commands one after the other, through failures, up to `quit`. Gives how many failed.
///
/// # Errors
/// When the session has no thread, or `out` cannot be written.
pub fn run<'a>(
    session: Session,
    commands: impl IntoIterator<Item = &'a str>,
    options: BatchOptions,
    watch: &Watch<'_>,
    out: &mut dyn Write,
) -> std::result::Result<usize, BatchError> {
    let mut navigator = Navigator::new(session)?;
    let failed = run_all(&mut navigator, commands, options, watch, out);
    failed.map_err(BatchError::Output)
}

fn run_all<'a>(
    navigator: &mut Navigator,
    commands: impl IntoIterator<Item = &'a str>,
    options: BatchOptions,
    watch: &Watch<'_>,
    out: &mut dyn Write,
) -> io::Result<usize> {
    let mut failed = 0;
    if options.json {
        write_json(out, &Header { schema: SCHEMA })?;
    }
    for command in commands
        .into_iter()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let answer = commands::execute(navigator, command, watch);
        failed += usize::from(answer.is_err());
        if options.json {
            let error = answer.as_ref().err().map(ToString::to_string);
            write_json(
                out,
                &Record {
                    command,
                    ok: error.is_none(),
                    result: answer.as_ref().ok(),
                    error,
                },
            )?;
        } else {
            write_text(out, command, &answer, options)?;
        }
        out.flush()?;
        if matches!(answer, Ok(Output::Quit)) {
            break;
        }
    }
    Ok(failed)
}

fn write_json(out: &mut dyn Write, record: &impl Serialize) -> io::Result<()> {
    crate::output::write_json(out, record)?;
    out.write_all(b"\n")
}

fn write_text(
    out: &mut dyn Write,
    command: &str,
    answer: &Result<Output>,
    options: BatchOptions,
) -> io::Result<()> {
    let mut text = Text::new(options.color);
    if options.echo {
        text.line(format!("(backtrail) {command}"));
    }
    match answer {
        Ok(output) => output.render(&mut text),
        Err(error) => text.line(format!("error: {error}")),
    }
    out.write_all(text.into_string().as_bytes())
}
