//! The packet stream of one thread: steps become control-flow facts.

use crate::ring::Ring;
use backtrail_pt::cofi::{CodeInstruction, Cofi};
use backtrail_pt::{Avma, Encoder, EncoderOptions, Tsc};
use std::collections::HashSet;

/// How control went from one instruction on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Went {
    /// To a successor the instruction allows.
    On,
    /// Out of user code.
    Out,
    /// Nowhere: a repeated string instruction is not through yet.
    Nowhere,
    /// Where the instruction cannot lead: told as a gap.
    Astray,
}

/// Packets, their ring, and the numbers.
#[derive(Debug)]
pub(crate) struct Stream {
    encoder: Encoder,
    ring: Ring,
    /// Every executed instruction, when asked for.
    golden: Option<Vec<Avma>>,
    /// Instructions executed since the last one that gave a packet or a TNT bit.
    silent: HashSet<Avma>,
    pub(crate) instructions: u64,
    pub(crate) gaps: u64,
}

impl Stream {
    /// An empty stream that begins now.
    pub(crate) fn new(options: EncoderOptions, limit: Option<usize>, golden: bool, now: Tsc) -> Self {
        let mut encoder = Encoder::new(options);
        encoder.set_time(now);
        encoder.start();
        Self {
            encoder,
            ring: Ring::new(limit),
            golden: golden.then(Vec::new),
            silent: HashSet::new(),
            instructions: 0,
            gaps: 0,
        }
    }

    pub(crate) fn set_time(&mut self, now: Tsc) {
        self.encoder.set_time(now);
    }

    /// User code goes on at `ip`.
    pub(crate) fn enter(&mut self, ip: Avma) {
        self.silent.clear();
        self.encoder.enable(ip);
    }

    /// Control was taken away before the instruction at `ip`.
    pub(crate) fn interrupt(&mut self, ip: Avma) {
        self.encoder.disable_async(ip);
    }

    /// The instruction at `ip` is about to run. Writes PSB when one is due.
    ///
    /// FUP means the first time that a decoder comes to its address. Where control comes back to an
    /// instruction without any packet between (`for (;;) n++;`, recursion without a condition), that
    /// would be the wrong turn: so an interruption is told just before, in each turn. Only `jmp .` is
    /// beyond help.
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

    /// The far transfer at `at` was executed and has left user code.
    pub(crate) fn leave(&mut self, at: Avma) {
        self.executed(at);
        self.encoder.disable();
    }

    /// The instruction at `at` was executed, `to` is next.
    pub(crate) fn step(&mut self, instruction: &CodeInstruction, at: Avma, to: Avma) -> Went {
        let next = at + u64::from(instruction.len);
        let encoder = &mut self.encoder;
        match instruction.cofi {
            Cofi::Sequential if instruction.repeats && to == at => return Went::Nowhere,
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
                return Went::Out;
            }
            _ => {
                // The instruction at `at` may have run or not: neither is claimed.
                self.gap(to);
                return Went::Astray;
            }
        }
        self.executed(at);
        match instruction.cofi {
            Cofi::Sequential | Cofi::Jump { .. } | Cofi::Call { .. } => {
                self.silent.insert(at);
            }
            _ => self.silent.clear(),
        }
        Went::On
    }

    /// Something ran that is not known; the instruction at `ip` is next.
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

    /// Bytes written, those dropped included.
    pub(crate) fn written(&self) -> u64 {
        self.encoder.written()
    }

    /// Ends the stream: its packets with how many bytes were dropped before them, and the golden list.
    pub(crate) fn finish(mut self) -> (Vec<u8>, u64, Vec<Avma>) {
        self.ring.push(self.encoder.take());
        let dropped = self.ring.dropped();
        (self.ring.into_bytes(), dropped, self.golden.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Parser;

    fn instruction(code: &[u8], at: Avma) -> CodeInstruction {
        CodeInstruction::decode(code, at).unwrap()
    }

    fn packets(stream: Stream) -> Vec<String> {
        let (bytes, _, _) = stream.finish();
        Parser::new(&bytes)
            .map(|packet| packet.unwrap().1.to_string())
            .skip(3)
            .collect()
    }

    fn stream() -> Stream {
        Stream::new(EncoderOptions::default(), None, true, Tsc(0))
    }

    #[test]
    fn a_packetless_loop_is_interrupted_before_it_closes() {
        let mut stream = stream();
        stream.enter(Avma(0x1000));
        let nop = instruction(&[0x90], Avma(0x1000));
        let jump = instruction(&[0xeb, 0xfd], Avma(0x1001));
        for _ in 0..2 {
            stream.before(Avma(0x1000), Some(&nop));
            assert_eq!(stream.step(&nop, Avma(0x1000), Avma(0x1001)), Went::On);
            stream.before(Avma(0x1001), Some(&jump));
            assert_eq!(stream.step(&jump, Avma(0x1001), Avma(0x1000)), Went::On);
        }
        assert_eq!(stream.instructions, 4);
        let told = packets(stream);
        let places: Vec<&str> = told.iter().filter_map(|line| line.strip_prefix("fup ")).collect();
        assert_eq!(
            places,
            ["upd16:0x1001", "upd16:0x1000", "upd16:0x1001"],
            "each an address not passed since the last packet"
        );
    }

    #[test]
    fn a_repeated_string_instruction_counts_when_it_is_through() {
        let mut stream = stream();
        let movs = instruction(&[0xf3, 0xa4], Avma(0x1000));
        assert_eq!(stream.step(&movs, Avma(0x1000), Avma(0x1000)), Went::Nowhere);
        assert_eq!(stream.instructions, 0);
        assert_eq!(stream.step(&movs, Avma(0x1000), Avma(0x1002)), Went::On);
        assert_eq!(stream.instructions, 1);
    }

    #[test]
    fn going_where_nothing_leads_is_a_gap_and_claims_nothing() {
        let mut stream = stream();
        stream.enter(Avma(0x1000));
        let branch = instruction(&[0x74, 0x10], Avma(0x1000));
        assert_eq!(stream.step(&branch, Avma(0x1000), Avma(0x2000)), Went::Astray);
        assert_eq!((stream.instructions, stream.gaps), (0, 1));
        assert_eq!(packets(stream)[2..], ["ovf", "fup full:0x2000"]);
    }
}
