//! The requests that move: answered at once, then made, then told where that ended.

use super::breakpoints::follow_console;
use crate::adapter::{Adapter, Then};
use crate::failure::{Failure, Result};
use crate::protocol::types::{OutputEventBody, OutputEventCategory, SteppingGranularity};
use crate::stopped::{self, Why};
use backtrail_debugger::{Direction, Error, Motion, StopReason};
use backtrail_decoder::Watch;
use backtrail_pt::Tid;
use serde::Deserialize;
use serde_json::{Value, json};

/// What moves take. Without a thread, it is the current one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveArguments {
    #[serde(default)]
    thread_id: Option<f64>,
    #[serde(default)]
    granularity: Option<SteppingGranularity>,
}

/// A move.
pub struct Move {
    tid: Tid,
    motion: Motion,
    direction: Direction,
}

impl Move {
    /// Moves, and tells where that ended.
    pub fn make(self, adapter: &mut Adapter, watch: &Watch<'_>) -> Result<()> {
        let debuggee = adapter.debuggee()?;
        debuggee.select(self.tid, watch)?;
        let breakpoints = debuggee.numbers_of_breakpoints();
        let (motion, direction) = (self.motion, self.direction);
        let moved = debuggee
            .navigator
            .with_earlier(watch, |navigator| navigator.run(&motion, direction, watch));
        tell_log(adapter);
        follow_console(adapter, &breakpoints);
        let why = match moved {
            Ok(stop) if stop.reason == StopReason::Canceled => Why::Paused,
            Ok(stop) => Why::Moved(Box::new(stop)),
            Err(Error::Canceled) => Why::Paused,
            Err(error) => return Err(error.into()),
        };
        stopped::tell(adapter, why, watch)
    }
}

/// What log points had to say.
pub fn tell_log(adapter: &mut Adapter) {
    let Some(debuggee) = &mut adapter.debuggee else {
        return;
    };
    let (hits, dropped) = debuggee.navigator.breakpoints.log.take();
    for hit in hits {
        adapter.outbox.event(
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
        stopped::say(
            adapter,
            &format!("{dropped} more hits of log points are not told."),
        );
    }
}

/// Answers, and moves then.
fn moves(
    adapter: &mut Adapter,
    arguments: &MoveArguments,
    [by_line, by_instruction]: [Motion; 2],
    direction: Direction,
) -> Result<()> {
    let debuggee = adapter.debuggee()?;
    let tid = debuggee.tid(arguments.thread_id.map(|id| id as i64))?;
    if debuggee.navigator.session().thread(tid)?.history.is_empty() {
        return Err(Failure::Debugger(Error::NoHistory(tid)));
    }
    let motion = match arguments.granularity {
        Some(SteppingGranularity::Instruction) => by_instruction,
        _ => by_line,
    };
    adapter.then.push(Then::Move(Move {
        tid,
        motion,
        direction,
    }));
    Ok(())
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident: $by_line:ident $by_instruction:ident $direction:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(adapter: &mut Adapter, arguments: MoveArguments, _: &Watch<'_>) -> Result<()> {
                moves(adapter, &arguments, [Motion::$by_line, Motion::$by_instruction], Direction::$direction)
            }
        )*
    };
}

requests! {
    /// `next`.
    next: Next NextInstruction Forward;
    /// `stepIn`.
    step_in: Step Instruction Forward;
    /// `stepOut`.
    step_out: Finish Finish Forward;
    /// `stepBack`, over calls.
    step_back: Next NextInstruction Backward;
    /// Back into the call that came before.
    reverse_step_in: Step Instruction Backward;
    /// Back to the call.
    reverse_step_out: Finish Finish Backward;
    /// `reverseContinue`.
    reverse_continue: Continue Continue Backward;
}

/// `continue`.
pub fn go_on(adapter: &mut Adapter, arguments: MoveArguments, _: &Watch<'_>) -> Result<Value> {
    moves(
        adapter,
        &arguments,
        [Motion::Continue, Motion::Continue],
        Direction::Forward,
    )?;
    Ok(json!({ "allThreadsContinued": true }))
}
