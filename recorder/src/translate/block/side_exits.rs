//! Conditional branches, and the side exits in their unlikely direction.

use super::{
    Fetch, Flow, InstructionState, NextIp, SideExit, SourceInstruction, SpilledRegisters, Translator,
};
use crate::translate::event::{self, LogEvent, NO_OUTCOMES};
use iced_x86::{ConditionCode, Instruction};

/// The maximum number of instructions on a side exit.
const MAX_SIDE_EXIT: usize = 16;
/// The maximum nesting of side exits.
const MAX_DEPTH: u8 = 3;
/// Side exits of a block with this many instructions are not extended.
const MAX_SUPERBLOCK: usize = 128;
/// The same, if calls of functions are logged: their returns are longer.
const MAX_WATCHED_SUPERBLOCK: usize = 64;

impl Translator<'_> {
    /// Translates a conditional branch: the likely direction follows at once, and the side exit
    /// after the rest of the block.
    ///
    /// As compilers assume, a backward branch closes a loop and is likely, and a forward branch is
    /// unlikely.
    pub(super) fn branch(&mut self, original: &SourceInstruction<'_>, target: u64) -> Flow {
        let (ip, next) = (original.ip, original.next());
        let condition = condition(&original.instruction);
        let taken = target <= ip && condition.is_some();
        let (likely, other) = if taken { (target, next) } else { (next, target) };
        let rel32 = match condition {
            Some(condition) => {
                // The lowest bit of the opcode inverts the condition (SDM volume 2, "Condition
                // Test").
                self.out.bytes(&[0x0f, 0x80 | condition ^ u8::from(taken)]);
                self.out.reserve_rel32()
            }
            None => self.short_branch(original, target),
        };
        self.side_exits.push(SideExit {
            rel32,
            ip,
            outcomes: event::with_outcome(self.outcomes, !taken),
            logged_ip: self.logged_ip,
            target: other,
            depth: self.depth,
            staged: self.staged,
        });
        self.outcomes = event::with_outcome(self.outcomes, taken);
        self.packetless = false;
        self.block.successors.push(other);
        let again = self.block.source.has(likely);
        if event::count(self.outcomes) == event::MAX_OUTCOMES {
            self.log_outcomes(ip, NextIp::At(likely), self.outcomes);
            if again {
                self.link(ip, likely);
                return Flow::EndBlock;
            }
        }
        Flow::ContinueAt(likely)
    }

    /// Translates `LOOP` and `JRCXZ`, which have only a short displacement: they skip a near jump.
    /// Returns the offset of the displacement of that jump.
    fn short_branch(&mut self, original: &SourceInstruction<'_>, target: u64) -> usize {
        let (ip, next) = (original.ip, original.next());
        let short = original.bytes.split_last().map_or(&[][..], |(_, rest)| rest);
        self.out.bytes(short);
        self.out.bytes(&[2]);
        let done = |outcomes, next| InstructionState::Done {
            spilled: SpilledRegisters::NONE,
            event: Some(LogEvent::Outcomes(outcomes)),
            next: NextIp::At(next),
        };
        let waiting = std::mem::replace(&mut self.outcomes, NO_OUTCOMES);
        self.record(ip, done(event::with_outcome(waiting, false), next));
        self.out.bytes(&[0xeb, 5]);
        self.record(ip, done(event::with_outcome(waiting, true), target));
        self.out.bytes(&[0xe9]);
        self.outcomes = waiting;
        self.out.reserve_rel32()
    }

    /// Writes the side exits of all branches. Each leaves the block. In a superblock they first
    /// continue for some instructions, and their outcomes are logged with the next event.
    pub(super) fn write_side_exits(&mut self, fetch: &mut Fetch<'_>) {
        let longest = match self.watched {
            Some(_) => MAX_WATCHED_SUPERBLOCK,
            None => MAX_SUPERBLOCK,
        };
        while let Some(side) = self.side_exits.get(self.exits_written).copied() {
            self.exits_written += 1;
            let here = self.out.len();
            self.out.patch_rel32(side.rel32, here);
            self.logged_ip = side.logged_ip;
            self.depth = side.depth + 1;
            self.staged = side.staged;
            let goes_on = self.options.superblock
                && side.depth < MAX_DEPTH
                && self.written < longest
                && !self.is_long()
                && event::count(side.outcomes) < event::MAX_OUTCOMES;
            if goes_on {
                self.outcomes = side.outcomes;
                self.follow_from(side.target, MAX_SIDE_EXIT, fetch);
            } else {
                self.log_outcomes(side.ip, NextIp::At(side.target), side.outcomes);
                self.link(side.ip, side.target);
            }
        }
    }
}

/// Returns the condition code of a `Jcc`, or `None` for `LOOP` and `JRCXZ`.
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
