//! Turns the steps of one thread into its packet stream.

use crate::ring::{Ring, kept_boundaries};
use backtrail_bundle::versions::Boundary;
use backtrail_pt::cofi::{CodeInstruction, Cofi};
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tsc};
use std::collections::HashSet;

/// The control transfer of one executed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// To a successor that the instruction allows.
    Followed,
    /// Out of user code.
    LeftUserCode,
    /// To itself: a repeated string instruction is not complete yet.
    Repeating,
    /// To an address that the instruction cannot reach. It is recorded as a gap.
    Impossible,
}

/// The packets of a thread, with their storage and counters.
#[derive(Debug)]
pub(crate) struct PacketStream {
    encoder: Encoder,
    ring: Ring,
    /// Every executed instruction, if requested.
    golden: Option<Vec<Avma>>,
    /// Instructions executed since the last packet or TNT bit.
    silent: HashSet<Avma>,
    /// The positions from which the code is another version.
    boundaries: Vec<Boundary>,
    pub(crate) instructions: u64,
    pub(crate) gaps: u64,
}

/// The packets of a finished stream.
#[derive(Debug)]
pub(crate) struct FinishedPackets {
    pub(crate) packets: Vec<u8>,
    /// The number of bytes that were dropped before them.
    pub(crate) dropped: u64,
    pub(crate) golden: Vec<Avma>,
    /// Positions in the packets where code changed.
    pub(crate) boundaries: Vec<Boundary>,
}

impl PacketStream {
    /// Builds an empty stream that starts now.
    pub(crate) fn new(options: EncoderOptions, limit: Option<usize>, golden: bool, now: Tsc) -> Self {
        let mut encoder = Encoder::new(options);
        encoder.set_time(now);
        encoder.start();
        Self {
            encoder,
            ring: Ring::new(limit),
            golden: golden.then(Vec::new),
            silent: HashSet::new(),
            boundaries: Vec::new(),
            instructions: 0,
            gaps: 0,
        }
    }

    pub(crate) fn set_time(&mut self, now: Tsc) {
        self.encoder.set_time(now);
    }

    /// Records that user code continues at `ip`.
    pub(crate) fn enter(&mut self, ip: Avma) {
        self.silent.clear();
        self.encoder.enable(ip);
    }

    /// Records an asynchronous exit before the instruction at `ip`.
    pub(crate) fn interrupt(&mut self, ip: Avma) {
        self.encoder.disable_async(ip);
    }

    /// Records that the code is another version from the instruction at `ip` on.
    pub(crate) fn change_code(&mut self, ip: Avma, version: u32) {
        self.interrupt(ip);
        self.boundaries.push(Boundary {
            offset: self.encoder.written(),
            number: version,
        });
        self.enter(ip);
    }

    /// Writes a value before the instruction at `ip`.
    pub(crate) fn value(&mut self, ip: Avma, value: u64) {
        self.interrupt(ip);
        self.encoder.value(value);
        self.enter(ip);
    }

    /// Prepares for the instruction at `ip`, and writes a PSB if one is due.
    ///
    /// A decoder binds a FUP to the first time that it reaches the address. If a loop has no
    /// packets (`for (;;) n++;`, unconditional recursion), that is the wrong iteration. An
    /// interruption is therefore recorded in each iteration. Only `jmp .` cannot be handled.
    pub(crate) fn before(&mut self, ip: Avma, instruction: Option<&CodeInstruction>) {
        let next = instruction.and_then(|instruction| match instruction.cofi {
            Cofi::Sequential => Some(ip + u64::from(instruction.len)),
            Cofi::Jump { target } | Cofi::Call { target } => Some(target),
            _ => None,
        });
        if next.is_some_and(|next| self.silent.contains(&next)) {
            self.interrupt(ip);
            self.enter(ip);
        }
        if self.encoder.psb_due() {
            self.ring.push(self.encoder.take());
            self.encoder.psb(ip);
        }
    }

    /// Records that the far transfer at `at` has left user code.
    pub(crate) fn leave(&mut self, at: Avma) {
        self.executed(at);
        self.encoder.disable();
    }

    /// Records that the instruction at `at` has executed, and that `to` is next.
    pub(crate) fn step(&mut self, instruction: &CodeInstruction, at: Avma, to: Avma) -> StepOutcome {
        let next = at + u64::from(instruction.len);
        let encoder = &mut self.encoder;
        match instruction.cofi {
            Cofi::Sequential if instruction.repeats && to == at => return StepOutcome::Repeating,
            Cofi::Sequential if to == next => {}
            Cofi::Conditional { target } if to == target || to == next => encoder.conditional(to == target),
            Cofi::Jump { target } if to == target => {}
            Cofi::Call { target } if to == target => encoder.call(next, target, true),
            Cofi::IndirectJump => encoder.indirect(to),
            Cofi::IndirectCall => {
                encoder.call(next, to, false);
                encoder.indirect(to);
            }
            Cofi::Return => encoder.near_return(to),
            Cofi::FarTransfer => {
                self.leave(at);
                return StepOutcome::LeftUserCode;
            }
            _ => {
                // The instruction at `at` may or may not have executed, so the stream claims
                // neither.
                self.gap(to);
                return StepOutcome::Impossible;
            }
        }
        self.executed(at);
        match instruction.cofi {
            Cofi::Sequential | Cofi::Jump { .. } | Cofi::Call { .. } => {
                self.silent.insert(at);
            }
            _ => self.silent.clear(),
        }
        StepOutcome::Followed
    }

    /// Records that unknown code has executed, and that the instruction at `ip` is next.
    pub(crate) fn gap(&mut self, ip: Avma) {
        self.gaps += 1;
        self.silent.clear();
        self.encoder.flush();
        self.encoder.overflow(Some(ip));
    }

    fn executed(&mut self, at: Avma) {
        self.instructions += 1;
        if let Some(golden) = &mut self.golden {
            golden.push(at);
        }
    }

    /// Returns the number of bytes written, including dropped ones.
    pub(crate) fn written(&self) -> u64 {
        self.encoder.written()
    }

    /// Ends the stream, and returns its packets.
    pub(crate) fn finish(mut self) -> FinishedPackets {
        self.ring.push(self.encoder.take());
        let dropped = self.ring.dropped();
        FinishedPackets {
            packets: self.ring.into_bytes(),
            dropped,
            golden: self.golden.unwrap_or_default(),
            boundaries: kept_boundaries(self.boundaries, dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Parser;

    fn instruction(code: &[u8], at: Avma) -> CodeInstruction {
        CodeInstruction::decode(code, at).unwrap()
    }

    fn packets(stream: PacketStream) -> Vec<String> {
        Parser::new(&stream.finish().packets)
            .map(|packet| packet.unwrap().1.to_string())
            .skip(3)
            .collect()
    }

    fn stream() -> PacketStream {
        PacketStream::new(EncoderOptions::default(), None, true, Tsc(0))
    }

    #[test]
    fn packetless_loop_is_interrupted_in_each_iteration() {
        let mut stream = stream();
        stream.enter(Avma(0x1000));
        let nop = instruction(&[0x90], Avma(0x1000));
        let jump = instruction(&[0xeb, 0xfd], Avma(0x1001));
        for _ in 0..2 {
            stream.before(Avma(0x1000), Some(&nop));
            assert_eq!(
                stream.step(&nop, Avma(0x1000), Avma(0x1001)),
                StepOutcome::Followed
            );
            stream.before(Avma(0x1001), Some(&jump));
            assert_eq!(
                stream.step(&jump, Avma(0x1001), Avma(0x1000)),
                StepOutcome::Followed
            );
        }
        assert_eq!(stream.instructions, 4);
        let lines = packets(stream);
        let places: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("fup "))
            .collect();
        assert_eq!(
            places,
            ["upd16:0x1001", "upd16:0x1000", "upd16:0x1001"],
            "each address was not reached since the last packet"
        );
    }

    #[test]
    fn repeated_string_instruction_counts_once() {
        let mut stream = stream();
        let movs = instruction(&[0xf3, 0xa4], Avma(0x1000));
        assert_eq!(
            stream.step(&movs, Avma(0x1000), Avma(0x1000)),
            StepOutcome::Repeating
        );
        assert_eq!(stream.instructions, 0);
        assert_eq!(
            stream.step(&movs, Avma(0x1000), Avma(0x1002)),
            StepOutcome::Followed
        );
        assert_eq!(stream.instructions, 1);
    }

    #[test]
    fn changed_code_begins_where_tracing_is_off() {
        let mut stream = stream();
        stream.enter(Avma(0x1000));
        stream.change_code(Avma(0x1004), 3);
        let finished = stream.finish();
        let [boundary] = finished.boundaries[..] else {
            panic!("{:?}", finished.boundaries);
        };
        assert_eq!(boundary.number, 3);
        let split = finished.packets.split_at(boundary.offset as usize);
        let names = |bytes: &[u8]| -> Vec<String> {
            let packets = Parser::new(bytes).map(|packet| packet.unwrap().1.to_string());
            packets.collect()
        };
        let (before, after) = (names(split.0), names(split.1));
        assert!(before.last().unwrap().starts_with("tip.pgd"), "{before:?}");
        assert!(after.last().unwrap().starts_with("tip.pge"), "{after:?}");
    }

    #[test]
    fn impossible_transfer_is_a_gap() {
        let mut stream = stream();
        stream.enter(Avma(0x1000));
        let branch = instruction(&[0x74, 0x10], Avma(0x1000));
        assert_eq!(
            stream.step(&branch, Avma(0x1000), Avma(0x2000)),
            StepOutcome::Impossible
        );
        assert_eq!((stream.instructions, stream.gaps), (0, 1));
        assert_eq!(packets(stream)[2..], ["ovf", "fup full:0x2000"]);
    }
}
