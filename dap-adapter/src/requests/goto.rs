//! `goto`, to the times at which a line ran; and back to where a frame was entered.

use super::breakpoints::line_of_stop;
use crate::failure::{Failure, Result};
use crate::line_numbering::LineNumbering;
use crate::protocol::types::{
    GotoArguments, GotoTarget, GotoTargetsArguments, GotoTargetsResponseBody, RestartFrameArguments,
};
use crate::session::StopCause;
use crate::session::{ClientSession, FollowUp};
use backtrail_console::{commands, views};
use backtrail_debugger::Navigator;
use backtrail_decoder::{Position, Watch};

/// `gotoTargets`: the last time a line ran before here, the next, the first and the last.
pub fn targets(
    client: &mut ClientSession,
    arguments: GotoTargetsArguments,
    watch: &Watch<'_>,
) -> Result<GotoTargetsResponseBody> {
    let lines = LineNumbering::of(&client.features);
    let debuggee = client.debuggee()?;
    let none = || Failure::Cannot("no module has code of this file".to_owned());
    let file = debuggee
        .sources
        .file_of(&debuggee.navigator, &arguments.source)
        .ok_or_else(none)?;
    let line = lines.read(arguments.line).ok_or_else(none)?;
    let location = format!("{file}:{line}");
    let found = debuggee
        .navigator
        .with_earlier(watch, |navigator| times(navigator, &location, watch))?;
    let shown = line_of_stop(debuggee, &file, line, watch).map_or(arguments.line, |line| lines.write(line));
    let mut targets = Vec::new();
    for (label, position) in found {
        targets.push(GotoTarget {
            id: debuggee.handles.target(position)?,
            label: format!("{label}, {position}"),
            line: shown,
            ..GotoTarget::default()
        });
    }
    Ok(GotoTargetsResponseBody { targets })
}

/// The executions of a location in the current thread.
fn times(
    navigator: &Navigator,
    location: &str,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<Vec<(String, Position)>> {
    let thread = navigator.thread()?;
    // The first time may be in what is not decoded yet.
    thread.needs_beginning()?;
    let hits = navigator.resolve(location, watch)?.hits;
    let (here, len) = (navigator.index(), thread.history.len());
    let found = navigator.with_steps(watch, |steps| {
        let lines = &steps.lines;
        Ok([
            ("the last time before here", hits.previous(lines, here, 0)?),
            (
                "the next time after here",
                hits.next(lines, here.saturating_add(1), len)?,
            ),
            ("the first time", hits.next(lines, 0, len)?),
            ("the last time", hits.previous(lines, len, 0)?),
        ])
    })?;
    let mut targets: Vec<(String, u64)> = Vec::new();
    for (label, index) in found {
        if let Some(index) = index.filter(|index| targets.iter().all(|(_, known)| known != index)) {
            targets.push((label.to_owned(), index));
        }
    }
    let targets = targets.into_iter().map(|(label, index)| {
        let time = views::time(navigator, thread, index);
        let label = time.map_or(label.clone(), |time| format!("{label}, {time}"));
        (label, thread.position(index))
    });
    Ok(targets.collect())
}

/// `goto`: targets are of the thread that was the current one when they were asked for.
pub fn go(client: &mut ClientSession, arguments: GotoArguments, _: &Watch<'_>) -> Result<()> {
    let debuggee = client.debuggee()?;
    let position = debuggee.handles.target_of(arguments.target_id)?;
    let (asked, tid) = (debuggee.tid(Some(arguments.thread_id))?, position.tid());
    if asked != tid {
        return Err(Failure::Cannot(format!(
            "the target belongs to thread {tid}, not to thread {asked}; select that thread and request `gotoTargets` again"
        )));
    }
    debuggee.navigator.go_to(position)?;
    client.follow_ups.push(FollowUp::Stopped(StopCause::Jumped));
    Ok(())
}

/// `restartFrame`: to the first instruction of the frame's call.
pub fn restart_frame(
    client: &mut ClientSession,
    arguments: RestartFrameArguments,
    watch: &Watch<'_>,
) -> Result<()> {
    let debuggee = client.debuggee()?;
    let frame = debuggee.handles.frame_of(arguments.frame_id)?;
    let call = debuggee.look_from(frame, watch, |navigator| {
        let frames = navigator.known_stack(frame.number + 1, watch)?.frames;
        Ok(frames.into_iter().nth(frame.number).and_then(|frame| frame.call))
    })?;
    let call =
        call.ok_or_else(|| Failure::Cannot("the call of this frame is not in the history".to_owned()))?;
    debuggee.go_from(frame, watch, |navigator| {
        commands::execute(navigator, &format!("goto {call}"), watch)
    })?;
    client.follow_ups.push(FollowUp::Stopped(StopCause::Jumped));
    Ok(())
}
