//! Two calls side by side: `compare`.

use super::{Context, find};
use crate::output::Output;
use backtrail_debugger::compare::{ComparedCall, ComparisonLimits, compare as compared};
use backtrail_debugger::{Error, Result};
use backtrail_decoder::Position;

/// `compare CALL CALL`.
pub(super) fn compare(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let mut words = arguments.split_whitespace();
    let (Some(first), Some(second), None) = (words.next(), words.next(), words.next()) else {
        return Err(find("compare")?.misuse("two calls are required"));
    };
    let (first, second) = (call(context, first)?, call(context, second)?);
    let comparison = compared(
        context.navigator.session(),
        first,
        second,
        ComparisonLimits::default(),
        context.watch,
    )?;
    Ok(Output::Comparison(Box::new(comparison)))
}

/// The call of a name in the current thread, or the one that begins at a position of any.
fn call<'a>(context: &'a Context<'_>, text: &str) -> Result<ComparedCall<'a>> {
    let navigator = &*context.navigator;
    let session = navigator.session();
    let here = navigator.thread()?;
    let none = |tid| {
        Error::Cannot(format!(
            "thread {tid} has no call {text}; `calls` and `slowest` list calls and their positions"
        ))
    };
    if let Ok(name) = text.parse() {
        let forest = session.forest(here, context.watch)?;
        let call = here.call_named(forest, name)?.ok_or_else(|| none(here.tid))?;
        return whole(here, forest, call);
    }
    let position = match text.strip_prefix('#') {
        Some(index) => format!("t{}#{index}", here.tid).parse(),
        None => text.parse::<Position>(),
    };
    let position = position.map_err(|_| none(here.tid))?;
    let thread = session.thread(position.tid())?;
    let first = thread.index_of(position)?;
    let forest = session.forest(thread, context.watch)?;
    let call = forest
        .call_at(first)
        .filter(|&call| forest.call(call).first == first);
    whole(thread, forest, call.ok_or_else(|| none(thread.tid))?)
}

/// Unless history that is not decoded yet has more of the call.
fn whole<'a>(
    thread: &'a backtrail_debugger::session::Thread,
    forest: &'a backtrail_decoder::Forest,
    call: backtrail_decoder::CallId,
) -> Result<ComparedCall<'a>> {
    if thread.is_cut_off(&forest.call(call)) {
        return Err(Error::Earlier);
    }
    Ok(ComparedCall { thread, forest, call })
}
