//! Our own engine: packets, events, and the flow through blocks that are decoded once.
//!
//! [`packets`] reads the bytes; [`events`] finds which packets belong together, and [`time`] their time, which of a segment is
//! noted ([`notes`]) and worked out later ([`reckoner`]); [`flow`] goes through the code that [`code`] has as blocks, by outcomes and targets, and applies
//! events at their places.

mod calibration;
mod chunk;
mod code;
mod did;
mod errata;
mod error;
mod event;
mod events;
mod flow;
mod learnt;
mod memo;
mod notes;
mod packets;
mod pauses;
mod queue;
mod raw;
mod reckoner;
mod returns;
mod scout;
mod straight;
mod time;
mod timekeeper;
mod trail;

use super::{Engine, Event, Sink};
use crate::{Canceled, Config, GapCause, Memory, Runs};
use backtrail_pt::CpuModel;
use errata::Errata;
use flow::Flow;
pub(crate) use flow::{Ended, Segment};
pub(crate) use learnt::Learnt;
pub(crate) use notes::Notes;
pub(crate) use pauses::Pauses;
pub(crate) use reckoner::{Reckoner, Stamps};
pub(crate) use scout::Scout;
use time::Time;

/// The engine.
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
        self.decode_knowing(trace, memory, config, sink, Learnt::new()).0
    }

    fn native(&self) -> Option<&Self> {
        Some(self)
    }
}

/// Whether it is known what is wrong with a processor's packets; of one where it is not, they are taken as they are.
#[must_use]
pub fn knows_errata_of(cpu: CpuModel) -> bool {
    Errata::of(cpu).is_some()
}

/// The errata to decode with, when the configuration can be decoded with.
fn errata_of(config: &Config) -> Result<Errata, &'static str> {
    let errata = match config.cpu {
        None => Errata::default(),
        // Of one that nobody knows yet, nothing is known to be wrong.
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
    /// Decodes all of a trace, with what was learnt of its code before. Gives all that is known of it then.
    pub(crate) fn decode_knowing(
        &self,
        trace: &[u8],
        memory: &dyn Memory,
        config: &Config,
        sink: &mut dyn Sink,
        learnt: Learnt,
    ) -> (Result<(), Canceled>, Learnt) {
        match errata_of(config) {
            Ok(errata) => {
                let mut flow = Flow::new(trace, memory, config, errata, sink, learnt);
                (flow.run(), flow.into_learnt())
            }
            Err(error) => {
                if !trace.is_empty() {
                    sink.event(Event::Lost {
                        cause: GapCause::Corrupt {
                            error: error.to_owned(),
                            at: None,
                        },
                        offset: 0,
                        error: true,
                    });
                }
                (Ok(()), learnt)
            }
        }
    }

    /// The pauses of a trace.
    pub(crate) fn pauses(trace: &[u8], config: &Config) -> Pauses {
        errata_of(config).map_or_else(|_| Pauses::default(), |errata| Pauses::of(trace, errata, config))
    }

    /// What cuts a trace into segments, of so many bytes at least, which can be decoded one before the other;
    /// `None`: it cannot be decoded at all.
    pub(crate) fn scout<'a>(&self, trace: &'a [u8], config: &Config, least: usize) -> Option<Scout<'a>> {
        let errata = errata_of(config).ok()?;
        Some(Scout::new(trace, errata, least)).filter(Scout::may_begin)
    }

    /// What works out the time of the segments, in their order; `None`: the trace cannot be decoded at all.
    pub(crate) fn reckoner(&self, config: &Config) -> Option<Reckoner> {
        let errata = errata_of(config).ok()?;
        Some(Reckoner::new(Time::new(config.timing, errata.skl168)))
    }

    /// What decodes segments of a trace, one after the other; `None`: it cannot be decoded at all. The code must not change.
    pub(crate) fn decoder<'a>(
        &self,
        trace: &'a [u8],
        memory: &'a dyn Memory,
        config: &'a Config,
        sink: &'a mut dyn Sink,
        learnt: Learnt,
    ) -> Option<SegmentDecoder<'a>> {
        let errata = errata_of(config).ok()?;
        Some(SegmentDecoder(Flow::new(
            trace, memory, config, errata, sink, learnt,
        )))
    }
}

/// Decodes segments of a trace.
pub(crate) struct SegmentDecoder<'a>(Flow<'a, 'a>);

impl SegmentDecoder<'_> {
    /// Decodes the next, and writes what tells its time over these notes.
    pub fn decode(&mut self, segment: &Segment, notes: Notes) -> Result<(Ended, Notes), Canceled> {
        self.0.segment(segment, notes)
    }

    /// The runs that it tells by number, as far as it knows them now.
    pub fn runs(&self) -> Runs<'_> {
        self.0.runs()
    }

    /// What it knows of the code.
    pub fn into_learnt(self) -> Learnt {
        self.0.into_learnt()
    }
}
