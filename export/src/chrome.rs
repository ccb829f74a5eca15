//! Chrome's Trace Event Format as a JSON object: `B` and `E` events for a call, `i` for a moment.
//!
//! `ts` is in microseconds with three decimals. The viewer's unit is always time, so `otherData`
//! has the true unit.

use crate::{Event, Function, Functions, Kind, Result, Timeline, Track};
use backtrail_decoder::Watch;
use serde::Serialize;
use std::io::Write;

/// An event as it is written.
#[derive(Serialize)]
struct Line<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    /// Microseconds.
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
    Name { name: String },
    Position { position: String },
}

fn micros<S: serde::Serializer>(at: &u64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    // As precise as the digits: 2^53 ns are a hundred days.
    serializer.serialize_f64(*at as f64 / 1000.0)
}

/// Writes a timeline.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let mut list = List { out, empty: true };
    write!(list.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for track in timeline.tracks() {
        list.push(&name(track, "process_name", timeline.program_of(track)))?;
        list.push(&name(track, "thread_name", track.label()))?;
        let mut open = Vec::new();
        timeline.tell(track, &mut functions, watch, &mut |functions, event| {
            let function = match &event.kind {
                Kind::Enter(function) => {
                    open.push(*function);
                    Some(*function)
                }
                Kind::Leave => open.pop(),
                Kind::Moment(_) => None,
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

/// Writes the name of a process or thread.
fn name(track: &Track<'_>, what: &'static str, name: String) -> Line<'static> {
    Line {
        ph: "M",
        pid: track.process.pid.0,
        tid: track.thread.tid.0,
        ts: 0,
        name: Some(what),
        cat: None,
        s: None,
        args: Some(Args::Name { name }),
    }
}

/// `function` is the entered or left one. Ends have a name too, because speedscope needs it.
fn line<'a>(track: &Track<'_>, function: Option<&'a Function>, event: &'a Event) -> Line<'a> {
    let name = function.map(|function| &*function.name);
    let module = function.and_then(|function| function.module.as_deref());
    let (ph, name, cat, s) = match &event.kind {
        Kind::Enter(_) => ("B", name, module, None),
        Kind::Leave => ("E", name, None, None),
        Kind::Moment(what) => ("i", Some(&**what), None, Some("t")),
    };
    let position = || track.thread.position(event.index).to_string();
    Line {
        ph,
        pid: track.process.pid.0,
        tid: track.thread.tid.0,
        ts: event.at,
        name,
        cat,
        s,
        args: (ph != "E").then(|| Args::Position { position: position() }),
    }
}

/// A JSON array that is written item by item.
struct List<'o> {
    out: &'o mut dyn Write,
    empty: bool,
}

impl List<'_> {
    fn push(&mut self, line: &Line<'_>) -> Result<()> {
        self.out.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        Ok(serde_json::to_writer(&mut *self.out, line)?)
    }
}
