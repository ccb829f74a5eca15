//! The engine: libipt's instruction flow layer.

mod cache;
mod events;
mod ffi;
mod starts;

use backtrail_decoder::{Canceled, Config, Engine, Event, GapCause, Memory, Sink};
use backtrail_pt::{Avma, Cofi};
use cache::CofiCache;
use ffi::{InsnDecoder, InsnStep, PtError, RawEvent, RawEventKind};
use starts::FlowStarts;

/// libipt's `pt_insn` decoder.
///
/// The decoder is called by the raw bindings: an instruction that is returned together with an
/// error counts, but the wrapper crate drops it.
pub struct Libipt;

/// Returns libipt's configuration for a trace, without flags, for its other decoders. It refers to
/// the trace's bytes.
///
/// `None`: libipt does not know the processor, or the filters are too many or invalid.
#[must_use]
pub fn configuration(trace: &[u8], config: &Config) -> Option<libipt_sys::pt_config> {
    ffi::configuration(trace, config).ok()
}

/// Instructions between two calls of [`Sink::progress`].
const PROGRESS_EVERY: u32 = 1 << 14;

impl Engine for Libipt {
    fn name(&self) -> &'static str {
        "libipt"
    }

    fn decode(
        &self,
        trace: &[u8],
        memory: &dyn Memory,
        config: &Config,
        sink: &mut dyn Sink,
    ) -> Result<(), Canceled> {
        let mut decoder = match InsnDecoder::new(trace, &memory, config) {
            Ok(decoder) => decoder,
            Err(error) => {
                if !trace.is_empty() {
                    let cause = GapCause::Corrupt {
                        error: error.to_string(),
                        at: None,
                    };
                    sink.event(Event::Lost { cause, offset: 0 });
                }
                return Ok(());
            }
        };
        InsnFlow {
            decoder: &mut decoder,
            starts: FlowStarts::new(trace),
            sink,
            cofis: CofiCache::default(),
            runaway: InsnRunawayGuard::default(),
            ticks: 0,
        }
        .run()
    }
}

/// The state of one decode.
struct InsnFlow<'a, 'b> {
    decoder: &'a mut InsnDecoder<'b>,
    starts: FlowStarts<'b>,
    sink: &'a mut dyn Sink,
    cofis: CofiCache,
    runaway: InsnRunawayGuard,
    /// Instructions since the last progress report.
    ticks: u32,
}

/// The reason why a stretch of flow ended.
enum InsnStop {
    EndOfTrace,
    PtError(PtError, Option<Avma>),
    RunAway(Avma),
    Canceled,
}

impl InsnFlow<'_, '_> {
    fn run(&mut self) -> Result<(), Canceled> {
        let mut before = None;
        loop {
            let status = self.decoder.sync_forward();
            let sync = self.decoder.sync_offset();
            let status = match status {
                Ok(status) => status,
                Err(error) if error.is_end() => return Ok(()),
                Err(error) => {
                    let cause = GapCause::Corrupt {
                        error: error.to_string(),
                        at: None,
                    };
                    self.lost(cause);
                    // Continue as long as new PSBs are found.
                    if sync.is_none() || sync <= before {
                        return Ok(());
                    }
                    before = sync;
                    continue;
                }
            };
            before = sync;
            let offset = sync.unwrap_or(0);
            self.starts.sync(offset);
            self.sink.event(Event::Sync { offset });
            self.runaway = InsnRunawayGuard::default();
            match self.follow(status) {
                InsnStop::EndOfTrace => return Ok(()),
                InsnStop::Canceled => return Err(Canceled),
                InsnStop::RunAway(at) => self.lost(GapCause::RunAway { at }),
                InsnStop::PtError(error, at) => {
                    let cause = match at {
                        Some(at) if error.is_no_map() => GapCause::LostCode { at },
                        at => GapCause::Corrupt {
                            error: error.to_string(),
                            at,
                        },
                    };
                    self.lost(cause);
                }
            }
        }
    }

    fn lost(&mut self, cause: GapCause) {
        let offset = self.decoder.offset().unwrap_or(0);
        self.sink.event(Event::Lost { cause, offset });
    }

    /// Pushes events and instructions until the flow ends.
    fn follow(&mut self, mut status: ffi::Status) -> InsnStop {
        loop {
            while status.event_pending() {
                let (event, next) = self.decoder.event();
                if let Some(event) = event {
                    self.event(&event);
                    self.runaway = InsnRunawayGuard::default();
                }
                status = match next {
                    Ok(next) => next,
                    Err(error) if error.is_end() => return InsnStop::EndOfTrace,
                    Err(error) => return InsnStop::PtError(error, None),
                };
                if let Some(stop) = self.tick() {
                    return stop;
                }
            }
            // Nothing proves which instructions ran after the last packet. libipt's `ptxed` stops
            // here too.
            if status.is_end() {
                return InsnStop::EndOfTrace;
            }
            let InsnStep { instruction, result } = self.decoder.next();
            if let Some(found) = instruction.filter(ffi::PtInsn::is_complete) {
                let (at, len) = (found.pc(), found.len());
                let cofi = self.cofis.of(&found);
                self.sink.instruction(at, len, cofi);
                if self.runaway.runs_away(cofi) {
                    return InsnStop::RunAway(at);
                }
            }
            status = match result {
                Ok(status) => status,
                Err(error) if error.is_end() => return InsnStop::EndOfTrace,
                Err(error) => return InsnStop::PtError(error, instruction.map(|found| found.pc())),
            };
            if let Some(stop) = self.tick() {
                return stop;
            }
        }
    }

    fn event(&mut self, event: &RawEvent) {
        let read = self.decoder.offset().unwrap_or(0);
        // The read offset is not exact: the next events are fetched already, with their packets.
        let start = match event.kind {
            RawEventKind::Enabled { status: false, .. } => self.starts.enabled(),
            RawEventKind::Overflow => self.starts.overflow(),
            _ => None,
        };
        if let Some(offset) = start {
            self.sink.event(Event::FlowBegins { offset });
        }
        events::push(event, read, self.sink);
    }

    fn tick(&mut self) -> Option<InsnStop> {
        self.ticks += 1;
        if self.ticks < PROGRESS_EVERY {
            return None;
        }
        self.ticks = 0;
        self.sink
            .progress(self.decoder.offset().unwrap_or(0))
            .is_break()
            .then_some(InsnStop::Canceled)
    }
}

/// Limits the instructions without a packet.
///
/// libipt follows `jmp .` for ever, because it needs no packet. A program cannot leave a circle of
/// code without a packet, so code that runs in circles is not the code that ran. The rule is that
/// of the native engine: Brent's algorithm over the targets of direct jumps and calls.
#[derive(Default)]
struct InsnRunawayGuard {
    anchor: Option<Avma>,
    steps: u32,
    limit: u32,
}

impl InsnRunawayGuard {
    fn runs_away(&mut self, cofi: Cofi) -> bool {
        let target = match cofi {
            Cofi::Sequential => return false,
            Cofi::Jump { target } | Cofi::Call { target } => target,
            _ => {
                *self = Self::default();
                return false;
            }
        };
        if self.anchor == Some(target) {
            return true;
        }
        if self.steps == self.limit {
            (self.anchor, self.steps) = (Some(target), 0);
            self.limit = self.limit.saturating_mul(2).max(1);
        }
        self.steps += 1;
        false
    }
}
