//! The commands about the path to a position: `calls`, `callers`, `history`.

use super::error::misuse;
use super::{Context, number};
use crate::output::Output;
use crate::views;
use backtrail_debugger::calls::{Caller, Calls};
use backtrail_debugger::functions;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::CallId;

/// The default number of calls that `calls` shows.
const CALLS: usize = 200;
/// The default number of levels that `calls` shows.
const DEPTH: usize = 3;
/// The default number of lines that `history` shows.
const LINES: u64 = 20;

/// `calls [cN|all] [--depth N] [--limit N]`.
pub(super) fn calls(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    let thread = navigator.thread()?;
    let calls = Calls::new(navigator.session(), thread, context.watch)?;
    let (mut depth, mut limit) = (DEPTH, CALLS);
    let mut top: Option<Option<CallId>> = None;
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        let mut value = |name: &str| {
            let value = words.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| Error::Cannot(format!("{name} requires a number, as in `calls {name} 3`")))
        };
        match word {
            "--depth" => depth = value("--depth")?,
            "--limit" => limit = value("--limit")?,
            "all" | "--all" => top = Some(None),
            _ => {
                let id = match word.parse() {
                    Ok(name) => thread.call_named(calls.forest(), name)?,
                    Err(()) => None,
                };
                let none = || {
                    misuse(
                        &format!("no call \"{word}\""),
                        "calls [cN|all] [--depth N] [--limit N]",
                    )
                };
                top = Some(Some(id.ok_or_else(none)?));
            }
        }
    }
    let here = || calls.forest().call_at(navigator.index());
    let top = top.unwrap_or_else(here);
    if top.is_none() {
        thread.needs_beginning()?;
    }
    let mut tree = calls.tree(
        top,
        (depth.max(1), limit.max(1)),
        navigator.index(),
        context.watch,
    )?;
    tree.calls
        .iter_mut()
        .for_each(|call| navigator.mark_skipped(call));
    Ok(Output::Calls(tree))
}

pub(super) fn callers(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    let (session, process) = (navigator.session(), navigator.process()?);
    let code = functions::code(process, arguments)?;
    let mut callers: Vec<Caller> = Vec::new();
    // Positions are those of the current thread, if it has such calls.
    for thread in navigator.process_threads()? {
        let calls = Calls::of_all(session, thread, context.watch)?;
        for caller in calls.callers(&code, context.watch)? {
            match callers.iter_mut().find(|known| known.is_same_line(&caller)) {
                Some(known) => known.count = known.count.saturating_add(caller.count),
                None => callers.push(caller),
            }
        }
    }
    callers.sort_by_key(|caller| std::cmp::Reverse(caller.count));
    Ok(Output::Callers {
        function: arguments.to_owned(),
        callers,
    })
}

pub(super) fn history(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let count = number(arguments, LINES)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(Output::History(views::history(
        context.navigator,
        count,
        context.watch,
    )?))
}
