//! Conditional branches, and the sides by which they leave the likely way.

use super::{Fetch, Flow, Next, Original, Saved, State, Translator};
use crate::translate::event::{self, Event, NO_OUTCOMES};
use iced_x86::{ConditionCode, Instruction};

/// Most instructions of a side.
const MAX_SIDE: usize = 16;
/// Most sides off one another.
const MAX_DEPTH: u8 = 3;
/// A block of so many instructions gets no more sides.
const MAX_WIDE: usize = 128;

/// The side of a conditional branch that is not likely.
#[derive(Clone, Copy)]
pub(super) struct Side {
    /// Where the distance of the jump is that leads to it.
    distance: usize,
    /// The branch.
    ip: u64,
    /// Outcomes that wait, with its own.
    outcomes: u8,
    /// Where the log stands.
    told: u64,
    target: u64,
    /// [`Translator::depth`] of the branch.
    depth: u8,
}

impl Translator {
    /// A conditional branch: what is likely comes next, the other way behind the rest.
    ///
    /// Likely is what compilers mean: a branch backward closes a loop, one forward is the exception.
    pub(super) fn branch(&mut self, original: &Original<'_>, target: u64) -> Flow {
        let (ip, next) = (original.ip, original.next());
        let condition = condition(&original.instruction);
        let taken = target <= ip && condition.is_some();
        let (likely, other) = if taken { (target, next) } else { (next, target) };
        let distance = match condition {
            Some(condition) => {
                // Its lowest bit inverts a condition (SDM volume 2, "Condition Test").
                self.out.bytes(&[0x0f, 0x80 | condition ^ u8::from(taken)]);
                self.out.distance()
            }
            None => self.short_branch(original, target),
        };
        self.sides.push(Side {
            distance,
            ip,
            outcomes: event::with_outcome(self.outcomes, !taken),
            told: self.told,
            target: other,
            depth: self.depth,
        });
        self.outcomes = event::with_outcome(self.outcomes, taken);
        self.quiet = false;
        self.block.successors.push(other);
        let again = self.block.source.has(likely);
        if event::count(self.outcomes) == event::MAX_OUTCOMES {
            self.log_outcomes(ip, Next::At(likely), self.outcomes);
            if again {
                self.link(ip, likely);
                return Flow::End;
            }
        }
        Flow::GoOn(likely)
    }

    /// `LOOP` and `JRCXZ` reach no further than a byte: over a jump, whose distance is where this says.
    fn short_branch(&mut self, original: &Original<'_>, target: u64) -> usize {
        let (ip, next) = (original.ip, original.next());
        let short = original.bytes.split_last().map_or(&[][..], |(_, rest)| rest);
        self.out.bytes(short);
        self.out.bytes(&[2]);
        let done = |outcomes, next| State::Done {
            saved: Saved::NONE,
            event: Some(Event::Outcomes(outcomes)),
            next: Next::At(next),
        };
        let waiting = std::mem::replace(&mut self.outcomes, NO_OUTCOMES);
        self.place(ip, done(event::with_outcome(waiting, false), next));
        self.out.bytes(&[0xeb, 5]);
        self.place(ip, done(event::with_outcome(waiting, true), target));
        self.out.bytes(&[0xe9]);
        self.outcomes = waiting;
        self.out.distance()
    }

    /// Writes the sides of all branches. Each leaves the block, but those of a wide one go on for a while:
    /// their outcomes wait for the next event.
    pub(super) fn write_sides(&mut self, fetch: &mut Fetch<'_>) {
        let mut done = 0;
        while let Some(side) = self.sides.get(done).copied() {
            done += 1;
            let here = self.out.len();
            self.out.lead(side.distance, here);
            self.told = side.told;
            self.depth = side.depth + 1;
            let goes_on = self.style.wide
                && side.depth < MAX_DEPTH
                && self.written < MAX_WIDE
                && event::count(side.outcomes) < event::MAX_OUTCOMES;
            if goes_on {
                self.outcomes = side.outcomes;
                self.follow_from(side.target, MAX_SIDE, fetch);
            } else {
                self.log_outcomes(side.ip, Next::At(side.target), side.outcomes);
                self.link(side.ip, side.target);
            }
        }
    }
}

/// The condition of a `Jcc` as its opcode has it; `None` for `LOOP` and `JRCXZ`.
fn condition(instruction: &Instruction) -> Option<u8> {
    if !instruction.is_jcc_short_or_near() {
        return None;
    }
    Some(match instruction.condition_code() {
        ConditionCode::o => 0,
        ConditionCode::no => 1,
        ConditionCode::b => 2,
        ConditionCode::ae => 3,
        ConditionCode::e => 4,
        ConditionCode::ne => 5,
        ConditionCode::be => 6,
        ConditionCode::a => 7,
        ConditionCode::s => 8,
        ConditionCode::ns => 9,
        ConditionCode::p => 10,
        ConditionCode::np => 11,
        ConditionCode::l => 12,
        ConditionCode::ge => 13,
        ConditionCode::le => 14,
        ConditionCode::g => 15,
        ConditionCode::None => return None,
    })
}
