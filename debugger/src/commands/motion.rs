//! The verbs that move by steps, calls and breakpoints.

use super::{Context, number};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::step::{Direction, Motion};
use crate::stop::StopReason;
use crate::views;

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
    Ok(Output::Stop(Box::new(view)))
}

macro_rules! verbs {
    ($($forward:ident $backward:ident $motion:ident)*) => {
        $(
            pub(super) fn $forward(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
                let times = number(arguments, 1)?;
                repeat(context, &Motion::$motion, Direction::Forward, times)
            }

            pub(super) fn $backward(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
                let times = number(arguments, 1)?;
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

/// GDB's `continue N`: the breakpoint that is stood on is passed N - 1 times.
fn pass_breakpoint(context: &mut Context<'_>, arguments: &str) -> Result<()> {
    let times = number(arguments, 1)?;
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
    let Some(number) = here else {
        return Err(Error::Cannot(
            "no breakpoint is here, so none can be passed; use `ignore N COUNT`".to_owned(),
        ));
    };
    context.navigator.breakpoints.get_mut(number)?.ignore = times - 1;
    Ok(())
}

pub(super) fn advance(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let hits = context.navigator.resolve(arguments, context.watch)?.hits;
    repeat(context, &Motion::Advance(hits), Direction::Forward, 1)
}

pub(super) fn reverse_advance(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let hits = context.navigator.resolve(arguments, context.watch)?.hits;
    repeat(context, &Motion::Advance(hits), Direction::Backward, 1)
}
