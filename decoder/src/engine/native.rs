//! Our own engine: packets, events, and the flow through blocks that are decoded once.
//!
//! [`packets`] reads the bytes; [`events`] finds which packets belong together, and [`time`] their time;
//! [`flow`] goes through the code that [`code`] has as blocks, by outcomes and targets, and applies
//! events at their places.

mod calibration;
mod chunk;
mod code;
mod errata;
mod error;
mod event;
mod events;
mod flow;
mod memo;
mod packets;
mod queue;
mod raw;
mod returns;
mod time;

use super::{Engine, Event, Sink};
use crate::{Canceled, Config, GapCause, Memory};
use errata::Errata;
use flow::Flow;

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
        let errata = match config.cpu {
            None => Some(Errata::default()),
            Some(cpu) => Errata::of(cpu),
        };
        let filters = config.filters.len() <= Config::MAX_FILTERS
            && config.filters.iter().all(|filter| filter.range.end.0 > 0);
        match errata {
            Some(errata) if filters => Flow::new(trace, memory, config, errata, sink).run(),
            _ => {
                if !trace.is_empty() {
                    let error = if errata.is_none() {
                        "unknown processor"
                    } else {
                        "bad address filters"
                    };
                    sink.event(Event::Lost {
                        cause: GapCause::Corrupt {
                            error: error.to_owned(),
                            at: None,
                        },
                        offset: 0,
                        error: true,
                    });
                }
                Ok(())
            }
        }
    }
}
