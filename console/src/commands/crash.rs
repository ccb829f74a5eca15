//! `crash`: the opening view.

use super::{Context, arguments, stack};
use crate::output::{CrashView, HistoryView, Output};
use crate::views;
use backtrail_bundle::core::SigInfo;
use backtrail_bundle::manifest::Ending;
use backtrail_debugger::calls::CallView;
use backtrail_debugger::heap::diagnosis::diagnose;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::Session;
use backtrail_debugger::signal;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::Watch;
use backtrail_pt::Tid;

/// The number of lines around the faulting one.
const SOURCE: u32 = 3;
/// The number of last lines and calls.
const LAST: usize = 12;
/// The number of lines of standard error.
const MAX_LINES: usize = 20;
/// The number of frames.
const FRAMES: usize = 30;

/// Shows the crash; moves nothing, whatever the current position. `crash full` shows all of it.
pub(super) fn crash(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let is_full = match arguments {
        "" => false,
        "full" => true,
        _ => return Err(Error::Cannot("crash takes no argument but `full`".to_owned())),
    };
    let Some(thread) = context.navigator.session().main_thread() else {
        return Ok(Output::message("The trace has no threads."));
    };
    let (tid, end) = (thread.tid, thread.history.len());
    let panic = match context.navigator.exited_as_after_panic() {
        true => context.navigator.last_panic(context.watch),
        false => Ok(None),
    };
    // All of a long history is decoded only when it is asked for.
    let is_earlier = matches!(panic, Err(Error::Earlier));
    let panic = match panic {
        Err(Error::Earlier) => None,
        panic => panic?,
    };
    let (tid, at) = match panic {
        Some(position) => {
            let thread = context.navigator.session().thread(position.tid())?;
            (thread.tid, thread.index_of(position)?)
        }
        None => (tid, end),
    };
    let mut view = context
        .navigator
        .looking_from(tid, at, |navigator| view(navigator, context.watch))?;
    if is_earlier {
        view.notes.insert(
            0,
            "the exit status is that of a panic; `goto panic` finds it".to_owned(),
        );
    }
    Ok(Output::Crash(Box::new(CrashView {
        is_full,
        panicked: panic.is_some(),
        ..view
    })))
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
            flat(views::last_calls(navigator, LAST, watch)?),
            views::history(navigator, LAST, watch)?,
        )
    };
    let (own_calls, own_lines) = match thread.history.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => (
            views::last_own_calls(navigator, LAST, watch)?,
            views::last_own_lines(navigator, LAST, watch)?,
        ),
    };
    Ok(CrashView {
        own_calls,
        own_lines,
        is_full: true,
        panicked: false,
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
        standard_error: standard_error(session, thread.tid),
        handler: views::handler(navigator, &stack, watch)?,
        heap: diagnose(session, watch)?,
        source: views::source_around(navigator, &stack, SOURCE),
        stack,
        more_frames,
        calls,
        history,
        notes: session.notes().to_vec(),
        is_core_alone: session.bundle().is_none(),
    })
}

/// Returns the last lines of standard error of a program that crashed, or ended with a failure.
fn standard_error(session: &Session, tid: Tid) -> Vec<String> {
    let ended_well = matches!(session.ending(), None | Some(Ending::Exited(0)));
    if session.crash_of(tid).is_none() && ended_well {
        return Vec::new();
    }
    let text = session.standard_error().unwrap_or_default();
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    let newest = lines.len().saturating_sub(MAX_LINES);
    let newest = lines.get(newest..).unwrap_or_default().iter();
    newest.map(|line| (*line).to_owned()).collect()
}

/// Returns the signal information in the core.
fn signal_info(session: &Session) -> Option<SigInfo> {
    session.core()?.crashed_thread()?.siginfo
}

/// Returns calls that are shown without their depth.
fn flat(mut calls: Vec<CallView>) -> Vec<CallView> {
    calls.iter_mut().for_each(|call| call.depth = 0);
    calls
}
