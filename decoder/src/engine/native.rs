//! The native engine: it decodes each block of code once and follows the flow through the blocks.
//!
//! [`packets`] reads packets. [`events`] binds packets to events and [`time`] keeps their
//! time. [`flow`] follows the blocks of [`code`] by branch outcomes and targets, and applies events
//! where they are due. [`branch_cache`] and [`packet_cache`] make frequent paths fast.

mod branch_cache;
mod code;
mod decode_cache;
mod disabled_intervals;
mod errata;
mod error;
mod event;
mod event_queue;
mod events;
mod flow;
mod flow_times;
mod packet_cache;
mod packets;
mod psb_stamps;
mod return_stack;
mod straight_line;
mod time;

use super::{Engine, Event, Sink};
use crate::{Canceled, Config, GapCause, Memory, PathTable};
use backtrail_pt::{CpuModel, Tsc};
pub(crate) use decode_cache::DecodeCache;
pub(crate) use disabled_intervals::DisabledIntervals;
use errata::Errata;
use flow::FlowDecoder;
pub(crate) use flow::{Segment, SegmentResult};
pub(crate) use flow_times::FlowTimes;
pub(crate) use packets::PsbSplitter;
use time::TscEstimator;
pub(crate) use time::{ResolvedTimestamps, TimestampResolver, TimingLog};

/// The native engine.
pub struct Native;

impl Engine for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn decode(
        &self,
        trace: &[u8],
        memory: &dyn Memory,
        config: &Config,
        sink: &mut dyn Sink,
    ) -> Result<(), Canceled> {
        self.decode_with_cache(trace, memory, config, sink, DecodeCache::new())
            .0
    }
}

/// Returns whether the errata table covers this CPU. Packets of other CPUs are decoded without
/// workarounds.
#[must_use]
pub fn has_errata_table(cpu: CpuModel) -> bool {
    Errata::of(cpu).is_some()
}

/// Returns the errata to work around, or why the configuration is invalid.
fn errata_of(config: &Config) -> Result<Errata, &'static str> {
    let errata = match config.cpu {
        None => Errata::default(),
        // No errata are known for a CPU outside the table.
        Some(cpu) => Errata::of(cpu).unwrap_or_default(),
    };
    let filters = config.filters.len() <= Config::MAX_FILTERS
        && config.filters.iter().all(|filter| filter.range.end.0 > 0);
    if !filters {
        return Err("bad address filters");
    }
    Ok(errata)
}

impl Native {
    /// Decodes all of a trace with the caches of earlier decodes of the same code. Returns the
    /// caches for the next decode.
    pub(crate) fn decode_with_cache(
        &self,
        trace: &[u8],
        memory: &dyn Memory,
        config: &Config,
        sink: &mut dyn Sink,
        cache: DecodeCache,
    ) -> (Result<(), Canceled>, DecodeCache) {
        match errata_of(config) {
            Ok(errata) => {
                let mut flow = FlowDecoder::new(trace, memory, config, errata, sink, cache);
                (flow.run(), flow.into_cache())
            }
            Err(error) => {
                if !trace.is_empty() {
                    sink.event(Event::Lost {
                        cause: GapCause::Corrupt {
                            error: error.to_owned(),
                            at: None,
                        },
                        offset: 0,
                    });
                }
                (Ok(()), cache)
            }
        }
    }

    /// Returns the intervals of a trace in which tracing was disabled.
    pub(crate) fn disabled_intervals(trace: &[u8], config: &Config) -> DisabledIntervals {
        errata_of(config).map_or_else(
            |_| DisabledIntervals::default(),
            |errata| DisabledIntervals::of(trace, errata, config),
        )
    }

    /// Returns the timestamp of each PSB at which decoding can start, `None` for one without.
    pub(crate) fn psb_stamps(trace: &[u8], config: &Config) -> Vec<Option<Tsc>> {
        errata_of(config).map_or_else(|_| Vec::new(), |errata| psb_stamps::stamps(trace, errata))
    }

    /// Returns the times of the flow of a trace whose first byte has this offset.
    pub(crate) fn flow_times(trace: &[u8], offset: u64, config: &Config) -> FlowTimes {
        errata_of(config).map_or_else(
            |_| FlowTimes::default(),
            |errata| FlowTimes::of(trace, offset, errata, config),
        )
    }

    /// Returns a splitter that cuts a trace into independent segments of at least `min_len` bytes.
    /// `None`: the trace cannot be decoded.
    pub(crate) fn psb_splitter<'a>(
        &self,
        trace: &'a [u8],
        config: &Config,
        min_len: usize,
    ) -> Option<PsbSplitter<'a>> {
        let errata = errata_of(config).ok()?;
        Some(PsbSplitter::new(trace, errata, min_len)).filter(PsbSplitter::has_psb)
    }

    /// Returns a resolver for the times of the segments in order. `None`: the trace cannot be
    /// decoded.
    pub(crate) fn timestamp_resolver(&self, config: &Config) -> Option<TimestampResolver> {
        let errata = errata_of(config).ok()?;
        Some(TimestampResolver::new(TscEstimator::new(
            config.timing,
            errata.skl168,
        )))
    }

    /// Returns a decoder for segments of a trace. `None`: the trace cannot be decoded. The code
    /// must not change.
    pub(crate) fn segment_decoder<'a>(
        &self,
        trace: &'a [u8],
        memory: &'a dyn Memory,
        config: &'a Config,
        sink: &'a mut dyn Sink,
        cache: DecodeCache,
    ) -> Option<SegmentDecoder<'a>> {
        let errata = errata_of(config).ok()?;
        Some(SegmentDecoder(FlowDecoder::new(
            trace, memory, config, errata, sink, cache,
        )))
    }
}

/// Decodes segments of a trace, one after another.
pub(crate) struct SegmentDecoder<'a>(FlowDecoder<'a, 'a>);

impl SegmentDecoder<'_> {
    /// Decodes a segment. Its timing packets are recorded in `log`, whose old content is dropped.
    pub fn decode(
        &mut self,
        segment: &Segment,
        log: TimingLog,
    ) -> Result<(SegmentResult, TimingLog), Canceled> {
        self.0.segment(segment, log)
    }

    /// Returns the paths that the segments refer to by number.
    pub fn paths(&self) -> PathTable<'_> {
        self.0.paths()
    }

    /// Returns the decode caches.
    pub fn into_cache(self) -> DecodeCache {
        self.0.into_cache()
    }
}
