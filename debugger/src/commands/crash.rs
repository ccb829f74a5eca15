//! `crash`: the opening view.

use super::{Context, info};
use crate::calls::{CallView, Calls};
use crate::error::Result;
use crate::navigator::Navigator;
use crate::output::{CrashView, HistoryView, Output, SourceView};
use crate::stack::Stack;
use crate::{signal, views};
use backtrail_decoder::Watch;

/// How many lines around the faulting one.
const SOURCE: u32 = 3;
/// How many of the last lines and calls.
const LAST: usize = 12;
/// How many frames.
const FRAMES: usize = 30;

/// Shows the crash; moves nothing, whatever the current position.
pub(super) fn crash(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let Some(thread) = context.navigator.session().main_thread() else {
        return Ok(Output::message("There is no thread."));
    };
    let (tid, end) = (thread.tid, thread.history.len());
    let view = context
        .navigator
        .looking_from(tid, end, |navigator| view(navigator, context.watch))?;
    Ok(Output::Crash(Box::new(view)))
}

fn view(navigator: &Navigator, watch: &Watch<'_>) -> Result<CrashView> {
    let session = navigator.session();
    let thread = navigator.thread()?;
    let crash = session.crash_of(thread.tid);
    let stack = navigator.known_stack(FRAMES, watch)?;
    let (calls, history) = if thread.history.is_empty() {
        (Vec::new(), HistoryView::default())
    } else {
        (
            last_calls(navigator, watch)?,
            views::history(navigator, LAST, watch)?,
        )
    };
    Ok(CrashView {
        program: session.program().map(str::to_owned),
        signal: crash.map(signal::describe),
        cause: crash
            .and_then(|crash| signal::cause(crash.signal, crash.code))
            .map(str::to_owned),
        thread: thread.tid.0,
        name: thread.name.clone(),
        position: navigator.position().to_string(),
        source: source(navigator, &stack),
        stack,
        calls,
        history,
        notes: session.notes().to_vec(),
    })
}

/// The lines around the innermost frame whose source is found; if none is, its line alone.
fn source(navigator: &Navigator, stack: &Stack) -> Option<SourceView> {
    let with_line = || {
        stack
            .frames
            .iter()
            .filter_map(|frame| frame.file.clone().zip(frame.line))
    };
    let found = with_line().find(|(file, _)| navigator.sources.find(file).is_some());
    let (file, line) = found.or_else(|| with_line().next())?;
    let first = line.saturating_sub(SOURCE).max(1);
    let count = (line - first + 1 + SOURCE) as usize;
    Some(info::source_lines(navigator, &file, first, count, Some(line)))
}

/// The calls that began last.
fn last_calls(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<CallView>> {
    let calls = Calls::new(navigator.session(), navigator.thread()?, watch)?;
    let mut last: Vec<_> = calls
        .forest()
        .ids()
        .rev()
        .take(LAST)
        .map(|id| calls.view(id, 0))
        .collect::<Result<_>>()?;
    last.reverse();
    Ok(last)
}
