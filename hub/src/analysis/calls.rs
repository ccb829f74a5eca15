//! The last calls, lines and call edges of the crashed thread.

use super::result::{CallEdge, ExecutedLine, LastCall};
use super::stacks::{bounded, bounded_name};
use backtrail_console::output::HistoryView;
use backtrail_console::views;
use backtrail_debugger::calls::Calls;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{Error, Result, Watch};
use std::collections::HashSet;

/// The most calls and lines in a result.
pub(super) const LAST: usize = 200;
/// The most edges in a result.
const EDGES: usize = 64;
/// The most calls that are searched for edges.
const SEARCHED: usize = 20_000;

/// The last lines of a thread, and the calls that they show.
#[derive(Default)]
pub(super) struct LastSteps {
    /// The calls, oldest first.
    pub calls: Vec<LastCall>,
    /// The lines, oldest first.
    pub lines: Vec<ExecutedLine>,
    /// The reason for which there are no older lines.
    pub before: Option<String>,
}

/// Returns the last calls and `count` lines before the current position.
pub(super) fn last_steps(navigator: &mut Navigator, count: usize, watch: &Watch<'_>) -> Result<LastSteps> {
    if navigator.thread()?.history.is_empty() {
        return Ok(LastSteps::default());
    }
    let history = navigator.with_earlier(watch, |navigator| views::history(navigator, count, watch))?;
    let calls = navigator.with_earlier(watch, |navigator| real_calls(navigator, watch))?;
    let before = history.before.clone();
    let lines = lines(navigator, &history, watch);
    Ok(LastSteps {
        calls: with_inlined(calls, &history, navigator)?,
        lines,
        before,
    })
}

/// A call, with the index of its first instruction.
type IndexedCall = (u64, LastCall);

fn real_calls(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<IndexedCall>> {
    let thread = navigator.thread()?;
    let views = views::last_calls(navigator, LAST, watch)?;
    let indexed = views.into_iter().map(|call| {
        let index = thread.index_of(call.position.parse().map_err(|_| Error::Earlier)?)?;
        let view = LastCall {
            function: bounded_name(&call.function),
            depth: call.depth,
            file: call.file.as_deref().map(bounded_name),
            line: call.line,
            position: call.position,
            inlined: false,
            left: call.left,
            duration: call.duration.map(|duration| duration.to_string()),
        };
        Ok((index, view))
    });
    indexed.collect()
}

/// Adds the inlined calls that the last lines entered. Returns the newest calls, oldest first.
fn with_inlined(
    mut calls: Vec<IndexedCall>,
    history: &HistoryView,
    navigator: &Navigator,
) -> Result<Vec<LastCall>> {
    let thread = navigator.thread()?;
    for (before, step) in history.steps.iter().zip(history.steps.iter().skip(1)) {
        let entered = step.absolute_depth > before.absolute_depth;
        let (true, true, Some(function)) = (step.inlined, entered, &step.function) else {
            continue;
        };
        let position = step.position.parse().map_err(|_| Error::Earlier)?;
        let view = LastCall {
            function: bounded_name(function),
            depth: step.absolute_depth,
            file: step.file.as_deref().map(bounded_name),
            line: step.line,
            position: step.position.clone(),
            inlined: true,
            left: None,
            duration: None,
        };
        calls.push((thread.index_of(position)?, view));
    }
    // A function that inlines others at its first instruction comes before them.
    calls.sort_by_key(|(index, call)| (*index, call.depth));
    let skipped = calls.len().saturating_sub(LAST);
    let mut last: Vec<LastCall> = calls.into_iter().skip(skipped).map(|(_, call)| call).collect();
    let outermost = last.iter().map(|call| call.depth).min().unwrap_or(0);
    last.iter_mut().for_each(|call| call.depth -= outermost);
    Ok(last)
}

fn lines(navigator: &Navigator, history: &HistoryView, watch: &Watch<'_>) -> Vec<ExecutedLine> {
    let thread = navigator.thread().ok();
    let coverage = thread.and_then(|thread| navigator.session().coverage(thread, watch).ok());
    let steps = history.steps.iter();
    let view = |step: &backtrail_console::output::HistoryStep| ExecutedLine {
        function: step.function.as_deref().map(bounded_name),
        depth: step.depth,
        count: coverage
            .zip(step.file.as_deref().zip(step.line))
            .and_then(|(coverage, (file, line))| coverage.count(file, line)),
        file: step.file.as_deref().map(bounded_name),
        line: step.line,
        text: step.text.as_deref().map(bounded),
        position: step.position.clone(),
        inlined: step.inlined,
    };
    steps.map(view).collect()
}

/// Returns the last distinct pairs of caller and callee of the current thread, newest first.
pub(super) fn edges(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<CallEdge>> {
    let (session, thread) = (navigator.session(), navigator.thread()?);
    if thread.history.is_empty() {
        return Ok(Vec::new());
    }
    let calls = Calls::new(session, thread, watch)?;
    let forest = calls.forest();
    let mut known = HashSet::new();
    let mut edges = Vec::new();
    for id in forest.ids().rev().take(SEARCHED) {
        let call = forest.call(id);
        let caller = call.parent.map(|parent| (parent, forest.call(parent)));
        let key = (caller.map(|(_, caller)| caller.function), call.function);
        if !known.insert(key) || thread.is_partial() && call.first == 0 {
            continue;
        }
        let name = |at, index| {
            let symbols = session.symbols_at(thread, index);
            let function = symbols.and_then(|symbols| symbols.function_at(at));
            function.map(|function| bounded_name(&function.name))
        };
        edges.push(CallEdge {
            caller: caller.and_then(|(_, caller)| {
                name(caller.function, call.first).or_else(|| Some(caller.function.to_string()))
            }),
            callee: name(call.function, call.first).unwrap_or_else(|| call.function.to_string()),
            position: thread.position(call.first).to_string(),
        });
        if edges.len() == EDGES {
            break;
        }
    }
    Ok(edges)
}
