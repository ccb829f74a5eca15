//! The compact history of one thread.

mod build;
mod flow;
mod paused_values;
mod postings;
mod search;

pub use build::HistoryBuilder;
pub use paused_values::PausedValues;

use crate::clock::Clock;
use crate::{BlockId, Digest, Gap, Instruction, Mark, MarkKind, TimeEstimate, Version, Walker};
use backtrail_pt::{Avma, Cpu, Tid, Tsc};
pub(crate) use flow::{Flow, FlowPosition};
use std::ops::Range;
use std::sync::Arc;

/// The execution of one thread: its instructions in order, the marks between them, and their times.
///
/// A history consists of a table of distinct blocks (24 bytes per distinct instruction) and a table
/// of distinct paths over them. Each execution of a path is a `u32`, plus 1/8 byte of index. The
/// engine chooses how many blocks a path has; `cargo xtask bench decode` shows the resulting bytes
/// per instruction. The first search for addresses adds an index of the executions of each block.
#[derive(Clone, Debug)]
pub struct History {
    pub(crate) tid: Tid,
    pub(crate) flow: Arc<Flow>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) paused_values: PausedValues,
    pub(crate) clock: Clock,
    /// The first index on each processor; ascending.
    pub(crate) cpus: Vec<(u64, Cpu)>,
    /// The first index in each version of the code; ascending by index.
    pub(crate) versions: Vec<(u64, Version)>,
    pub(crate) errors: u64,
    pub(crate) end: Option<Avma>,
}

/// A value that the program wrote into its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ptwrite {
    /// The instruction after it.
    pub index: u64,
    /// The operand of `PTWRITE`.
    pub value: u64,
}

impl History {
    /// Histories of one thread that were decoded from different starts keep different stamps. Their
    /// times of an instruction differ by less than this many ticks.
    pub const TIME_SLACK: u64 = Clock::LEAP;

    /// Returns the thread.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Returns the number of instructions.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.flow.len()
    }

    /// Returns whether it has no instruction.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of instruction `index`. For `index == len` it is the thread's address at
    /// the end, if the trace has it.
    #[must_use]
    pub fn pc(&self, index: u64) -> Option<Avma> {
        if index == self.len() {
            return self.end;
        }
        self.instruction(index).map(|instruction| instruction.pc)
    }

    /// Returns instruction `index`.
    #[must_use]
    pub fn instruction(&self, index: u64) -> Option<Instruction> {
        self.flow.instruction(self.flow.position(index)?)
    }

    /// Returns a cursor before instruction `from`, or at the end.
    #[must_use]
    pub fn walk(&self, from: u64) -> Walker<'_> {
        Walker::new(&self.flow, from)
    }

    /// Returns all marks, by index.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Returns the marks with an index in the range.
    #[must_use]
    pub fn marks_in(&self, range: Range<u64>) -> &[Mark] {
        let first = self.marks.partition_point(|mark| mark.index < range.start);
        let end = self.marks.partition_point(|mark| mark.index < range.end);
        self.marks.get(first..end).unwrap_or(&[])
    }

    /// Returns all gaps, each with the index of the next instruction.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, &Gap)> + '_ {
        self.marks.iter().filter_map(|mark| match &mark.kind {
            MarkKind::Gap(gap) => Some((mark.index, gap)),
            _ => None,
        })
    }

    /// Returns the first gap between the positions `from` and `to`, in either direction.
    #[must_use]
    pub fn gap_between(&self, from: u64, to: u64) -> Option<(u64, &Gap)> {
        // A gap at the lower end is before it; one at the upper end is crossed.
        let (low, high) = (from.min(to), from.max(to));
        self.gaps().find(|(index, _)| (low + 1..=high).contains(index))
    }

    /// Returns the time of instruction `index`; `None`: the trace has none.
    #[must_use]
    pub fn time(&self, index: u64) -> Option<TimeEstimate> {
        self.clock.at(index)
    }

    /// Returns the time when `index` instructions had run, before anything that followed, such as
    /// off-CPU time. `None`: the trace has none.
    #[must_use]
    pub fn arrival(&self, index: u64) -> Option<TimeEstimate> {
        self.clock.arrival(index)
    }

    /// Returns the time when instruction `index` was about to run, after anything that preceded it.
    /// `None`: the trace has none.
    #[must_use]
    pub fn departure(&self, index: u64) -> Option<TimeEstimate> {
        self.clock.departure(index)
    }

    /// Returns a guess for drawings, within [`History::departure`]: all instructions between two
    /// stamps took equally long. `None`: there is no earlier stamp.
    #[must_use]
    pub fn interpolated_departure(&self, index: u64) -> Option<Tsc> {
        self.clock.interpolated_departure(index)
    }

    /// Returns a guess for drawings, within [`History::arrival`].
    #[must_use]
    pub fn interpolated_arrival(&self, index: u64) -> Option<Tsc> {
        self.clock.interpolated_arrival(index)
    }

    /// Returns the oldest timestamp; `None`: the trace has no times.
    #[must_use]
    pub fn first_stamp(&self) -> Option<Tsc> {
        self.clock.first()
    }

    /// Returns the last index known to be reached by `tsc`; `None` if all known times are later.
    #[must_use]
    pub fn index_at(&self, tsc: Tsc) -> Option<u64> {
        self.clock.index_at(tsc)
    }

    /// Returns the first index whose time is known to be `tsc` or later, as [`History::time`] has
    /// it. `None` if no stamp is that late.
    #[must_use]
    pub fn first_from(&self, tsc: Tsc) -> Option<u64> {
        self.clock.first_from(tsc)
    }

    /// Returns the processor that ran instruction `index`; `None`: the trace does not show it.
    #[must_use]
    pub fn cpu(&self, index: u64) -> Option<Cpu> {
        let after = self.cpus.partition_point(|&(from, _)| from <= index);
        self.cpus.get(after.checked_sub(1)?).map(|&(_, cpu)| cpu)
    }

    /// Returns the version of the process's code of instruction `index`; for `index == len`, the
    /// version at the end. [`Image::read_version`](crate::Image::read_version) returns its bytes.
    #[must_use]
    pub fn version(&self, index: u64) -> Version {
        let after = self.versions.partition_point(|&(from, _)| from <= index);
        let last = after.checked_sub(1).and_then(|last| self.versions.get(last));
        last.map_or(Version::default(), |&(_, version)| version)
    }

    /// Returns the number of decode errors as libipt counts them. Overflows and disabled tracing
    /// are gaps or marks, not errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns the number of MTC and CYC packets that could not be used, because timing parameters
    /// or calibration were missing.
    #[must_use]
    pub fn lost_time_packets(&self) -> u64 {
        self.clock.lost()
    }

    /// Returns FNV-1a-64 over every instruction pointer as 8 little-endian bytes. Walks all of the
    /// history.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        for instruction in self.walk(0) {
            digest.push(instruction.pc);
        }
        digest.value()
    }

    /// Returns the values that the program wrote into its trace, in order.
    pub fn ptwrites(&self) -> impl Iterator<Item = Ptwrite> + '_ {
        self.marks.iter().filter_map(|mark| match mark.kind {
            MarkKind::Ptwrite(value) => Some(Ptwrite {
                index: mark.index,
                value,
            }),
            _ => None,
        })
    }

    /// Returns the values that were written while tracing was off between two instructions. They
    /// are no marks.
    #[must_use]
    pub fn paused_values(&self) -> &PausedValues {
        &self.paused_values
    }

    /// Returns the distinct blocks, each with its number of executions. Counts all executions.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, u64)> + '_ {
        self.flow
            .counts()
            .into_iter()
            .enumerate()
            .map(|(id, count)| (BlockId(id as u32), count))
    }

    /// Returns the executed blocks in order, each with the index of its first instruction.
    pub fn executed_blocks(&self) -> impl Iterator<Item = (BlockId, u64)> + '_ {
        let mut next = 0;
        self.flow.executed_blocks().map(move |(block, instructions)| {
            let first = next;
            next += instructions;
            (block, first)
        })
    }

    /// Returns the instructions of a block of this history.
    pub fn block(&self, id: BlockId) -> impl Iterator<Item = Instruction> + '_ {
        (0..self.flow.blocks.code(id).len()).filter_map(move |at| self.flow.blocks.instruction(id, at))
    }

    /// Returns a version of the code that has the bytes of a block. Every execution of the block
    /// had these bytes.
    #[must_use]
    pub fn block_version(&self, id: BlockId) -> Version {
        self.flow.blocks.version(id)
    }

    /// Returns the distinct addresses executed, ascending.
    #[must_use]
    pub fn executed_pcs(&self) -> Vec<Avma> {
        let blocks = (0..self.flow.blocks.len()).map(|id| BlockId(id as u32));
        let mut pcs: Vec<Avma> = blocks
            .flat_map(|id| self.block(id).map(|found| found.pc))
            .collect();
        pcs.sort_unstable();
        pcs.dedup();
        pcs
    }

    /// Returns whether the last instructions equal those of a shorter history of the thread.
    /// Compares some thousands of them.
    #[must_use]
    pub fn ends_with(&self, shorter: &Self) -> bool {
        const LOOKED_AT: u64 = 4096;
        let Some(more) = self.len().checked_sub(shorter.len()) else {
            return false;
        };
        let step = (shorter.len() / LOOKED_AT).max(1);
        (0..shorter.len())
            .step_by(usize::try_from(step).unwrap_or(usize::MAX))
            .all(|index| self.pc(more + index) == shorter.pc(index))
    }

    /// Returns the bytes in use, including the search index once there is one.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.flow.memory() + self.clock.memory() + size_of_val(&*self.marks) + self.paused_values.memory()
    }
}
