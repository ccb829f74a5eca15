//! The formats there are.

use crate::{Result, Timeline, chrome, firefox, folded, perfetto, pprof, speedscope};
use backtrail_decoder::Watch;
use std::io::Write;

/// A format to export calls in.
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
    /// A stack and what it cost, one a line, as flame graphs are made of.
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
    /// When the output cannot be written, or the format has no room; when canceled.
    pub fn write(self, timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
        match self {
            Self::Perfetto => perfetto::write(timeline, out, watch),
            Self::Chrome => chrome::write(timeline, out, watch),
            Self::Firefox => firefox::write(timeline, out, watch),
            Self::Speedscope => speedscope::write(timeline, out, watch),
            Self::Folded => folded::write(timeline, out, watch),
            Self::Pprof => pprof::write(timeline, out, watch),
        }
    }
}
