//! `evaluate`: in the console every command of the debugger, elsewhere an expression of the program.

use super::breakpoints::follow_console;
use super::motion::tell_log;
use super::variables::variable;
use crate::adapter::{Adapter, Then};
use crate::failure::Result;
use crate::handles::FrameKey;
use crate::own::bookmarks;
use crate::protocol::types::{EvaluateArguments, EvaluateContext, EvaluateResponseBody};
use crate::stopped::Why;
use backtrail_debugger::navigator::Stop;
use backtrail_debugger::output::Text;
use backtrail_debugger::values::tree::{self, Format};
use backtrail_debugger::{Error, Output, commands};
use backtrail_decoder::Watch;

/// Evaluates an expression, or does a command.
pub fn evaluate(
    adapter: &mut Adapter,
    arguments: EvaluateArguments,
    watch: &Watch<'_>,
) -> Result<EvaluateResponseBody> {
    let format = Format {
        hex: arguments.format.is_some_and(|format| format.hex == Some(true)),
    };
    let debuggee = adapter.debuggee()?;
    let frame = debuggee.frame(arguments.frame_id)?;
    match arguments.context {
        Some(EvaluateContext::Repl) => command(adapter, frame, &arguments.expression, watch),
        _ => value(adapter, frame, &arguments.expression, format, watch),
    }
}

/// The value of an expression.
fn value(
    adapter: &mut Adapter,
    frame: FrameKey,
    expression: &str,
    format: Format,
    watch: &Watch<'_>,
) -> Result<EvaluateResponseBody> {
    let debuggee = adapter.debuggee()?;
    let (expression, format) = formatted(expression, format);
    let node = debuggee.look_from(frame, watch, |navigator| {
        tree::evaluated(navigator, expression, format, watch)
    })?;
    let shown = variable(debuggee, frame, node);
    Ok(EvaluateResponseBody {
        result: shown.value,
        r#type: shown.r#type,
        variables_reference: shown.variables_reference,
        indexed_variables: shown.indexed_variables,
        memory_reference: shown.memory_reference,
        presentation_hint: shown.presentation_hint,
        ..EvaluateResponseBody::default()
    })
}

/// `EXPRESSION,x`: hexadecimal, as debuggers in editors have it.
fn formatted(expression: &str, format: Format) -> (&str, Format) {
    match expression
        .trim()
        .strip_suffix(",x")
        .or_else(|| expression.trim().strip_suffix(",h"))
    {
        Some(expression) => (expression, Format { hex: true }),
        None => (expression.trim(), format),
    }
}

/// Does a command in a frame; what is no command is an expression.
fn command(
    adapter: &mut Adapter,
    frame: FrameKey,
    line: &str,
    watch: &Watch<'_>,
) -> Result<EvaluateResponseBody> {
    adapter.debuggee()?;
    let line = line.trim();
    if matches!(commands::parse(line), Err(Error::UnknownCommand(_))) && !line.is_empty() {
        return value(adapter, frame, line, Format::default(), watch);
    }
    stand_in(adapter, frame, watch)?;
    let debuggee_position = |adapter: &mut Adapter| -> Result<_> {
        let navigator = &adapter.debuggee()?.navigator;
        Ok((navigator.position(), navigator.selected_frame()))
    };
    let before = debuggee_position(adapter)?;
    let debuggee = adapter.debuggee()?;
    let breakpoints: Vec<u32> = debuggee
        .navigator
        .breakpoints
        .all()
        .iter()
        .map(|known| known.number)
        .collect();
    let marks = debuggee.navigator.bookmarks.clone();
    let answer = commands::execute(&mut debuggee.navigator, line, watch);
    let same_marks = debuggee.navigator.bookmarks == marks;
    tell_log(adapter);
    follow_console(adapter, &breakpoints);
    if !same_marks {
        bookmarks::tell(adapter)?;
    }
    let output = answer?;
    if debuggee_position(adapter)?.0 != before.0 {
        adapter
            .then
            .extend([Then::Continued, Then::Stopped(why(&output))]);
    }
    if matches!(output, Output::Quit) {
        adapter.then.push(Then::Terminated);
    }
    let mut text = Text::plain();
    output.render(&mut text);
    let mut body = EvaluateResponseBody {
        result: text.into_string().trim_end().to_owned(),
        ..EvaluateResponseBody::default()
    };
    // A value can be opened.
    if let Output::Value { expression, .. } = &output {
        let debuggee = adapter.debuggee()?;
        let node = debuggee.look_from(frame, watch, |navigator| {
            tree::evaluated(navigator, expression, Format::default(), watch)
        });
        if let Ok(node) = node {
            let shown = variable(debuggee, frame, node);
            body.variables_reference = shown.variables_reference;
            body.indexed_variables = shown.indexed_variables;
            body.r#type = shown.r#type;
        }
    }
    Ok(body)
}

/// A command is done in the frame that the user looks at.
fn stand_in(adapter: &mut Adapter, frame: FrameKey, watch: &Watch<'_>) -> Result<()> {
    let debuggee = adapter.debuggee()?;
    if frame.position.tid() != debuggee.navigator.position().tid() {
        debuggee.select(frame.position.tid(), watch)?;
    }
    let number = frame.number;
    if number != debuggee.navigator.selected_frame() {
        debuggee
            .navigator
            .with_earlier(watch, |navigator| navigator.select_frame(number, watch))?;
    }
    Ok(())
}

/// Why a command that moved ended where it did.
fn why(output: &Output) -> Why {
    let Output::Stop(view) = output else {
        return Why::Went;
    };
    let position = |text: &str| text.parse().ok();
    match position(&view.from).zip(position(&view.place.position)) {
        Some((from, to)) => Why::Moved(Box::new(Stop {
            from,
            to,
            reason: view.reason.clone(),
            crossed_gap: view.crossed_gap.clone(),
            untold: view.untold.clone(),
        })),
        None => Why::Went,
    }
}
