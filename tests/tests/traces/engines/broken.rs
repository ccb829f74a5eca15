//! Engines with deliberate errors, which the comparison must detect.

use backtrail_decoder::{Canceled, Config, Engine, Event, Memory, Sink};
use backtrail_oracle::Libipt;
use backtrail_pt::packet::Tnt;
use backtrail_pt::{Avma, Cofi, Packet, Parser};
use std::ops::ControlFlow;

/// The error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The 20th instruction is missing.
    Instruction,
    /// One branch of the third TNT is inverted.
    Outcome,
    /// Flow is lost one instruction later.
    Place,
    /// There are no PTWRITE values.
    Ptwrite,
    /// Times are one tick late.
    Time,
    /// The engine panics at the 20th instruction.
    Panic,
}

impl Engine for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn decode(
        &self,
        trace: &[u8],
        memory: &dyn Memory,
        config: &Config,
        sink: &mut dyn Sink,
    ) -> Result<(), Canceled> {
        let mut trace = trace.to_vec();
        if *self == Self::Outcome {
            turn_outcome(&mut trace);
        }
        let mut sink = Spoiler {
            broken: *self,
            sink,
            instructions: 0,
            late: None,
        };
        let result = Libipt.decode(&trace, memory, config, &mut sink);
        if let Some(event) = sink.late.take() {
            sink.sink.event(event);
        }
        result
    }
}

fn turn_outcome(trace: &mut [u8]) {
    let mut parser = Parser::new(trace);
    let _ = parser.sync_forward();
    let tnts = parser
        .map_while(Result::ok)
        .filter_map(|(at, packet)| match packet {
            Packet::TntShort(tnt) => Some((at, tnt)),
            _ => None,
        });
    if let Some((at, tnt)) = tnts.skip(2).find(|(_, tnt)| tnt.len() > 1) {
        let turned = Tnt::new(tnt.bits() ^ 1, tnt.len()).unwrap();
        let mut bytes = Vec::new();
        Packet::TntShort(turned).write_to(&mut bytes);
        trace[at] = bytes[0];
    }
}

struct Spoiler<'a> {
    broken: Broken,
    sink: &'a mut dyn Sink,
    instructions: u64,
    /// An event that is delayed until after the next instruction.
    late: Option<Event>,
}

impl Sink for Spoiler<'_> {
    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.instructions += 1;
        assert!(self.broken != Broken::Panic || self.instructions != 20, "as told");
        if self.broken != Broken::Instruction || self.instructions != 20 {
            self.sink.instruction(at, len, cofi);
        }
        if let Some(event) = self.late.take() {
            self.sink.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        match (self.broken, event) {
            (Broken::Ptwrite, Event::Ptwrite { .. }) => {}
            (Broken::Place, event @ Event::Lost { .. }) => self.late = Some(event),
            (Broken::Time, Event::Time(mut stamp)) => {
                stamp.tsc.0 += 1;
                self.sink.event(Event::Time(stamp));
            }
            (_, event) => self.sink.event(event),
        }
    }

    fn progress(&mut self, offset: u64) -> ControlFlow<()> {
        self.sink.progress(offset)
    }
}
