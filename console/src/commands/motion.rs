//! The verbs that move by steps, calls and breakpoints.

use super::{Context, arguments, number};
use crate::output::Output;
use crate::views;
use backtrail_debugger::StopReason;
use backtrail_debugger::breakpoint::Hits;
use backtrail_debugger::step::{Direction, Motion};
use backtrail_debugger::{Error, Result};
use backtrail_decoder::CallId;

/// Makes `motion` as often as the arguments say; a stop for another reason ends it early.
fn repeat(context: &mut Context<'_>, motion: &Motion, direction: Direction, times: u64) -> Result<Output> {
    let from = context.navigator.position();
    let mut last = context.navigator.run(motion, direction, context.watch)?;
    for _ in 1..times {
        if last.reason != StopReason::Done {
            break;
        }
        last = context.navigator.run(motion, direction, context.watch)?;
    }
    last.from = from;
    let mut view = views::stop(context.navigator, last, context.watch)?;
    if matches!(motion, Motion::Instruction | Motion::NextInstruction) {
        view.place.instruction = views::instruction(context.navigator);
    }
    if let (StopReason::Breakpoint { .. }, Some(frame)) = (&view.reason, &mut view.place.frame) {
        let number = frame.number;
        let mut frames = context
            .navigator
            .stack(number.saturating_add(1), context.watch)?
            .frames;
        arguments::fill(context.navigator, &mut frames, number, context.watch)?;
        frame.arguments = frames.pop().and_then(|frame| frame.arguments);
    }
    Ok(Output::Stop(Box::new(view)))
}

/// Returns the number of moves.
fn times(arguments: &str) -> Result<u64> {
    match number(arguments, 1)? {
        0 => Err(Error::Cannot("the count must be at least 1".to_owned())),
        times => Ok(times),
    }
}

macro_rules! verbs {
    ($($forward:ident $backward:ident $motion:ident)*) => {
        $(
            pub(super) fn $forward(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
                let times = times(arguments)?;
                repeat(context, &Motion::$motion, Direction::Forward, times)
            }

            pub(super) fn $backward(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
                let times = times(arguments)?;
                repeat(context, &Motion::$motion, Direction::Backward, times)
            }
        )*
    };
}

verbs! {
    stepi reverse_stepi Instruction
    nexti reverse_nexti NextInstruction
    step reverse_step Step
    next reverse_next Next
    finish reverse_finish Finish
}

pub(super) fn go_on(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    pass_breakpoint(context, arguments)?;
    repeat(context, &Motion::Continue, Direction::Forward, 1)
}

pub(super) fn reverse_continue(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    pass_breakpoint(context, arguments)?;
    repeat(context, &Motion::Continue, Direction::Backward, 1)
}

/// GDB's `continue N`: ignores the breakpoint at the position N - 1 times.
fn pass_breakpoint(context: &mut Context<'_>, arguments: &str) -> Result<()> {
    let times = times(arguments)?;
    if times <= 1 {
        return Ok(());
    }
    let (index, process) = (context.navigator.index(), context.navigator.process()?.pid);
    let mut here = None;
    for breakpoint in context.navigator.breakpoints.all() {
        let Some(hits) = breakpoint.hits.get(&process) else {
            continue;
        };
        if context
            .navigator
            .with_steps(context.watch, |steps| hits.at(&steps.lines, index))?
        {
            here = Some(breakpoint.number);
        }
    }
    // As in GDB, the number says nothing where no breakpoint is.
    if let Some(number) = here {
        context.navigator.breakpoints.get_mut(number)?.ignore = times - 1;
    }
    Ok(())
}

/// `until`: as `next`, but not back to a line of a loop that was passed. `until LOCATION`: to
/// LOCATION in this frame.
pub(super) fn until(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let motion = match arguments {
        "" => Motion::Next,
        location => Motion::Advance(context.navigator.resolve(location, context.watch)?.hits),
    };
    let from = context.navigator.position();
    let (start, pc) = (call(context)?, context.navigator.pc());
    let mut last;
    loop {
        last = context
            .navigator
            .run(&motion, Direction::Forward, context.watch)?;
        let here = call(context)?;
        let goes_on = match motion {
            Motion::Next => here == start && context.navigator.pc() <= pc,
            Motion::Advance(ref hits) => {
                is_inside(context, here, start)? || (here == start && !hits_here(context, hits)?)
            }
            _ => false,
        };
        if last.reason != StopReason::Done || !goes_on {
            break;
        }
    }
    last.from = from;
    Ok(Output::Stop(Box::new(views::stop(
        context.navigator,
        last,
        context.watch,
    )?)))
}

/// The call that is executed here.
fn call(context: &Context<'_>) -> Result<Option<CallId>> {
    let index = context.navigator.index();
    context
        .navigator
        .with_steps(context.watch, |steps| Ok(steps.forest().call_at(index)))
}

fn hits_here(context: &Context<'_>, hits: &Hits) -> Result<bool> {
    let index = context.navigator.index();
    let navigator = &*context.navigator;
    navigator.with_steps(context.watch, |steps| hits.at(&steps.lines, index))
}

/// `here` is a call that `start` made, or one that this made.
fn is_inside(context: &Context<'_>, here: Option<CallId>, start: Option<CallId>) -> Result<bool> {
    let (Some(here), Some(start)) = (here, start) else {
        return Ok(false);
    };
    context.navigator.with_steps(context.watch, |steps| {
        let mut around = steps.forest().call(here).parent;
        while let Some(parent) = around {
            if parent == start {
                return Ok(true);
            }
            around = steps.forest().call(parent).parent;
        }
        Ok(false)
    })
}

pub(super) fn advance(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let hits = context.navigator.resolve(arguments, context.watch)?.hits;
    repeat(context, &Motion::Advance(hits), Direction::Forward, 1)
}

pub(super) fn reverse_advance(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let hits = context.navigator.resolve(arguments, context.watch)?.hits;
    repeat(context, &Motion::Advance(hits), Direction::Backward, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_at_least_one() {
        assert_eq!((times("").unwrap(), times("3").unwrap()), (1, 3));
        for text in ["0", "-1", "x"] {
            assert!(times(text).is_err(), "{text}");
        }
    }
}
