//! The forward stepping requests: `next`, `stepIn`, `stepOut`, `continue`.
//!
//! The server answers a request at once, then makes the move, then reports the stop. The requests
//! that move backward are in [`step_back`](super::step_back).

use super::breakpoints::follow_console;
use crate::failure::{Failure, Result};
use crate::protocol::types::{OutputEventBody, OutputEventCategory, SteppingGranularity};
use crate::session::{ClientSession, FollowUp, RequestedMove, StopCause};
use crate::stop_events;
use backtrail_debugger::{Direction, Error, Motion, StopReason};
use backtrail_decoder::Watch;
use serde::Deserialize;
use serde_json::{Value, json};

/// The arguments of a move. Without a thread, the current one moves.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveArguments {
    #[serde(default)]
    thread_id: Option<f64>,
    #[serde(default)]
    granularity: Option<SteppingGranularity>,
    /// Whether `continue` stays in the thread.
    #[serde(default)]
    single_thread: Option<bool>,
}

/// Makes a requested move, and reports the stop.
///
/// # Errors
/// If no trace is open; if the move is not possible.
pub fn make_move(client: &mut ClientSession, requested: RequestedMove, watch: &Watch<'_>) -> Result<()> {
    let debuggee = client.debuggee()?;
    debuggee.select(requested.tid, watch)?;
    let breakpoints = debuggee.numbers_of_breakpoints();
    let (motion, direction) = (requested.motion, requested.direction);
    let moved = debuggee.navigator.with_earlier(watch, |navigator| {
        let locking = navigator.scheduler_locking;
        navigator.scheduler_locking |= requested.single_thread;
        let moved = navigator.run(&motion, direction, watch);
        navigator.scheduler_locking = locking;
        moved
    });
    report_log(client);
    follow_console(client, &breakpoints);
    let cause = match moved {
        Ok(stop) if stop.reason == StopReason::Canceled => StopCause::Paused,
        Ok(stop) => StopCause::Moved(Box::new(stop)),
        Err(Error::Canceled) => StopCause::Paused,
        Err(error) => return Err(error.into()),
    };
    stop_events::report_stop(client, cause, watch)
}

/// Reports the messages of log points.
pub fn report_log(client: &mut ClientSession) {
    let Some(debuggee) = &mut client.debuggee else {
        return;
    };
    let (hits, dropped) = debuggee.navigator.breakpoints.log.take();
    for hit in hits {
        client.outbox.event(
            "output",
            OutputEventBody {
                category: Some(OutputEventCategory::Stdout),
                output: format!("{}\n", hit.text),
                data: Some(json!({ "position": hit.position, "breakpoint": hit.number })),
                ..OutputEventBody::default()
            },
        );
    }
    if dropped > 0 {
        stop_events::print(
            client,
            &format!("{dropped} more messages of log points are not shown."),
        );
    }
}

/// Schedules a move after the response.
pub(super) fn schedule(
    client: &mut ClientSession,
    arguments: &MoveArguments,
    [by_line, by_instruction]: [Motion; 2],
    direction: Direction,
) -> Result<()> {
    let debuggee = client.debuggee()?;
    let tid = debuggee.tid(arguments.thread_id.map(|id| id as i64))?;
    if debuggee.navigator.session().thread(tid)?.history.is_empty() {
        return Err(Failure::Debugger(Error::NoHistory(tid)));
    }
    let motion = match arguments.granularity {
        Some(SteppingGranularity::Instruction) => by_instruction,
        _ => by_line,
    };
    client.follow_ups.push(FollowUp::Move(RequestedMove {
        tid,
        motion,
        direction,
        single_thread: arguments.single_thread.unwrap_or_default(),
    }));
    Ok(())
}

/// Handles `next`.
pub fn next(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
    schedule(
        client,
        &arguments,
        [Motion::Next, Motion::NextInstruction],
        Direction::Forward,
    )
}

/// Handles `stepIn`.
pub fn step_in(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
    schedule(
        client,
        &arguments,
        [Motion::Step, Motion::Instruction],
        Direction::Forward,
    )
}

/// Handles `stepOut`.
pub fn step_out(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
    schedule(
        client,
        &arguments,
        [Motion::Finish, Motion::Finish],
        Direction::Forward,
    )
}

/// Handles `continue`.
pub fn go_on(client: &mut ClientSession, arguments: MoveArguments, _: &Watch<'_>) -> Result<Value> {
    schedule(
        client,
        &arguments,
        [Motion::Continue, Motion::Continue],
        Direction::Forward,
    )?;
    Ok(json!({ "allThreadsContinued": true }))
}
