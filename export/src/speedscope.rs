//! speedscope's file format: one evented profile for each thread.

use crate::{EventKind, Functions, Result, Timeline, Unit};
use backtrail_decoder::Watch;
use backtrail_profile::format::speedscope::{SpeedscopeFrame, TimelineWriter};
use std::io::Write;

/// Writes a timeline.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let unit = match timeline.unit() {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Ticks | Unit::Instructions => "none",
    };
    let mut writer = TimelineWriter::new(timeline.session().name(), out)?;
    for track in timeline.tracks() {
        writer.begin_thread(&track.label(), unit)?;
        timeline.for_each_event(track, &mut functions, watch, &mut |_, event| {
            match event.kind {
                EventKind::Enter(function) => writer.enter(function.0, event.at)?,
                EventKind::Leave => writer.leave(event.at)?,
                EventKind::Instant(_) => {}
            }
            Ok(())
        })?;
        writer.end_thread()?;
    }
    let frames = functions.iter().map(|(_, function)| SpeedscopeFrame {
        name: &function.name,
        file: function.declared.as_ref().map(|(file, _)| &**file),
        line: function.declared.as_ref().map(|&(_, line)| line),
    });
    Ok(writer.finish(frames)?)
}
