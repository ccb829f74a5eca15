//! The export formats.

use crate::call_profile::{CallProfile, StackRoot};
use crate::{Result, Timeline, chrome, firefox, perfetto, speedscope};
use backtrail_decoder::Watch;
use backtrail_profile::FunctionProfile;
use backtrail_profile::format::{folded, pprof};
use std::io::Write;

/// A format for calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protobuf: a timeline of track events.
    Perfetto,
    /// Chrome's Trace Event Format, JSON: a timeline.
    Chrome,
    /// The Firefox Profiler's processed profile, JSON.
    Firefox,
    /// speedscope's evented profile, JSON: a timeline.
    Speedscope,
    /// Folded stacks with their cost, one per line, for flame graphs.
    Folded,
    /// pprof's `profile.proto`, compressed by gzip.
    Pprof,
}

impl Format {
    /// Returns whether the format is binary.
    #[must_use]
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Perfetto | Self::Pprof)
    }

    /// Writes a timeline.
    ///
    /// # Errors
    /// Fails if the output cannot be written, if the format's limits are exceeded, or if it was
    /// canceled.
    pub fn write(self, timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
        match self {
            Self::Perfetto => perfetto::write(timeline, out, watch),
            Self::Chrome => chrome::write(timeline, out, watch),
            Self::Firefox => firefox::write(timeline, out, watch),
            Self::Speedscope => speedscope::write(timeline, out, watch),
            Self::Folded => write_folded(timeline, out, watch),
            Self::Pprof => {
                let CallProfile { profile, .. } = CallProfile::new(timeline, watch)?;
                Ok(pprof::write(&profile, out)?)
            }
        }
    }
}

/// Writes the own time of each stack, or its instructions without times. The thread is the
/// outermost frame.
fn write_folded(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let CallProfile { profile, .. } = CallProfile::with_root(timeline, StackRoot::Thread, watch)?;
    let functions = FunctionProfile::new(&profile)?;
    if let Some((event, _)) = profile.events.iter().last() {
        folded::write(&functions, event, out)?;
    }
    Ok(())
}
