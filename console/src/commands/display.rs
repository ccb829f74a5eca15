//! `display`, `undisplay`, `info display`: expressions that are shown after each move.

use super::values::{displayed, format_of};
use super::{Context, x};
use crate::output::Output;
use backtrail_debugger::navigator::Display;
use backtrail_debugger::{Error, Result};

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
    // What makes no sense here is refused, and not kept.
    if x::is_of_memory(format) {
        x::shown(navigator, context.watch, arguments)?;
    } else {
        backtrail_debugger::evaluation::with_context(navigator, context.watch, |eval| {
            super::values::evaluated(eval, format, expression)
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
        return Ok(Output::message("No expression is displayed any more."));
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
