//! The Firefox Profiler's format. The interval between samples is as short as the format allows.

use crate::{EventKind, Functions, Result, Timeline};
use backtrail_decoder::Watch;
use backtrail_profile::format::firefox::{SampledTimeline, TimelineThread};
use std::io::Write;

/// The most samples of a thread, and of all threads.
const SAMPLES: u64 = 200_000;
const ALL_SAMPLES: u64 = 1_000_000;

/// Writes a timeline.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let lengths = || timeline.tracks().iter().map(|track| timeline.length(track));
    let longest = lengths().max().unwrap_or(0);
    let all = lengths().fold(0, u64::saturating_add);
    let interval = longest.div_ceil(SAMPLES).max(all.div_ceil(ALL_SAMPLES));
    let name = format!("{} ({})", timeline.session().name(), timeline.unit().name());
    let mut samples = SampledTimeline::new(&name, interval);
    for track in timeline.tracks() {
        let mut thread = samples.begin_thread(TimelineThread {
            pid: track.process.pid.0,
            process_name: &timeline.program_of(track),
            tid: track.thread.tid.0,
            name: &track.label(),
        });
        timeline.for_each_event(track, &mut functions, watch, &mut |functions, event| {
            match event.kind {
                EventKind::Enter(function) => {
                    let name = functions.get(function).map_or("", |function| &function.name);
                    thread.enter(event.at, name);
                }
                EventKind::Leave => thread.leave(event.at),
                EventKind::Instant(text) => {
                    let position = track.thread.position(event.index).to_string();
                    thread.add_instant(event.at, &text, &position);
                }
            }
            Ok(())
        })?;
        thread.end();
    }
    Ok(samples.write(out)?)
}
