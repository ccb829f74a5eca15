//! The stack: `backtrace`, `frame`, `up`, `down`.

use super::{Context, arguments, number, values};
use crate::output::Output;
use crate::views;
use backtrail_debugger::stack::Stack;
use backtrail_debugger::{Error, Result};
use backtrail_symbolizer::is_named;

/// A stack is not shown deeper than this unless asked for.
const DEPTH: u64 = 200;

/// `backtrace [full] [N|-N]`: the N innermost frames, or outermost.
pub(super) fn backtrace(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let (mut full, mut count) = (false, None);
    for word in arguments.split_whitespace() {
        match word.trim_start_matches('-') {
            "full" => full = true,
            digits => {
                let number = number(digits, DEPTH)?;
                count = Some((number, word.starts_with('-')));
            }
        }
    }
    let limit = match count {
        Some((_, true)) => u64::MAX,
        Some((count, false)) => count,
        None => DEPTH,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut stack = context.navigator.stack(limit.saturating_add(1), context.watch)?;
    let more = cut(&mut stack, limit);
    let from = match count {
        Some((count, true)) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            stack.frames.len().saturating_sub(count)
        }
        _ => 0,
    };
    arguments::fill(context.navigator, &mut stack.frames, from, context.watch)?;
    stack.frames.drain(..from);
    if !full {
        return Ok(Output::Backtrace { stack, more });
    }
    let selected = context.navigator.selected_frame();
    let mut locals = Vec::new();
    for frame in &stack.frames {
        context.navigator.select_frame(frame.number, context.watch)?;
        locals.push(values::locals_of(context));
    }
    context.navigator.select_frame(selected, context.watch)?;
    let locals = locals.into_iter().collect::<Result<_>>()?;
    Ok(Output::FullBacktrace { stack, locals, more })
}

/// Leaves no more frames than `limit`; whether there were.
pub(super) fn cut(stack: &mut Stack, limit: usize) -> bool {
    let more = stack.frames.len() > limit;
    stack.frames.truncate(limit);
    more
}

/// `frame [N]`, `frame level N`, `frame function NAME`.
pub(super) fn frame(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let selected = context.navigator.selected_frame() as u64;
    match arguments.split_once(char::is_whitespace) {
        Some(("level", level)) => select(context, number(level.trim(), selected)?),
        Some(("function", name)) => {
            let name = name.trim();
            let frames = context.navigator.stack(usize::MAX, context.watch)?.frames;
            let found = frames.iter().position(|frame| {
                let function = frame.function.as_deref();
                function.is_some_and(|function| is_named(function, name))
            });
            let none = || {
                Error::Cannot(format!(
                    "no frame of function \"{name}\"; `backtrace` shows the frames"
                ))
            };
            select(context, found.ok_or_else(none)? as u64)
        }
        _ => select(context, number(arguments, selected)?),
    }
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
    let mut stack = context.navigator.stack(to.saturating_add(1), context.watch)?;
    arguments::fill(context.navigator, &mut stack.frames, to, context.watch)?;
    let gone = || Error::Cannot("the frame no longer exists".to_owned());
    let frame = stack.frames.into_iter().nth(to).ok_or_else(gone)?;
    let source = views::line_of(context.navigator, &frame);
    Ok(Output::Frame {
        number: to,
        frame,
        source,
        called: None,
    })
}
