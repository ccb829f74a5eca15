//! The engine of Intel's library, libipt, by its instruction flow layer.

mod cache;
mod events;
mod ffi;
mod starts;

use super::{Engine, Event, Sink};
use crate::{Canceled, Config, GapCause, Memory};
use backtrail_pt::{Avma, Cofi};
use cache::CofiCache;
use ffi::{Decoder, Error, Kind, RawEvent, Step};
use starts::FlowStarts;

/// libipt's `pt_insn` decoder.
///
/// The raw bindings are used, because an instruction that comes together with an error counts, and
/// the wrapper crate drops it.
pub struct Libipt;

/// What libipt is told of a trace, no flags set: for others of its decoders. It names the trace's bytes.
///
/// `None`: libipt does not know the processor, or there are more filters than it has, or bad ones.
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
        let mut decoder = match Decoder::new(trace, &memory, config) {
            Ok(decoder) => decoder,
            Err(error) => {
                if !trace.is_empty() {
                    let cause = GapCause::Corrupt {
                        error: error.to_string(),
                        at: None,
                    };
                    sink.event(Event::Lost {
                        cause,
                        offset: 0,
                        error: true,
                    });
                }
                return Ok(());
            }
        };
        Flow {
            decoder: &mut decoder,
            starts: FlowStarts::new(trace),
            sink,
            cofis: CofiCache::default(),
            quiet: Quiet::default(),
            ticks: 0,
        }
        .run()
    }
}

/// One decode.
struct Flow<'a, 'b> {
    decoder: &'a mut Decoder<'b>,
    starts: FlowStarts<'b>,
    sink: &'a mut dyn Sink,
    cofis: CofiCache,
    quiet: Quiet,
    /// Instructions since the last progress.
    ticks: u32,
}

/// Why a stretch of flow ended.
enum Stop {
    EndOfTrace,
    Error(Error, Option<Avma>),
    RunAway(Avma),
    Canceled,
}

impl Flow<'_, '_> {
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
                    self.lost(cause, true);
                    // As long as it finds other PSBs there is hope.
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
            self.quiet = Quiet::default();
            match self.follow(status) {
                Stop::EndOfTrace => return Ok(()),
                Stop::Canceled => return Err(Canceled),
                Stop::RunAway(at) => self.lost(GapCause::RunAway { at }, false),
                Stop::Error(error, at) => {
                    let cause = match at {
                        Some(at) if error.is_no_map() => GapCause::LostCode { at },
                        at => GapCause::Corrupt {
                            error: error.to_string(),
                            at,
                        },
                    };
                    self.lost(cause, true);
                }
            }
        }
    }

    fn lost(&mut self, cause: GapCause, error: bool) {
        let offset = self.decoder.offset().unwrap_or(0);
        self.sink.event(Event::Lost { cause, offset, error });
    }

    /// Pushes events and instructions until flow ends.
    fn follow(&mut self, mut status: ffi::Status) -> Stop {
        loop {
            while status.event_pending() {
                let (event, next) = self.decoder.event();
                if let Some(event) = event {
                    self.event(&event);
                    self.quiet = Quiet::default();
                }
                status = match next {
                    Ok(next) => next,
                    Err(error) if error.is_end() => return Stop::EndOfTrace,
                    Err(error) => return Stop::Error(error, None),
                };
                if let Some(stop) = self.tick() {
                    return stop;
                }
            }
            let Step { instruction, result } = self.decoder.next();
            if let Some(found) = instruction.filter(ffi::Instruction::is_complete) {
                let (at, len) = (found.pc(), found.len());
                let cofi = self.cofis.of(&found);
                self.sink.instruction(at, len, cofi);
                if self.quiet.runs_away(cofi) {
                    return Stop::RunAway(at);
                }
            }
            status = match result {
                Ok(status) => status,
                Err(error) if error.is_end() => return Stop::EndOfTrace,
                Err(error) => return Stop::Error(error, instruction.map(|found| found.pc())),
            };
            if let Some(stop) = self.tick() {
                return stop;
            }
        }
    }

    fn event(&mut self, event: &RawEvent) {
        let read = self.decoder.offset().unwrap_or(0);
        // How far is read says little: the next events are fetched already, with their packets.
        let start = match event.kind {
            Kind::Enabled { status: false, .. } => self.starts.enabled(),
            Kind::Overflow => self.starts.overflow(),
            _ => None,
        };
        if let Some(offset) = start {
            self.sink.event(Event::FlowBegins { offset });
        }
        events::push(event, read, self.sink);
    }

    fn tick(&mut self) -> Option<Stop> {
        self.ticks += 1;
        if self.ticks < PROGRESS_EVERY {
            return None;
        }
        self.ticks = 0;
        self.sink
            .progress(self.decoder.offset().unwrap_or(0))
            .is_break()
            .then_some(Stop::Canceled)
    }
}

/// How long nothing was taken out of the trace.
///
/// libipt follows `jmp .` for ever: it takes no packet. A program that ran cannot repeat itself
/// between two packets, so far beyond what real code does without one, the code is not what ran.
#[derive(Default)]
struct Quiet {
    instructions: u32,
    direct: u32,
}

impl Quiet {
    /// Straight code this long without any branch that gives a packet (a quarter of a megabyte).
    const MAX_INSTRUCTIONS: u32 = 1 << 16;
    /// Direct jumps and calls one after the other, with nothing between that gives a packet.
    const MAX_DIRECT: u32 = 1 << 12;

    fn runs_away(&mut self, cofi: Cofi) -> bool {
        match cofi {
            Cofi::Sequential => {}
            Cofi::Jump { .. } | Cofi::Call { .. } => self.direct += 1,
            _ => *self = Self::default(),
        }
        self.instructions += 1;
        self.instructions > Self::MAX_INSTRUCTIONS || self.direct > Self::MAX_DIRECT
    }
}
