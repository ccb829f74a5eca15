//! The size of an export, before it is written.

use crate::{Format, Functions, Result, Timeline};
use backtrail_decoder::{Stage, Version, Watch};

/// The number of calls whose names are looked up.
const SAMPLES: u64 = 1000;
/// The number of calls between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// The approximate size of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The number of calls.
    pub calls: u64,
    /// The size of the output in bytes. Only calls count.
    pub bytes: u64,
}

impl Format {
    /// Returns the typical bytes of a call without names, and how often it has its function's name
    /// and module. Returns `None` for formats that add up calls.
    fn bytes_of_call(self) -> Option<(u64, u64, u64)> {
        match self {
            // Two packets with interned names, and a position.
            Self::Perfetto => Some((65, 0, 0)),
            // A `B` event with a position, and an `E` event.
            Self::Chrome => Some((165, 2, 1)),
            // Two events with the number of the frame.
            Self::Speedscope => Some((80, 0, 0)),
            Self::Firefox | Self::Folded | Self::Pprof => None,
        }
    }
}

impl Timeline<'_> {
    /// Estimates the size in a format that has every call. Returns `None` for other formats.
    ///
    /// # Errors
    /// Fails if it was canceled.
    pub fn estimate(&self, format: Format, watch: &Watch<'_>) -> Result<Option<Estimate>> {
        let Some((own, names, modules)) = format.bytes_of_call() else {
            return Ok(None);
        };
        let mut estimate = Estimate::default();
        let (mut functions, mut sampled, mut sampled_bytes) = (Functions::default(), 0, 0);
        for track in self.tracks() {
            let all = track.forest().len() as u64;
            let every = all.div_ceil(SAMPLES).max(1);
            for (number, id) in (0_u64..).zip(self.calls_of(track)) {
                if number.is_multiple_of(REPORT_EVERY) {
                    watch.report(Stage::Calls, number, all)?;
                }
                estimate.calls += 1;
                if !number.is_multiple_of(every) {
                    continue;
                }
                let call = track.forest().call(id);
                let version = match track.process.has_one_epoch() {
                    true => Version::default(),
                    false => track.thread.history.version(call.first),
                };
                let function = functions.of(track.process, call.function, version);
                if let Some(function) = functions.get(function) {
                    let module = function.module.as_ref().map_or(0, |module| module.len());
                    sampled += 1;
                    sampled_bytes += own + names * function.name.len() as u64 + modules * module as u64;
                }
            }
        }
        let inlined = self
            .tracks()
            .iter()
            .map(|track| self.executions_of(track).count() as u64);
        estimate.calls += inlined.sum::<u64>();
        watch.end(Stage::Calls);
        let product = u128::from(estimate.calls) * u128::from(sampled_bytes);
        estimate.bytes = u64::try_from(product / u128::from(sampled.max(1_u64))).unwrap_or(u64::MAX);
        Ok(Some(estimate))
    }
}
