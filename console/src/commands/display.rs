//! `display`, `undisplay`, `info display`: expressions that are shown after each move.

use super::evaluate::evaluated;
use super::format_argument::format_of;
use super::{Context, x};
use crate::output::{NamedValue, Output, Text};
use backtrail_debugger::evaluation::with_context;
use backtrail_debugger::navigator::{Display, Navigator};
use backtrail_debugger::{Error, Result};
use backtrail_decoder::Watch;
use backtrail_values::FormattedValue;

/// More are not taken.
const MAX_DISPLAYS: usize = 100;

/// `display/FORMAT EXPRESSION`; without, shows all.
pub(super) fn display(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (format, expression) = format_of(arguments);
    let navigator = &mut *context.navigator;
    if expression.is_empty() {
        return Ok(Output::Displays {
            displays: displayed(navigator, context.watch)?,
        });
    }
    if navigator.displays.len() >= MAX_DISPLAYS {
        return Err(Error::Cannot(format!(
            "there are {MAX_DISPLAYS} displays; `undisplay` deletes some"
        )));
    }
    // An invalid expression is refused and not stored.
    if x::is_of_memory(format) {
        x::shown(navigator, context.watch, arguments)?;
    } else {
        with_context(navigator, context.watch, |eval| {
            evaluated(eval, format, expression)
        })?;
    }
    let number = navigator.displays.last().map_or(1, |last| last.number + 1);
    navigator.displays.push(Display {
        number,
        format: format.to_owned(),
        expression: expression.to_owned(),
    });
    let mut displays = displayed(navigator, context.watch)?;
    displays.retain(|display| display.number == number);
    Ok(Output::Displays { displays })
}

/// `undisplay N…`; without N, deletes all.
pub(super) fn undisplay(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let displays = &mut context.navigator.displays;
    if arguments.is_empty() {
        displays.clear();
        return Ok(Output::message("Deleted all displays."));
    }
    let mut numbers = Vec::new();
    for word in arguments.split_whitespace() {
        let number = word.parse::<u32>().ok();
        let known = number.filter(|number| displays.iter().any(|display| display.number == *number));
        numbers.push(
            known.ok_or_else(|| {
                Error::Cannot(format!("no display number {word}; `info display` lists them"))
            })?,
        );
    }
    displays.retain(|display| !numbers.contains(&display.number));
    let kept = displays.len();
    Ok(Output::message(format!(
        "{kept} expression{} displayed.",
        if kept == 1 { " is" } else { "s are" }
    )))
}

/// `info display`.
pub(super) fn info(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    Ok(Output::Displays {
        displays: displayed(context.navigator, context.watch)?,
    })
}

/// Returns the answer of `x`, for a display.
fn examined(navigator: &Navigator, watch: &Watch<'_>, display: &Display) -> Result<FormattedValue> {
    let arguments = format!("/{} {}", display.format, display.expression);
    let mut text = Text::plain();
    x::shown(navigator, watch, &arguments)?.render(&mut text);
    Ok(FormattedValue {
        text: text.into_string().trim_end().to_owned(),
        ..FormattedValue::default()
    })
}

/// The values that are displayed after each move.
pub(super) fn displayed(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<NamedValue>> {
    if navigator.displays.is_empty() {
        return Ok(Vec::new());
    }
    with_context(navigator, watch, |eval| {
        let displays = navigator.displays.iter().map(|display| {
            let memory = x::is_of_memory(&display.format);
            let shown = match memory {
                true => examined(navigator, watch, display),
                false => evaluated(eval, &display.format, &display.expression).map(|(_, shown)| shown),
            };
            let shown = match shown {
                Ok(shown) => shown,
                Err(error) => FormattedValue {
                    text: format!("<error: {error}>"),
                    unknown: Some(error.to_string()),
                    ..FormattedValue::default()
                },
            };
            NamedValue {
                number: display.number,
                format: display.format.clone(),
                expression: display.expression.clone(),
                value: shown,
                memory,
            }
        });
        Ok(displays.collect())
    })
}
