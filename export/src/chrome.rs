//! Chrome's Trace Event Format, as a JSON object: `B` and `E` events for calls, `i` events for
//! instants.
//!
//! `ts` is in microseconds with three decimals. The viewer always shows time, so `otherData` states
//! the actual unit.

use crate::{Event, EventKind, Function, FunctionKind, Functions, Result, Timeline, Track};
use backtrail_decoder::Watch;
use serde::Serialize;
use std::io::Write;

/// An event as it is written.
#[derive(Serialize)]
struct TraceEvent<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    /// The timestamp in microseconds.
    #[serde(serialize_with = "micros")]
    ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    /// The scope of an instant event: its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args {
    Name {
        name: String,
    },
    Position {
        position: String,
        /// Present for functions that the compiler inlined.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        inlined: bool,
    },
}

fn micros<S: serde::Serializer>(at: &u64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    // The value is precise to the last digit: 2^53 ns are a hundred days.
    serializer.serialize_f64(*at as f64 / 1000.0)
}

/// Writes a timeline.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let mut list = JsonArray { out, empty: true };
    write!(list.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for track in timeline.tracks() {
        list.push(&name(track, "process_name", timeline.program_of(track)))?;
        list.push(&name(track, "thread_name", track.label()))?;
        let mut open = Vec::new();
        timeline.for_each_event(track, &mut functions, watch, &mut |functions, event| {
            let function = match &event.kind {
                EventKind::Enter(function) => {
                    open.push(*function);
                    Some(*function)
                }
                EventKind::Leave => open.pop(),
                EventKind::Instant(_) => None,
            };
            let function = function.and_then(|function| functions.get(function));
            list.push(&line(track, function, &event))
        })?;
    }
    let other = serde_json::json!({
        "unit": timeline.unit().name(),
        "start": timeline.start().to_string(),
        "notes": timeline.notes(),
    });
    writeln!(list.out, "\n],\"otherData\":{other}}}")?;
    Ok(())
}

/// Names a process or thread in the viewer.
fn name(track: &Track<'_>, kind: &'static str, name: String) -> TraceEvent<'static> {
    TraceEvent {
        ph: "M",
        pid: track.process.pid.0,
        tid: track.thread.tid.0,
        ts: 0,
        name: Some(kind),
        cat: None,
        s: None,
        args: Some(Args::Name { name }),
    }
}

/// Converts an event of `function`. The `E` events also have its name, because speedscope matches
/// ends by name.
fn line<'a>(track: &Track<'_>, function: Option<&'a Function>, event: &'a Event) -> TraceEvent<'a> {
    let name = function.map(|function| &*function.name);
    let module = function.and_then(|function| function.module.as_deref());
    let (ph, name, cat, s) = match &event.kind {
        EventKind::Enter(_) => ("B", name, module, None),
        EventKind::Leave => ("E", name, None, None),
        EventKind::Instant(text) => ("i", Some(&**text), None, Some("t")),
    };
    let position = || track.thread.position(event.index).to_string();
    TraceEvent {
        ph,
        pid: track.process.pid.0,
        tid: track.thread.tid.0,
        ts: event.at,
        name,
        cat,
        s,
        args: (ph != "E").then(|| Args::Position {
            position: position(),
            inlined: function.is_some_and(|function| function.kind == FunctionKind::Inlined),
        }),
    }
}

/// Writes a JSON array item by item.
struct JsonArray<'o> {
    out: &'o mut dyn Write,
    empty: bool,
}

impl JsonArray<'_> {
    fn push(&mut self, line: &TraceEvent<'_>) -> Result<()> {
        self.out.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        Ok(serde_json::to_writer(&mut *self.out, line)?)
    }
}
