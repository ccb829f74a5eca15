//! The open trace, and the current position.

use super::time::Moment;
use crate::debuggee::Debuggee;
use crate::failure::Result;
use crate::handles::FrameKey;
use crate::protocol::types::Variable;
use crate::requests::Ignored;
use crate::session::ClientSession;
use crate::variable_note::note;
use backtrail_console::views;
use backtrail_debugger::session::Thread;
use backtrail_debugger::{Navigator, signal};
use backtrail_decoder::Watch;
use serde::Serialize;

/// `Trace` of `docs/dap.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    id: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crash: Option<Crash>,
    notes: Vec<String>,
    is_partial: bool,
    has_values: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Crash {
    thread_id: u32,
    signal: String,
    text: String,
}

/// `backtrail/trace`.
pub fn trace(client: &mut ClientSession, _: Ignored, _: &Watch<'_>) -> Result<Trace> {
    let session = client.debuggee()?.navigator.session();
    Ok(Trace {
        id: session.id(),
        name: session.name().to_owned(),
        program: session.program().map(str::to_owned),
        crash: session.crash().map(|crash| Crash {
            thread_id: crash.tid.0,
            signal: signal::name(crash.signal),
            text: signal::describe(crash),
        }),
        notes: session.notes().to_vec(),
        is_partial: session.is_partial(),
        has_values: session.has_values(),
    })
}

/// `PlaceBody` of `docs/dap.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceBody {
    thread_id: u32,
    position: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
}

impl PlaceBody {
    /// Returns the place of a navigator.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn of(navigator: &mut Navigator, watch: &Watch<'_>) -> Result<Self> {
        let thread = navigator.thread()?;
        let frame = navigator.known_stack(1, watch)?.frames.into_iter().next();
        let (function, call, file, line) = match frame {
            Some(frame) => (frame.function, frame.call, frame.file, frame.line),
            None => (None, None, None, None),
        };
        let index = navigator.index();
        let crash = navigator.session().crash_of(thread.tid);
        let end = navigator.is_at_end().then(|| match crash {
            Some(crash) => format!("at the crash: {}", signal::describe(crash)),
            None => "at the end of the history".to_owned(),
        });
        Ok(Self {
            thread_id: thread.tid.0,
            position: navigator.position().to_string(),
            time: views::time(navigator, thread, index).map(Moment::from),
            cpu: thread.history.cpu(index).map(|cpu| cpu.0),
            call,
            function,
            file,
            line,
            end,
        })
    }
}

/// `backtrail/where`.
pub fn place(client: &mut ClientSession, _: Ignored, watch: &Watch<'_>) -> Result<PlaceBody> {
    PlaceBody::of(&mut client.debuggee()?.navigator, watch)
}

/// The scope "Trace" of a frame: what the trace knows of the place.
pub fn variables(debuggee: &mut Debuggee, frame: FrameKey, watch: &Watch<'_>) -> Result<Vec<Variable>> {
    let place = FrameKey { number: 0, ..frame };
    debuggee.look_from(place, watch, |navigator| {
        let thread = navigator.thread()?;
        let index = navigator.index();
        let session = navigator.session();
        let mut variables = vec![note("position", &navigator.position().to_string())];
        let time = views::time(navigator, thread, index);
        let time = time.map_or_else(
            || "<unknown: the trace has no time stamp here>".to_owned(),
            |time| time.to_string(),
        );
        variables.push(note("time", &time));
        let cpu = thread.history.cpu(index);
        let cpu = cpu.map_or_else(
            || "<unknown: the trace does not record it>".to_owned(),
            |cpu| cpu.0.to_string(),
        );
        variables.push(note("CPU", &cpu));
        let stack = navigator.known_stack(frame.number + 1, watch)?;
        let call = stack
            .frames
            .get(frame.number)
            .and_then(|frame| frame.call.clone());
        variables.push(note(
            "call",
            call.as_deref().unwrap_or("<unknown: it is not in the history>"),
        ));
        let length = match thread.is_partial() {
            true => "more instructions exist, but are not decoded yet".to_owned(),
            false => format!("{} instructions", thread.history.len()),
        };
        variables.push(note("history", &length));
        for (name, text) in gaps_near(thread, index) {
            variables.push(note(name, &text));
        }
        if let Some(made_by) = session.made_by() {
            variables.push(note("recorded by", made_by));
        }
        variables.push(note("trace", session.name()));
        for text in session.notes() {
            variables.push(note("note", text));
        }
        Ok(variables)
    })
}

/// The gaps before and after a place.
fn gaps_near(thread: &Thread, index: u64) -> Vec<(&'static str, String)> {
    let gaps: Vec<_> = thread.history.gaps().filter(|&(at, _)| at > 0).collect();
    let after = gaps.partition_point(|&(at, _)| at <= index);
    let describe =
        |(at, gap): &(u64, &backtrail_decoder::Gap)| format!("at {}: {}", thread.position(*at), gap.cause);
    let before = after.checked_sub(1).and_then(|at| gaps.get(at));
    match gaps.is_empty() {
        true => vec![("gaps", "none".to_owned())],
        false => [("gap before", before), ("gap after", gaps.get(after))]
            .into_iter()
            .map(|(name, gap)| (name, gap.map_or_else(|| "none".to_owned(), describe)))
            .collect(),
    }
}
