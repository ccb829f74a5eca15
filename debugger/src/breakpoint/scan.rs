//! The instructions of a set of addresses, one after the other: walked to where they are near,
//! searched for where they are not.

use crate::error::Result;
use crate::lines::LineStarts;
use backtrail_decoder::{PcSet, Walker};

/// Instructions to walk over before a search: they take about as long as one.
const NEAR: u32 = 4096;

/// A way through a history in one direction that stops at each instruction of a set.
pub struct Scan<'a> {
    lines: &'a LineStarts<'a>,
    pcs: &'a PcSet,
    from: u64,
    walker: Walker<'a>,
    /// Instructions walked over since the last of the set.
    outside: u32,
}

impl<'a> Scan<'a> {
    /// Returns a scan that starts before instruction `from`.
    pub fn new(lines: &'a LineStarts<'a>, pcs: &'a PcSet, from: u64) -> Self {
        Self {
            lines,
            pcs,
            from,
            walker: lines.history.walk(from),
            outside: NEAR,
        }
    }

    /// Steps over the next instruction of the set that is before `end`, and gives its index.
    ///
    /// # Errors
    /// When canceled.
    pub fn next(&mut self, end: u64) -> Result<Option<u64>> {
        loop {
            let index = self.walker.index();
            if index >= end {
                return Ok(None);
            }
            if self.outside >= NEAR {
                self.lines.before_search(self.from, index)?;
                self.outside = 0;
                let found = self.lines.history.next_at(index, self.pcs);
                let Some(found) = found.filter(|&found| found < end) else {
                    return Ok(None);
                };
                self.walker = self.lines.history.walk(found);
                continue;
            }
            self.lines.passed(self.from, index)?;
            let Some(instruction) = self.walker.next() else {
                return Ok(None);
            };
            self.outside += 1;
            if self.pcs.contains(instruction.pc) {
                self.outside = 0;
                return Ok(Some(index));
            }
        }
    }

    /// Steps backward over the last instruction of the set that is at `low` or after, and gives its
    /// index.
    ///
    /// # Errors
    /// When canceled.
    pub fn previous(&mut self, low: u64) -> Result<Option<u64>> {
        loop {
            let index = self.walker.index();
            if index <= low {
                return Ok(None);
            }
            if self.outside >= NEAR {
                self.lines.before_search(self.from, index)?;
                self.outside = 0;
                let found = self.lines.history.prev_at(index, self.pcs);
                let Some(found) = found.filter(|&found| found >= low) else {
                    return Ok(None);
                };
                self.walker = self.lines.history.walk(found + 1);
                continue;
            }
            self.lines.passed(self.from, index)?;
            let Some(instruction) = self.walker.prev() else {
                return Ok(None);
            };
            self.outside += 1;
            if self.pcs.contains(instruction.pc) {
                self.outside = 0;
                return Ok(Some(self.walker.index()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{ChainId, CodePoint, Lines, Statement};
    use crate::lines::Statements;
    use backtrail_decoder::{Forest, HistoryBuilder, Sink, Watch};
    use backtrail_pt::{Avma, Cofi, Tid};
    use std::sync::atomic::{AtomicBool, Ordering};

    struct NoLines;

    impl Lines for NoLines {
        fn statement(&self, _: CodePoint) -> Option<Statement> {
            None
        }

        fn chain(&self, _: CodePoint) -> ChainId {
            ChainId::default()
        }

        fn function(&self, _: CodePoint) -> Vec<std::ops::Range<Avma>> {
            Vec::new()
        }

        fn module(&self, _: CodePoint) -> Option<std::ops::Range<Avma>> {
            None
        }

        fn around(&self, _: ChainId) -> Option<ChainId> {
            None
        }
    }

    #[test]
    fn near_and_far_instructions_are_met_in_both_directions() {
        let wanted = [0, 3, 4, 5000, 5001, 5000 + u64::from(NEAR), 40_000, 59_999];
        let mut builder = HistoryBuilder::new(Tid(1));
        for index in 0..60_000 {
            let pc = if wanted.contains(&index) { 0x20 } else { 0x10 };
            builder.instruction(Avma(pc), 2, Cofi::IndirectJump);
        }
        let history = builder.finish();
        let forest = Forest::build(&history, &(), &Watch::none()).unwrap();
        let cancel = AtomicBool::new(false);
        let watch = Watch {
            cancel: &cancel,
            ..Watch::none()
        };
        let lines = LineStarts {
            history: &history,
            is_partial: false,
            forest: &forest,
            lines: &NoLines,
            statements: &Statements::default(),
            filter: None,
            watch: &watch,
        };
        let pcs = PcSet::from(Avma(0x20));
        let forward = |from, end| {
            let mut scan = Scan::new(&lines, &pcs, from);
            std::iter::from_fn(|| scan.next(end).unwrap()).collect::<Vec<_>>()
        };
        let backward = |from, low| {
            let mut scan = Scan::new(&lines, &pcs, from);
            std::iter::from_fn(|| scan.previous(low).unwrap()).collect::<Vec<_>>()
        };
        let reversed: Vec<u64> = wanted.into_iter().rev().collect();
        assert_eq!(forward(0, 60_000), wanted);
        assert_eq!(backward(60_000, 0), reversed);
        assert_eq!(forward(4, 40_000), wanted[2..6]);
        assert_eq!(backward(40_000, 4), reversed[2..6]);
        assert!(forward(60_000, u64::MAX).is_empty());
        assert!(backward(0, 0).is_empty());

        cancel.store(true, Ordering::Relaxed);
        assert!(Scan::new(&lines, &pcs, 0).next(60_000).is_err());
        assert!(Scan::new(&lines, &pcs, 9).previous(0).is_err());
    }
}
