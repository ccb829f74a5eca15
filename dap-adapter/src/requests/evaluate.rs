//! `evaluate`: in the console every command of the debugger, elsewhere an expression of the
//! program.

use super::breakpoints::follow_console;
use super::stepping::report_log;
use super::variables::{add_values_at_crash, variable};
use crate::extensions::{bookmarks, my_code};
use crate::failure::{Failure, Result};
use crate::handles::FrameKey;
use crate::protocol::types::{
    EvaluateArguments, EvaluateContext, EvaluateResponseBody, VariablePresentationHint,
    VariablePresentationHintAttributes,
};
use crate::session::StopCause;
use crate::session::{ClientSession, FollowUp};
use backtrail_console::Output;
use backtrail_console::commands::{self, LineError};
use backtrail_console::output::Text;
use backtrail_debugger::Error;
use backtrail_debugger::evaluation::variables::{self, Format};
use backtrail_debugger::navigator::Stop;
use backtrail_decoder::Watch;
use std::slice;

/// Evaluates an expression, or does a command.
pub fn evaluate(
    client: &mut ClientSession,
    arguments: EvaluateArguments,
    watch: &Watch<'_>,
) -> Result<EvaluateResponseBody> {
    let format = Format {
        hex: arguments.format.is_some_and(|format| format.hex == Some(true)),
    };
    let debuggee = client.debuggee()?;
    let frame = debuggee.frame(arguments.frame_id)?;
    match arguments.context {
        // A note between frames has no position for a command.
        Some(EvaluateContext::Repl) if frame.number == FrameKey::NONE => {
            let frame = debuggee.frame(None)?;
            command(client, frame, &arguments.expression, format, watch)
        }
        Some(EvaluateContext::Repl) => command(client, frame, &arguments.expression, format, watch),
        Some(EvaluateContext::Watch) => {
            let evaluated = value(client, frame, &arguments.expression, format, watch);
            evaluated.or_else(reason_as_value)
        }
        _ => value(client, frame, &arguments.expression, format, watch).map_err(unseen),
    }
}

/// Returns the reason why a watched expression has no value in place of the value. An error would
/// be a message at each step.
fn reason_as_value(failure: Failure) -> Result<EvaluateResponseBody> {
    let Failure::Debugger(reason) = &failure else {
        return Err(failure);
    };
    if failure.is_cancelled() {
        return Err(failure);
    }
    Ok(EvaluateResponseBody {
        result: format!("<{reason}>"),
        presentation_hint: Some(VariablePresentationHint {
            attributes: Some(vec![VariablePresentationHintAttributes::ReadOnly]),
            ..VariablePresentationHint::default()
        }),
        ..EvaluateResponseBody::default()
    })
}

/// Returns a failure that editors show in place, and not as a message.
fn unseen(failure: Failure) -> Failure {
    match failure {
        Failure::Debugger(error) if !matches!(error, Error::Canceled) => Failure::NoValue(error.to_string()),
        failure => failure,
    }
}

/// The value of an expression.
fn value(
    client: &mut ClientSession,
    frame: FrameKey,
    expression: &str,
    format: Format,
    watch: &Watch<'_>,
) -> Result<EvaluateResponseBody> {
    let debuggee = client.debuggee()?;
    let (expression, format) = formatted(expression, format);
    let node = debuggee.look_from(frame, watch, |navigator| {
        let mut node = variables::evaluate(navigator, expression, format, watch)?;
        add_values_at_crash(navigator, slice::from_mut(&mut node), format, watch)?;
        Ok(node)
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
    client: &mut ClientSession,
    frame: FrameKey,
    line: &str,
    format: Format,
    watch: &Watch<'_>,
) -> Result<EvaluateResponseBody> {
    client.debuggee()?;
    let line = line.trim();
    if matches!(commands::parse(line), Err(LineError::Unknown { .. })) && !line.is_empty() {
        return value(client, frame, line, format, watch);
    }
    let debuggee = client.debuggee()?;
    let before = debuggee.navigator.position();
    let breakpoints = debuggee.numbers_of_breakpoints();
    let marks = debuggee.navigator.bookmarks.clone();
    let just_my_code = debuggee.navigator.just_my_code;
    let answer = debuggee.go_from(frame, watch, |navigator| {
        commands::execute(navigator, line, watch)
    });
    let same_marks = debuggee.navigator.bookmarks == marks;
    let same_setting = debuggee.navigator.just_my_code == just_my_code;
    report_log(client);
    follow_console(client, &breakpoints);
    if !same_marks {
        bookmarks::send_event(client)?;
    }
    if !same_setting {
        my_code::send_event(client)?;
    }
    let output = answer?;
    if client.debuggee()?.navigator.position() != before {
        client
            .follow_ups
            .extend([FollowUp::Continued, FollowUp::Stopped(cause(line, &output))]);
    }
    if matches!(output, Output::Quit) {
        client.follow_ups.push(FollowUp::Terminated);
    }
    let mut text = Text::plain();
    output.render(&mut text);
    let mut body = EvaluateResponseBody {
        result: text.into_string().trim_end().to_owned(),
        ..EvaluateResponseBody::default()
    };
    // A value can be opened.
    if let Output::Value { expression, .. } = &output {
        let debuggee = client.debuggee()?;
        let node = debuggee.look_from(frame, watch, |navigator| {
            variables::evaluate(navigator, expression, format, watch)
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

/// Returns the stop cause of a command that moved.
fn cause(line: &str, output: &Output) -> StopCause {
    const PLACES: [&str; 6] = ["goto", "back", "forward", "first", "last", "thread"];
    let to_place = commands::parse(line).is_ok_and(|(command, _)| PLACES.contains(&command.name));
    let Output::Stop(view) = output else {
        return StopCause::Jumped;
    };
    if to_place {
        return StopCause::Jumped;
    }
    let position = |text: &str| text.parse().ok();
    match position(&view.from).zip(position(&view.place.position)) {
        Some((from, to)) => StopCause::Moved(Box::new(Stop {
            from,
            to,
            reason: view.reason.clone(),
            crossed_gap: view.crossed_gap.clone(),
            undecided: view.undecided.clone(),
            unseen: view.unseen.clone(),
            unordered: view.unordered.clone(),
            elsewhere: view.elsewhere.clone(),
        })),
        None => StopCause::Jumped,
    }
}
