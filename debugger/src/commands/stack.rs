//! The stack: `backtrace`, `frame`, `up`, `down`.

use super::{Context, number};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::stack::Stack;
use crate::views;

/// A stack is not shown deeper than this unless asked for.
const DEPTH: u64 = 200;

pub(super) fn backtrace(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let limit = number(arguments, DEPTH)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut stack = context.navigator.stack(limit.saturating_add(1), context.watch)?;
    let more = cut(&mut stack, limit);
    Ok(Output::Backtrace { stack, more })
}

/// Leaves no more frames than `limit`; whether there were.
pub(super) fn cut(stack: &mut Stack, limit: usize) -> bool {
    let more = stack.frames.len() > limit;
    stack.frames.truncate(limit);
    more
}

pub(super) fn frame(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let selected = context.navigator.selected_frame() as u64;
    select(context, number(arguments, selected)?)
}

pub(super) fn up(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let to = (context.navigator.selected_frame() as u64).saturating_add(number(arguments, 1)?);
    select(context, to)
}

pub(super) fn down(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let selected = context.navigator.selected_frame() as u64;
    let innermost = || Error::Cannot("this is the innermost frame; `up` goes to its caller".to_owned());
    let to = selected
        .checked_sub(number(arguments, 1)?)
        .ok_or_else(innermost)?;
    select(context, to)
}

fn select(context: &mut Context<'_>, to: u64) -> Result<Output> {
    let to = usize::try_from(to).unwrap_or(usize::MAX);
    context.navigator.select_frame(to, context.watch)?;
    let stack = context.navigator.stack(to.saturating_add(1), context.watch)?;
    let gone = || Error::Cannot("the frame is gone".to_owned());
    let frame = stack.frames.into_iter().nth(to).ok_or_else(gone)?;
    let source = views::line_of(context.navigator, &frame);
    Ok(Output::Frame {
        number: to,
        frame,
        source,
    })
}
