//! speedscope's file format: one evented profile for each thread.
//!
//! Source: `https://www.speedscope.app/file-format-schema.json`.

use crate::{EventKind, Functions, Result, Timeline, Track, Unit};
use backtrail_decoder::Watch;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// Writes a timeline. The functions are written last, when all are known; JSON allows any order.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let name = serde_json::to_string(timeline.session().name())?;
    write!(
        out,
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"backtrail\",\"name\":{name},\"profiles\":["
    )?;
    for (number, track) in timeline.tracks().iter().enumerate() {
        out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
        profile(timeline, track, &mut functions, out, watch)?;
    }
    let frames: Vec<Frame<'_>> = functions
        .iter()
        .map(|(_, function)| Frame {
            name: &function.name,
            file: function.declared.as_ref().map(|(file, _)| &**file),
            line: function.declared.as_ref().map(|&(_, line)| line),
        })
        .collect();
    write!(out, "\n],\"shared\":{{\"frames\":")?;
    serde_json::to_writer(&mut *out, &frames)?;
    writeln!(out, "}}}}")?;
    Ok(())
}

fn profile(
    timeline: &Timeline<'_>,
    track: &Track<'_>,
    functions: &mut Functions,
    out: &mut dyn Write,
    watch: &Watch<'_>,
) -> Result<()> {
    let name = serde_json::to_string(&track.label())?;
    let unit = match timeline.unit() {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Ticks | Unit::Instructions => "none",
    };
    write!(
        out,
        "{{\"type\":\"evented\",\"name\":{name},\"unit\":\"{unit}\",\"events\":["
    )?;
    let mut open = Vec::new();
    let (mut first, mut last) = (None, 0);
    timeline.for_each_event(track, functions, watch, &mut |_, event| {
        let (kind, frame) = match event.kind {
            EventKind::Enter(function) => {
                open.push(function);
                ("O", Some(function))
            }
            EventKind::Leave => ("C", open.pop()),
            EventKind::Instant(_) => return Ok(()),
        };
        let Some(frame) = frame else { return Ok(()) };
        let comma = if first.is_some() { "," } else { "" };
        first.get_or_insert(event.at);
        last = event.at;
        write!(
            out,
            "{comma}\n{{\"type\":\"{kind}\",\"frame\":{},\"at\":{}}}",
            frame.0, event.at
        )?;
        Ok(())
    })?;
    let first = first.unwrap_or(0);
    write!(out, "],\"startValue\":{first},\"endValue\":{last}}}")?;
    Ok(())
}
