//! Reports stops to the client, with their causes.

use crate::breakpoint_table::BreakpointKind;
use crate::extensions::place::PlaceBody;
use crate::failure::{Failure, Result};
use crate::protocol::types::{
    ContinuedEventBody, OutputEventBody, OutputEventCategory, StoppedEventBody, StoppedEventReason,
};
use crate::session::{ClientSession, StopCause};
use crate::text;
use backtrail_debugger::{Navigator, Stop, StopReason, signal};
use backtrail_decoder::Watch;

/// Reports a stop. The client's numbers of frames and values become invalid.
///
/// # Errors
///
/// If no trace is open; when canceled.
pub fn report_stop(client: &mut ClientSession, cause: StopCause, watch: &Watch<'_>) -> Result<()> {
    let debuggee = client.debuggee()?;
    debuggee.handles.forget();
    let navigator = &debuggee.navigator;
    let mut body = StoppedEventBody {
        thread_id: Some(i64::from(navigator.position().tid().0)),
        all_threads_stopped: Some(true),
        ..StoppedEventBody::default()
    };
    body.reason = match &cause {
        StopCause::Opened => StoppedEventReason::Entry,
        StopCause::Jumped => StoppedEventReason::Goto,
        StopCause::Paused => StoppedEventReason::Pause,
        StopCause::Moved(_) => StoppedEventReason::Step,
    };
    let mut lines = Vec::new();
    if let StopCause::Moved(stop) = &cause {
        if let StopReason::Breakpoint { number } = stop.reason {
            body.reason = match debuggee.breakpoints.kind(number) {
                Some(BreakpointKind::Function) => StoppedEventReason::FunctionBreakpoint,
                Some(BreakpointKind::Instruction) => StoppedEventReason::InstructionBreakpoint,
                Some(BreakpointKind::Source(_) | BreakpointKind::Data) | None => {
                    StoppedEventReason::Breakpoint
                }
            };
            body.hit_breakpoint_ids = Some(vec![i64::from(number)]);
        }
        if let StopReason::Watchpoint { number, hit } = &stop.reason {
            body.reason = StoppedEventReason::DataBreakpoint;
            body.text = Some(format!("{}: {} → {}", hit.expression, hit.old, hit.new));
            body.hit_breakpoint_ids = Some(vec![i64::from(*number)]).filter(|_| *number > 0);
            lines.push(match hit.has_changed() {
                true => format!(
                    "{} changed from {} to {} at {}.",
                    hit.expression, hit.old, hit.new, hit.position
                ),
                false => format!("{} is {} at {}.", hit.expression, hit.new, hit.position),
            });
        }
        edge(stop, &mut body, &mut lines);
    }
    if let Some(crash) = crash_here(navigator).filter(|_| !matches!(cause, StopCause::Paused)) {
        body.reason = StoppedEventReason::Exception;
        // Clients show the description beside the thread's name, which a long one would cut.
        body.description = crash.split_whitespace().next().map(str::to_owned);
        body.text = Some(crash);
    }
    for line in lines {
        print(client, &line);
    }
    client.outbox.event("stopped", body);
    report_place(client, watch);
    Ok(())
}

/// Reports that all threads run, before a jump.
///
/// # Errors
///
/// If no trace is open.
pub fn report_continued(client: &mut ClientSession) -> Result<()> {
    let body = ContinuedEventBody {
        thread_id: i64::from(client.debuggee()?.navigator.position().tid().0),
        all_threads_continued: Some(true),
    };
    client.outbox.event("continued", body);
    Ok(())
}

/// Describes the ends of history, and gaps and hits that a move passed, to the user.
fn edge(stop: &Stop, body: &mut StoppedEventBody, lines: &mut Vec<String>) {
    let mut at_edge = |reason: &str, description: &str, text: String| {
        body.reason = StoppedEventReason::Other(reason.to_owned());
        body.description = Some(description.to_owned());
        lines.push(text.clone());
        body.text = Some(text);
    };
    match &stop.reason {
        StopReason::HistoryStart => at_edge(
            "history start",
            "Start of history",
            "The history of this thread begins here.".to_owned(),
        ),
        StopReason::HistoryEnd { crash: None } => at_edge(
            "history end",
            "End of history",
            "The history of this thread ends here.".to_owned(),
        ),
        StopReason::Gap { cause } => at_edge(
            "gap",
            "Gap in the trace",
            format!("History is missing before this position: {cause}."),
        ),
        StopReason::Canceled => body.reason = StoppedEventReason::Pause,
        StopReason::HistoryEnd { crash: Some(_) } | StopReason::Done | StopReason::Breakpoint { .. } => {}
        StopReason::Watchpoint { .. } => {}
        StopReason::WatchScope {
            expression, scope, ..
        } => at_edge(
            "watch scope",
            "End of scope",
            format!(
                "{expression} does not exist beyond this position, outside of {}.",
                scope.as_deref().unwrap_or("its call")
            ),
        ),
    }
    for hits in &stop.elsewhere {
        lines.push(format!("{hits}."));
        if let Some(text) = &mut body.text {
            text.push_str(&format!(" {hits}."));
        }
    }
    lines.extend(stop.unordered.iter().map(ToString::to_string));
    if let Some(cause) = &stop.crossed_gap {
        lines.push(format!("The move crossed a gap in history: {cause}."));
    }
    if let Some(unseen) = &stop.unseen {
        let text = format!("In between, accesses may have gone unseen: {unseen}.");
        if let Some(body) = &mut body.text {
            body.push_str(&format!(" {text}"));
        }
        lines.push(text);
    }
    if let Some(undecided) = &stop.undecided {
        lines.push(format!("Breakpoint {}: {undecided}.", undecided.breakpoint));
    }
}

/// The crash, if it is here.
fn crash_here(navigator: &Navigator) -> Option<String> {
    let crash = navigator.session().crash_of(navigator.position().tid());
    crash.filter(|_| navigator.is_at_end()).map(signal::describe)
}

/// A line in the console.
pub fn print(client: &ClientSession, line: &str) {
    output(client, OutputEventCategory::Console, line);
}

fn output(client: &ClientSession, category: OutputEventCategory, line: &str) {
    client.outbox.event(
        "output",
        OutputEventBody {
            category: Some(category),
            // A name in it makes no line of its own.
            output: format!("{}\n", text::line(line)),
            ..OutputEventBody::default()
        },
    );
}

/// Reports that the action after a response failed and nothing moved, because the client expects a
/// running thread.
pub fn report_failure(client: &mut ClientSession, failure: &Failure) {
    let text = match failure.is_cancelled() {
        true => "Cancelled; nothing moved.".to_owned(),
        false => failure.to_string(),
    };
    output(client, OutputEventCategory::Stderr, &text);
    let Some(debuggee) = &mut client.debuggee else {
        return;
    };
    debuggee.handles.forget();
    let body = StoppedEventBody {
        reason: StoppedEventReason::Pause,
        thread_id: Some(i64::from(debuggee.navigator.position().tid().0)),
        all_threads_stopped: Some(true),
        text: Some(text),
        ..StoppedEventBody::default()
    };
    client.outbox.event("stopped", body);
    report_place(client, &Watch::none());
}

/// Reports the place to clients that follow the position.
pub fn report_place(client: &mut ClientSession, watch: &Watch<'_>) {
    if let Some(debuggee) = &mut client.debuggee
        && let Ok(place) = PlaceBody::of(&mut debuggee.navigator, watch)
    {
        client.outbox.event("backtrail/moved", place);
    }
}
