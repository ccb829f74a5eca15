//! What one thread executed, compactly.

mod build;
mod flow;
mod postings;
mod search;

pub use build::HistoryBuilder;

use crate::clock::Clock;
use crate::{BlockId, Digest, Gap, Instruction, Mark, MarkKind, TimeEstimate, Version, Walker};
use backtrail_pt::{Avma, Cpu, Tid, Tsc};
pub(crate) use flow::{Flow, Place};
use std::ops::Range;
use std::sync::Arc;

/// What one thread executed: its instructions in order, the marks between them, and when they ran.
///
/// Kept as a table of distinct blocks (24 bytes a distinct instruction), one of distinct paths over them,
/// and a `u32` for each execution of a path, with its eighth of a byte of index. How many blocks a path
/// has is the engine's choice: `cargo xtask bench decode` shows the bytes an instruction that come of it.
/// The first search for addresses adds an index of which blocks were executed where.
#[derive(Clone, Debug)]
pub struct History {
    pub(crate) tid: Tid,
    pub(crate) flow: Arc<Flow>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) clock: Clock,
    /// From which index on, on which processor; ascending.
    pub(crate) cpus: Vec<(u64, Cpu)>,
    /// From which index on, in which version of the code; ascending in the index.
    pub(crate) versions: Vec<(u64, Version)>,
    pub(crate) errors: u64,
    pub(crate) end: Option<Avma>,
}

/// A value the program put into its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ptwrite {
    /// The instruction before which it came.
    pub index: u64,
    /// The operand of `PTWRITE`.
    pub value: u64,
}

impl History {
    /// The thread.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// How many instructions it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.flow.len()
    }

    /// It has no instruction.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of instruction `index`; for `index == len`, where the trace says the thread stood
    /// at its end, if it does.
    #[must_use]
    pub fn pc(&self, index: u64) -> Option<Avma> {
        if index == self.len() {
            return self.end;
        }
        self.instruction(index).map(|instruction| instruction.pc)
    }

    /// Instruction `index`.
    #[must_use]
    pub fn instruction(&self, index: u64) -> Option<Instruction> {
        self.flow.instruction(self.flow.place(index)?)
    }

    /// A cursor over the instructions, standing before `from` (or at the end).
    #[must_use]
    pub fn walk(&self, from: u64) -> Walker<'_> {
        Walker::new(&self.flow, from)
    }

    /// All marks, by index.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The marks with an index in the range.
    #[must_use]
    pub fn marks_in(&self, range: Range<u64>) -> &[Mark] {
        let first = self.marks.partition_point(|mark| mark.index < range.start);
        let end = self.marks.partition_point(|mark| mark.index < range.end);
        self.marks.get(first..end).unwrap_or(&[])
    }

    /// All gaps, each with the index it is before.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, &Gap)> + '_ {
        self.marks.iter().filter_map(|mark| match &mark.kind {
            MarkKind::Gap(gap) => Some((mark.index, gap)),
            _ => None,
        })
    }

    /// The first gap passed on the way from before `from` to before `to`, in either direction.
    #[must_use]
    pub fn gap_between(&self, from: u64, to: u64) -> Option<(u64, &Gap)> {
        // A gap at the lower end is before it, one at the upper end is crossed.
        let (low, high) = (from.min(to), from.max(to));
        self.gaps().find(|(index, _)| (low + 1..=high).contains(index))
    }

    /// When instruction `index` ran; `None`: the trace does not say.
    #[must_use]
    pub fn time(&self, index: u64) -> Option<TimeEstimate> {
        self.clock.at(index)
    }

    /// When `index` instructions had run; what came in before the next one, such as a time off the processor, was still to
    /// come. `None`: the trace does not say.
    #[must_use]
    pub fn arrival(&self, index: u64) -> Option<TimeEstimate> {
        self.clock.arrival(index)
    }

    /// When instruction `index` was about to run: what came in before it was over. `None`: the trace does not say.
    #[must_use]
    pub fn departure(&self, index: u64) -> Option<TimeEstimate> {
        self.clock.departure(index)
    }

    /// A guess for drawings, within the bounds of [`History::departure`]: all instructions between two stamps took equally
    /// long. `None`: no stamp comes before.
    #[must_use]
    pub fn interpolated_departure(&self, index: u64) -> Option<Tsc> {
        self.clock.interpolated_departure(index)
    }

    /// The same within those of [`History::arrival`].
    #[must_use]
    pub fn interpolated_arrival(&self, index: u64) -> Option<Tsc> {
        self.clock.interpolated_arrival(index)
    }

    /// The oldest time stamp of all; `None`: the trace has no times.
    #[must_use]
    pub fn first_stamp(&self) -> Option<Tsc> {
        self.clock.first()
    }

    /// The last index that is known to have been reached by `tsc`; `None` when all of the history
    /// with known times is later.
    #[must_use]
    pub fn index_at(&self, tsc: Tsc) -> Option<u64> {
        self.clock.index_at(tsc)
    }

    /// The processor that ran instruction `index`; `None`: the trace does not say.
    #[must_use]
    pub fn cpu(&self, index: u64) -> Option<Cpu> {
        let after = self.cpus.partition_point(|&(from, _)| from <= index);
        self.cpus.get(after.checked_sub(1)?).map(|&(_, cpu)| cpu)
    }

    /// The version of its process's code that instruction `index` is of; for `index == len`, that at
    /// the end. [`Image::read_version`](crate::Image::read_version) has its bytes.
    #[must_use]
    pub fn version(&self, index: u64) -> Version {
        let after = self.versions.partition_point(|&(from, _)| from <= index);
        let last = after.checked_sub(1).and_then(|last| self.versions.get(last));
        last.map_or(Version::default(), |&(_, version)| version)
    }

    /// How many decode errors libipt returns for this trace. Overflow and switched-off tracing are
    /// gaps or marks, and no errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// MTC and CYC packets that did not help the time, for want of timing parameters or calibration.
    #[must_use]
    pub fn lost_time_packets(&self) -> u64 {
        self.clock.lost()
    }

    /// FNV-1a-64 over every instruction pointer as 8 little-endian bytes. Walks all of the history.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        for instruction in self.walk(0) {
            digest.push(instruction.pc);
        }
        digest.value()
    }

    /// What the program wrote into its trace, in order.
    pub fn ptwrites(&self) -> impl Iterator<Item = Ptwrite> + '_ {
        self.marks.iter().filter_map(|mark| match mark.kind {
            MarkKind::Ptwrite(value) => Some(Ptwrite {
                index: mark.index,
                value,
            }),
            _ => None,
        })
    }

    /// The distinct blocks, each with how often it was executed. Counts all executions.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, u64)> + '_ {
        self.flow
            .counts()
            .into_iter()
            .enumerate()
            .map(|(id, count)| (BlockId(id as u32), count))
    }

    /// The instructions of a block of this history.
    pub fn block(&self, id: BlockId) -> impl Iterator<Item = Instruction> + '_ {
        (0..self.flow.blocks.code(id.0).len()).filter_map(move |at| self.flow.blocks.instruction(id.0, at))
    }

    /// A version of the code that has the bytes of a block of this history. Whenever the block was
    /// executed, it was of these bytes.
    #[must_use]
    pub fn block_version(&self, id: BlockId) -> Version {
        self.flow.blocks.version(id.0)
    }

    /// The distinct addresses executed, ascending.
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

    /// The last instructions are those of another history of the thread, which has fewer: looks at some thousands of them.
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

    /// Bytes of memory in use; with the index of searches, once there is one.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.flow.memory() + self.clock.memory() + size_of_val(&*self.marks)
    }
}
