//! Recorded values over time: `watch`, `rwatch`, `awatch`, and the writes of an expression.

use super::{Context, breakpoints, calls, find, goto, motion, search};
use crate::output::{Output, WritesView};
use backtrail_debugger::origin;
use backtrail_debugger::step::Direction;
use backtrail_debugger::watchpoint::WatchKind;
use backtrail_debugger::{Error, Result};

/// `history EXPR` shows no more writes unless a number is given.
const WRITES: usize = 20;

fn set(context: &mut Context<'_>, command: &str, arguments: &str, kind: WatchKind) -> Result<Output> {
    let (expression, condition) = match arguments.split_once(" if ") {
        Some((expression, condition)) => (expression.trim(), Some(condition)),
        None => (arguments, None),
    };
    let (expression, at_location) = match expression.split_once(char::is_whitespace) {
        Some(("-l" | "-location", expression)) => (expression.trim(), true),
        _ => (expression, false),
    };
    if expression.is_empty() {
        return Err(find(command)?.misuse("an expression is required"));
    }
    let navigator = &mut *context.navigator;
    let number = navigator.set_watchpoint(expression, kind, at_location, condition, context.watch)?;
    Ok(Output::Breakpoint {
        breakpoint: breakpoints::view(navigator.breakpoints.get_mut(number)?),
    })
}

pub(super) fn watch(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    set(context, "watch", arguments, WatchKind::Change)
}

pub(super) fn rwatch(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    set(context, "rwatch", arguments, WatchKind::Read)
}

pub(super) fn awatch(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    set(context, "awatch", arguments, WatchKind::Access)
}

/// `info watchpoints`.
pub(super) fn info(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let all = context.navigator.breakpoints.all().iter();
    let watchpoints = all.filter(|one| one.watchpoint.is_some());
    Ok(Output::Breakpoints {
        breakpoints: watchpoints.map(breakpoints::view).collect(),
    })
}

/// `next N`, or `next EXPR`.
pub(super) fn next(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    match is_count(arguments) {
        true => motion::next(context, arguments),
        false => go_to_write(context, arguments, Direction::Forward),
    }
}

/// `last LOCATION`, or `last EXPR`. A variable comes before code of the same name, as in the
/// program.
pub(super) fn last(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let is_address = arguments
        .strip_prefix('*')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '$'));
    if is_count(arguments) || is_address || !context.navigator.has_values()? {
        return search::last(context, arguments);
    }
    match context.navigator.is_watchable(arguments, context.watch) {
        Ok(()) => go_to_write(context, arguments, Direction::Backward),
        Err(error @ (Error::Canceled | Error::Earlier)) => Err(error),
        Err(wrong) => match search::last(context, arguments) {
            Err(Error::NoSymbol { .. } | Error::BadLocation(_)) => Err(wrong),
            answer => answer,
        },
    }
}

fn go_to_write(context: &mut Context<'_>, expression: &str, direction: Direction) -> Result<Output> {
    let stop = context
        .navigator
        .go_to_write(expression, direction, context.watch)?;
    goto::moved_to_thread(context, stop)
}

/// `history N`, or `history EXPR [N]`.
pub(super) fn history(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if is_count(arguments) {
        return calls::history(context, arguments);
    }
    let (expression, limit) = match arguments.rsplit_once(char::is_whitespace) {
        Some((expression, count)) if is_count(count) => (
            expression.trim(),
            usize::try_from(super::number(count, 0)?).unwrap_or(usize::MAX),
        ),
        _ => (arguments, WRITES),
    };
    let (mut writes, more) = context.navigator.writes(expression, limit, context.watch)?;
    writes.reverse();
    Ok(Output::Writes(WritesView {
        expression: expression.to_owned(),
        writes,
        more,
    }))
}

/// `origin EXPR`.
pub(super) fn origin(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if arguments.is_empty() {
        return Err(find("origin")?.misuse("an expression is required"));
    }
    let origin = origin::origin(context.navigator, arguments, context.watch)?;
    Ok(Output::Origin(Box::new(origin)))
}

fn is_count(text: &str) -> bool {
    text.is_empty() || text.chars().all(|c| c.is_ascii_digit())
}
