//! Moves that the protocol has no words for.

use crate::failure::{Failure, Result};
use crate::requests::Ignored;
use crate::session::StopCause;
use crate::session::{ClientSession, FollowUp};
use backtrail_console::{Output, commands};
use backtrail_debugger::{Direction, Navigator, functions, inlined};
use backtrail_decoder::{Position, Watch};
use serde::Deserialize;

/// The arguments of `backtrail/goto`.
#[derive(Debug, Deserialize)]
pub struct GotoPositionArguments {
    to: String,
}

/// `backtrail/goto`.
pub fn goto(client: &mut ClientSession, arguments: GotoPositionArguments, watch: &Watch<'_>) -> Result<()> {
    go_to(&mut client.debuggee()?.navigator, &arguments.to, watch)?;
    report_jump(client)
}

/// Goes wherever `goto` does.
///
/// # Errors
/// When that is no place; when canceled.
pub fn go_to(navigator: &mut Navigator, place: &str, watch: &Watch<'_>) -> Result<()> {
    if place.contains(['\n', '\r']) {
        return Err(Failure::Cannot("a place must be one line".to_owned()));
    }
    match commands::execute(navigator, &format!("goto {place}"), watch)? {
        Output::Stop(_) => Ok(()),
        _ => Err(Failure::Cannot(format!("\"{place}\" is not a place"))),
    }
}

fn report_jump(client: &mut ClientSession) -> Result<()> {
    client
        .follow_ups
        .extend([FollowUp::Continued, FollowUp::Stopped(StopCause::Jumped)]);
    Ok(())
}

/// The arguments of `backtrail/lastWrite`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastWriteArguments {
    expression: String,
    #[serde(default)]
    direction: SearchDirection,
    #[serde(default)]
    frame_id: Option<f64>,
}

/// `backtrail/lastWrite`: goes to the instruction that wrote the value of an expression.
pub fn last_write(
    client: &mut ClientSession,
    arguments: LastWriteArguments,
    watch: &Watch<'_>,
) -> Result<()> {
    let debuggee = client.debuggee()?;
    let frame = debuggee.frame(arguments.frame_id.map(|id| id as i64))?;
    let direction = match arguments.direction {
        SearchDirection::Backward => Direction::Backward,
        SearchDirection::Forward => Direction::Forward,
    };
    let stop = debuggee.go_from(frame, watch, |navigator| {
        navigator.go_to_write(&arguments.expression, direction, watch)
    })?;
    client.follow_ups.extend([
        FollowUp::Continued,
        FollowUp::Stopped(StopCause::Moved(Box::new(stop))),
    ]);
    Ok(())
}

/// `backtrail/back`.
pub fn back(client: &mut ClientSession, _: Ignored, watch: &Watch<'_>) -> Result<()> {
    let navigator = &mut client.debuggee()?.navigator;
    navigator.with_earlier(watch, Navigator::back)?;
    report_jump(client)
}

/// `backtrail/forward`.
pub fn forward(client: &mut ClientSession, _: Ignored, watch: &Watch<'_>) -> Result<()> {
    let navigator = &mut client.debuggee()?.navigator;
    navigator.with_earlier(watch, Navigator::forward)?;
    report_jump(client)
}

/// The arguments of `backtrail/runToCall`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunToCallArguments {
    function: String,
    #[serde(default)]
    direction: SearchDirection,
    #[serde(default)]
    thread_id: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SearchDirection {
    #[default]
    Backward,
    Forward,
}

/// `backtrail/runToCall`.
pub fn run_to_call(
    client: &mut ClientSession,
    arguments: RunToCallArguments,
    watch: &Watch<'_>,
) -> Result<()> {
    let debuggee = client.debuggee()?;
    let tid = debuggee.tid(arguments.thread_id.map(|id| id as i64))?;
    let from = debuggee.standing(tid, watch)?;
    let RunToCallArguments {
        function, direction, ..
    } = &arguments;
    let none = || {
        let side = match direction {
            SearchDirection::Backward => "before",
            SearchDirection::Forward => "after",
        };
        Failure::Cannot(format!("no call of {function} {side} this position"))
    };
    let found = debuggee.go_from(from, watch, |navigator| {
        match nearest_call(navigator, function, *direction, watch)? {
            Some(position) => navigator.go_to(position).map(Some),
            None => Ok(None),
        }
    })?;
    found.ok_or_else(none)?;
    report_jump(client)
}

fn nearest_call(
    navigator: &Navigator,
    function: &str,
    direction: SearchDirection,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<Option<Position>> {
    let code = functions::code(navigator.process()?, function)?;
    let thread = navigator.thread()?;
    let calls = backtrail_debugger::calls::Calls::of_all(navigator.session(), thread, watch)?;
    let called = calls.of(&code.entries, watch)?;
    let called = called.iter().map(|&id| calls.forest().call(id).first);
    let inlined = inlined::executions(navigator.session(), thread, &code.copies, watch)?;
    let mut all: Vec<u64> = called
        .chain(inlined.iter().map(|execution| execution.first))
        .collect();
    all.sort_unstable();
    let here = navigator.index();
    let found = match direction {
        SearchDirection::Backward => {
            let before = all.partition_point(|&first| first < here);
            before.checked_sub(1).and_then(|at| all.get(at))
        }
        SearchDirection::Forward => all.get(all.partition_point(|&first| first <= here)),
    };
    Ok(found.map(|&first| thread.position(first)))
}
