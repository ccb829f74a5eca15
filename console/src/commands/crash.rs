//! `crash`: the opening view.

use super::{Context, arguments, info, stack};
use crate::output::{CrashView, HandlerView, HistoryView, Output};
use crate::views;
use backtrail_bundle::core::SigInfo;
use backtrail_debugger::Result;
use backtrail_debugger::calls::{CallView, Calls};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::Session;
use backtrail_debugger::signal;
use backtrail_debugger::source::SourceLines;
use backtrail_debugger::stack::Stack;
use backtrail_decoder::{Entered, Watch};

/// The number of lines around the faulting one.
const SOURCE: u32 = 3;
/// The number of last lines and calls.
const LAST: usize = 12;
/// The number of frames.
const FRAMES: usize = 30;

/// Shows the crash; moves nothing, whatever the current position.
pub(super) fn crash(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let Some(thread) = context.navigator.session().main_thread() else {
        return Ok(Output::message("The trace has no threads."));
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
    let mut stack = navigator.known_stack(FRAMES + 1, watch)?;
    let more_frames = stack::cut(&mut stack, FRAMES);
    arguments::fill(navigator, &mut stack.frames, 0, watch)?;
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
        ending: session
            .ending()
            .filter(|_| crash.is_none())
            .map(|ending| signal::describe_ending(ending, signal_info(session))),
        thread: thread.tid.0,
        name: thread.name.clone(),
        position: navigator.position().to_string(),
        request: session.request_of(thread.tid).map(ToString::to_string),
        handler: handler(navigator, &stack, watch)?,
        source: source(navigator, &stack),
        stack,
        more_frames,
        calls,
        history,
        notes: session.notes().to_vec(),
        is_core_alone: session.bundle().is_none(),
    })
}

/// Returns the signal information in the core.
fn signal_info(session: &Session) -> Option<SigInfo> {
    session.core()?.crashed_thread()?.siginfo
}

/// The outermost signal handler that runs at the end, if one does.
fn handler(navigator: &Navigator, stack: &Stack, watch: &Watch<'_>) -> Result<Option<HandlerView>> {
    let Some(at) = stack.frames.iter().rposition(|frame| frame.signal_handler) else {
        return Ok(None);
    };
    let thread = navigator.thread()?;
    let forest = navigator.session().forest(thread, watch)?;
    let inside = forest.call_at(thread.history.len());
    let began = inside.and_then(|call| {
        let calls = forest.ancestors(call).map(|call| forest.call(call));
        calls
            .filter(|call| matches!(call.entered, Entered::Signal { .. }))
            .last()
    });
    let name = |at: usize| stack.frames.get(at).and_then(|frame| frame.function.clone());
    Ok(began.map(|call| HandlerView {
        handler: name(at),
        position: thread.position(call.first).to_string(),
        interrupted: name(at + 1),
    }))
}

/// The lines around the innermost frame whose source is found; if none is, its line alone.
fn source(navigator: &Navigator, stack: &Stack) -> Option<SourceLines> {
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
