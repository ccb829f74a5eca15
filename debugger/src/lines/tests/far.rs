//! Searches find what a walk over each instruction finds, in random histories with long loops.

use super::*;
use backtrail_decoder::CallId;

/// Functions of 256 bytes from 0x100 on; the last two have no lines, the last has no symbol either.
const FUNCTIONS: u64 = 5;

struct Dice(u64);

impl Dice {
    /// xorshift64.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// In each function two copies next to each other, the second with one in it.
struct Random;

impl Lines for Random {
    fn statement(&self, at: CodePoint) -> Option<Statement> {
        let pc = at.pc;
        let has_lines = pc.0 >> 8 <= FUNCTIONS - 2;
        // Some code of a line is none of its statement, and some lines are of one instruction.
        (has_lines && pc.0 % 7 != 3).then(|| Statement {
            chain: self.chain(at),
            line: LineId::of_number((pc.0 >> 3) as u32),
        })
    }

    fn chain(&self, at: CodePoint) -> ChainId {
        ChainId::of_number(match at.pc.0 & 0xf0 {
            0x20 | 0x30 => 1,
            0x60 | 0x90 => 2,
            0x70 | 0x80 => 3,
            _ => 0,
        })
    }

    fn function(&self, at: CodePoint) -> Vec<Range<Avma>> {
        self.range_of(at.pc).into_iter().collect()
    }

    fn module(&self, _: CodePoint) -> Option<Range<Avma>> {
        None
    }

    fn around(&self, chain: ChainId) -> Option<ChainId> {
        match chain {
            _ if chain == ChainId::of_number(3) => Some(ChainId::of_number(2)),
            _ => (chain != ChainId::default()).then(ChainId::default),
        }
    }
}

impl Functions for Random {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let start = Avma(pc.0 & !0xff);
        Some(start..start + 0x100)
    }
}

/// A history of loops, calls and returns: of 16 instructions one is a call and one jumps, in each
/// function one returns.
fn history(seed: u64) -> History {
    let mut dice = Dice(seed);
    let mut builder = HistoryBuilder::new(Tid(1));
    let mut stack = Vec::new();
    let mut pc = 0x100;
    for _ in 0..40_000 {
        let (next, cofi) = match pc & 0xf {
            0x5 => {
                let target = ((pc >> 4) % FUNCTIONS + 1) << 8;
                if stack.len() > 12 || dice.below(4) > 0 {
                    (pc + 1, Cofi::Sequential)
                } else {
                    stack.push(pc + 1);
                    (target, Cofi::Call { target: Avma(target) })
                }
            }
            0xf if pc & 0xf0 == 0xf0 => (stack.pop().unwrap_or(0x100), Cofi::Return),
            0xf => {
                // Mostly once more, sometimes elsewhere in the function.
                let again = dice.below(1 << (pc >> 4 & 7)) > 0;
                let place = if again {
                    pc & !0xf
                } else {
                    pc & !0xff | dice.below(16) << 4
                };
                (place, Cofi::IndirectJump)
            }
            _ => (pc + 1, Cofi::Sequential),
        };
        // An address has one meaning: a call that is not made is left out.
        if pc & 0xf != 0x5 || cofi != Cofi::Sequential {
            builder.instruction(Avma(pc), 1, cofi);
        }
        pc = next;
    }
    builder.finish()
}

/// The definitions, walked.
struct Walked<'a>(&'a LineStarts<'a>);

impl Walked<'_> {
    fn before(&self, call: CallId, index: u64) -> Option<u64> {
        (0..index)
            .rev()
            .find(|&at| self.0.forest.call_at(at) == Some(call))
    }

    fn root(&self, frame: FrameKey) -> Call {
        let root = self.0.forest.ancestors(frame.call).last().unwrap();
        self.0.forest.call(root)
    }

    fn is_start_around(&self, at: u64, frame: FrameKey, starts: &[bool]) -> bool {
        starts[at as usize] && self.is_around(frame, self.0.frame(at).unwrap())
    }

    fn next(&self, from: u64, frame: FrameKey, starts: &[bool]) -> Option<u64> {
        let end = self.root(frame).end;
        let within = (from + 1..end).find(|&at| self.is_start_around(at, frame, starts));
        within.or_else(|| {
            // Nothing is known around the root: its successor begins with any line, or counts as
            // the frame from there on.
            let after = self.0.frame(end).filter(|_| end < self.0.history.len())?;
            starts[end as usize]
                .then_some(end)
                .or_else(|| self.next(end, after, starts))
        })
    }

    fn previous(&self, from: u64, frame: FrameKey, starts: &[bool]) -> Option<u64> {
        let first = self.root(frame).first;
        let mut within = (first..from).rev();
        let within = within.find(|&at| self.is_start_around(at, frame, starts));
        within.or_else(|| self.previous(first, self.0.frame(first.checked_sub(1)?)?, starts))
    }

    /// `inner` is within `outer`.
    fn is_around(&self, inner: FrameKey, outer: FrameKey) -> bool {
        let mut at = Some(inner);
        while let Some(frame) = at {
            if frame.call == outer.call {
                return self.0.lines.is_within(frame.chain, outer.chain);
            }
            at = self.0.caller(frame);
        }
        false
    }
}

#[test]
fn searches_find_what_walks_find() {
    for seed in 1..=4 {
        let history = history(seed);
        let forest = Forest::build(&history, &Random, &Watch::none()).unwrap();
        let watch = Watch::none();
        let statements = Statements::default();
        let lines = LineStarts {
            history: &history,
            is_partial: false,
            forest: &forest,
            lines: &Random,
            statements: &statements,
            filter: None,
            watch: &watch,
        };
        let walked = Walked(&lines);
        let len = history.len();
        let starts: Vec<bool> = (0..len).map(|at| lines.is_start(at).unwrap()).collect();
        let mut dice = Dice(seed);
        for _ in 0..200 {
            let from = dice.below(len);
            let after = (from + 1..len).find(|&at| starts[at as usize]);
            assert_eq!(
                lines.next_start(from, len).unwrap(),
                after,
                "{seed}: step from {from}"
            );
            let before = (0..from).rev().find(|&at| starts[at as usize]);
            assert_eq!(
                lines.previous_start(from, 0).unwrap(),
                before,
                "{seed}: reverse-step from {from}"
            );
            let frame = lines.frame(from).unwrap();
            let call = forest.call(frame.call);
            let own = walked.before(frame.call, from);
            let found = OwnInstructions::new(&lines, frame.call, from, |_| true)
                .previous(0)
                .unwrap();
            assert_eq!(found, own, "{seed}: {call:?} before {from}");
            let next = walked.next(from, frame, &starts);
            assert_eq!(
                lines.next_in_frame(from, frame, len).unwrap(),
                next,
                "{seed}: next from {from}"
            );
            let previous = walked.previous(from, frame, &starts);
            assert_eq!(
                lines.previous_in_frame(from, frame, 0).unwrap(),
                previous,
                "{seed}: reverse-next from {from}"
            );
        }
    }
}
