//! Models return compression as a processor does it.
//!
//! The model counts the calls since the last PSB that have not returned, and decrements the count
//! with each return. While the count is above 0, it compresses a return to the predicted target.
//!
//! Source: SDM volume 3, "Indirect Transfer Compression for Returns (RET)"; US patent 9442729,
//! claims 1, 3 and 4.
#![allow(clippy::unwrap_used)] // a test's helpers may panic as its tests do

use backtrail_decoder::{Config, Decoder, GapCause, History, Image, Input, Section};
use backtrail_pt::packet::{ExecMode, Tnt};
use backtrail_pt::{Avma, LastIp, Packet, Tid};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `call *%rax` followed by `jmp *%rax`; and `call *%rax` followed by `ret`.
const CALL: u64 = 0x1000;
const CALL_AND_RETURN: u64 = 0x1010;
const RETURN: u64 = 0x1020;
const JUMP: u64 = 0x1030;
const LEN_OF_CALL: u64 = 2;
const JUMP_BEHIND_CALL: u64 = CALL + LEN_OF_CALL;

fn image() -> Arc<Image> {
    let mut image = Image::new();
    for (start, bytes) in [
        (CALL, &[0xff, 0xd0, 0xff, 0xe0][..]),
        (CALL_AND_RETURN, &[0xff, 0xd0, 0xc3]),
        (RETURN, &[0xc3]),
        (JUMP, &[0xff, 0xe0]),
    ] {
        let (start, bytes) = (Avma(start), Arc::new(bytes.to_vec()));
        image.add(Section { start, bytes });
    }
    Arc::new(image)
}

/// A processor that executes and traces.
struct Processor {
    pc: u64,
    /// The predicted targets of returns: as many as decoders keep.
    predicted: Vec<u64>,
    /// The number of calls that have not returned.
    depth: usize,
    trace: Vec<u8>,
    last_ip: LastIp,
    outcomes: u8,
    executed: Vec<Avma>,
}

impl Processor {
    const DEPTH: usize = 64;

    fn new() -> Self {
        let mut processor = Self {
            pc: JUMP,
            predicted: Vec::new(),
            depth: 0,
            trace: Vec::new(),
            last_ip: LastIp::default(),
            outcomes: 0,
            executed: Vec::new(),
        };
        processor.psb();
        processor
    }

    /// Drops all calls.
    fn psb(&mut self) {
        self.depth = 0;
        self.flush();
        self.last_ip.reset();
        let at = self.last_ip.encode(Avma(self.pc));
        for packet in [
            Packet::Psb,
            Packet::ModeExec(ExecMode::LONG),
            Packet::Fup(at),
            Packet::PsbEnd,
        ] {
            packet.write_to(&mut self.trace);
        }
    }

    fn flush(&mut self) {
        if self.outcomes > 0 {
            let all = (1u64 << self.outcomes) - 1;
            Packet::TntShort(Tnt::new(all, self.outcomes).unwrap()).write_to(&mut self.trace);
            self.outcomes = 0;
        }
    }

    fn tip(&mut self, to: u64) {
        self.flush();
        let ip = self.last_ip.encode(Avma(to));
        Packet::Tip(ip).write_to(&mut self.trace);
    }

    /// Executes the next instruction, which goes to `to`. If it is a return and `returns` is set,
    /// it goes to the predicted target.
    fn step(&mut self, to: u64, returns: bool) {
        self.executed.push(Avma(self.pc));
        let mut to = to;
        match self.pc {
            CALL | CALL_AND_RETURN => {
                self.predicted.push(self.pc + LEN_OF_CALL);
                if self.predicted.len() > Self::DEPTH {
                    self.predicted.remove(0);
                }
                self.depth = (self.depth + 1).min(Self::DEPTH);
                self.tip(to);
            }
            JUMP | JUMP_BEHIND_CALL => self.tip(to),
            _ => {
                let predicted = self.predicted.pop();
                let seen = self.depth > 0;
                self.depth = self.depth.saturating_sub(1);
                to = predicted.filter(|_| returns).unwrap_or(to);
                if predicted == Some(to) && seen {
                    self.outcomes += 1;
                    if self.outcomes == 6 {
                        self.flush();
                    }
                } else {
                    self.tip(to);
                }
            }
        }
        self.pc = to;
    }

    fn finish(mut self) -> (Vec<u8>, Vec<Avma>) {
        self.flush();
        Packet::Fup(self.last_ip.encode(Avma(self.pc))).write_to(&mut self.trace);
        Packet::TipPgd(backtrail_pt::packet::IpPayload::Suppressed).write_to(&mut self.trace);
        (self.trace, self.executed)
    }
}

fn decoded(trace: Vec<u8>) -> History {
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace),
        image: image(),
    };
    let decoded = Decoder::new(&Config::default()).decode(&[input], &BTreeMap::new());
    decoded.unwrap().threads.into_iter().next().unwrap()
}

/// A target, whether a return uses the prediction, and whether a PSB comes before.
fn step() -> impl Strategy<Value = (u64, bool, bool)> {
    let to = prop::sample::select(vec![CALL, CALL_AND_RETURN, RETURN, JUMP]);
    (to, prop::bool::weighted(0.8), prop::bool::weighted(0.02))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// Returns go to their recorded targets, whatever other returns did, the first time and the
    /// hundredth.
    #[test]
    fn returns_go_where_they_went(steps in vec(step(), 1..60), times in 1usize..100) {
        let mut processor = Processor::new();
        for _ in 0..times {
            for &(to, returns, psb) in &steps {
                if psb {
                    processor.psb();
                }
                processor.step(to, returns);
            }
        }
        let (trace, executed) = processor.finish();
        let history = decoded(trace);
        let found: Vec<Avma> = history.walk(0).map(|found| found.pc).collect();
        prop_assert_eq!(found.len(), executed.len());
        prop_assert_eq!(found, executed);
        let gaps: Vec<&GapCause> = history.gaps().map(|(_, gap)| &gap.cause).collect();
        prop_assert_eq!(gaps, vec![&GapCause::Start]);
    }
}
