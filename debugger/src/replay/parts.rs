//! Parts of segments: the units of searches. A part is replayed alone, from its beginning.

use super::accesses::Accesses;
use super::run::Run;
use super::segments::ReplaySegment;
use super::summary::{AccessedWords, PartSummary};
use super::{CHECKPOINT, ExecutedPath, ReplayGap, ThreadReplay};
use backtrail_decoder::Watch;
use backtrail_semantics::State;
use std::ops::Range;
use std::rc::Rc;

/// The most instructions of a part. A replay of these takes a few milliseconds.
const PART: u64 = 1 << 16;
/// The accesses that are kept, in bytes.
pub const MAX_ACCESSES: usize = 256 << 20;

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first instruction.
    pub start: u64,
    /// The first instruction after it.
    pub end: u64,
    /// The number of the segment.
    pub segment: usize,
}

/// The registers at both ends of a replayed segment.
#[derive(Debug)]
pub struct SegmentEnds {
    /// The registers at the beginning.
    pub start: State,
    /// The registers at the end of what was replayed.
    pub end: State,
    /// The instruction before which the replay ended.
    pub reached: u64,
    /// Whether the whole segment was replayed.
    pub is_complete: bool,
}

/// Splits segments into parts. Each segment has one at least.
pub fn split(segments: &[ReplaySegment]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        let mut start = segment.start;
        loop {
            let end = segment.end.min(start.saturating_add(PART));
            parts.push(Part {
                start,
                end,
                segment: number,
            });
            if end >= segment.end {
                break;
            }
            start = end;
        }
    }
    parts
}

impl ThreadReplay {
    /// Returns the number of the part that has the memory before instruction `index`.
    pub(super) fn part_at(&self, index: u64) -> Option<usize> {
        let after = self.parts.partition_point(|part| part.start <= index);
        let number = after.checked_sub(1)?;
        (index <= self.parts.get(number)?.end).then_some(number)
    }

    /// Returns the end of the segment of a part.
    pub(super) fn end_of_segment(&self, part: &Part) -> u64 {
        let segment = self.segments.get(part.segment);
        segment.map_or(part.end, |segment| segment.end)
    }

    /// Returns whether a part is not the first one of its segment.
    pub(super) fn is_inner(&self, number: usize) -> bool {
        let part = |number: usize| self.parts.get(number).map(|part| part.segment);
        number.checked_sub(1).and_then(part) == part(number)
    }

    /// Returns whether nothing happened between the end of the part before and the beginning of a
    /// part. Parts of one segment go on, even if the replay ends in one of them.
    pub(super) fn part_continues(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<bool, ReplayGap> {
        if self.is_inner(number) {
            return Ok(true);
        }
        match self.parts.get(number) {
            Some(part) => self.continues(part.segment, path, watch),
            None => Ok(false),
        }
    }

    /// Returns the summary of a part.
    pub(super) fn summary_of(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<Rc<PartSummary>, ReplayGap> {
        if let Some(known) = self.summaries.borrow().get(&number) {
            return Ok(known.clone());
        }
        let part = self.parts.get(number).ok_or(ReplayGap::NotRecorded)?;
        self.ends_of(part.segment, path, watch)?;
        self.summaries
            .borrow()
            .get(&number)
            .cloned()
            .ok_or(ReplayGap::NotRecorded)
    }

    /// Replays a segment once. Keeps the summaries of its parts, and the runs at their beginnings.
    pub(super) fn ends_of(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<Rc<SegmentEnds>, ReplayGap> {
        if let Some(known) = self.ends.borrow().get(&number) {
            return Ok(known.clone());
        }
        let mut run = self.begin(number)?;
        let start = run.state().clone();
        let mut is_complete = true;
        for of_segment in self.parts_of(number) {
            let Some(part) = self.parts.get(of_segment) else {
                break;
            };
            let mut words = AccessedWords::default();
            if is_complete {
                self.keep(number, &run);
                is_complete = match run.forward_to(part.end, self, path, watch, &mut words) {
                    Ok(()) => true,
                    Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
                    Err(_) => false,
                };
            }
            let summary = Rc::new(words.into_summary(is_complete));
            self.summaries.borrow_mut().insert(of_segment, summary);
        }
        let ends = Rc::new(SegmentEnds {
            start,
            end: run.state().clone(),
            reached: run.index(),
            is_complete,
        });
        self.ends.borrow_mut().insert(number, ends.clone());
        Ok(ends)
    }

    /// Returns the accesses of a part. If the replay fails in it, those before.
    pub(super) fn accesses_of(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<Rc<Accesses>, ReplayGap> {
        if let Some(known) = self.accesses.borrow_mut().get(number) {
            return Ok(known);
        }
        let part = self.parts.get(number).ok_or(ReplayGap::NotRecorded)?;
        let ends = self.ends_of(part.segment, path, watch)?;
        let mut accesses = Accesses::default();
        accesses.reached = ends.reached.min(part.start);
        if ends.reached >= part.start {
            let mut run = self.run_at(part.segment, part.start, path, watch)?;
            match run.forward_to(part.end, self, path, watch, &mut accesses) {
                Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
                Ok(()) | Err(_) => accesses.reached = run.index(),
            }
        }
        let accesses = Rc::new(accesses);
        let size = accesses.size();
        self.accesses.borrow_mut().add(number, accesses.clone(), size);
        Ok(accesses)
    }

    /// Returns a run of a segment at an instruction, from the nearest checkpoint before it.
    pub(super) fn run_at(
        &self,
        number: usize,
        index: u64,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<Run, ReplayGap> {
        let nearest = self.checkpoints.borrow().nearest(number, index);
        let mut run = match nearest {
            Some(checkpoint) => Run::resume(&checkpoint, self.content_of(number)?),
            None => self.begin(number)?,
        };
        while run.index() < index {
            let next = (run.index() / CHECKPOINT + 1) * CHECKPOINT;
            run.forward_to(next.min(index), self, path, watch, &mut ())?;
            self.keep(number, &run);
        }
        Ok(run)
    }

    fn parts_of(&self, segment: usize) -> Range<usize> {
        let first = self.parts.partition_point(|part| part.segment < segment);
        let after = self.parts.partition_point(|part| part.segment <= segment);
        first..after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_split_into_parts_of_the_same_size() {
        let segment = |start, end| ReplaySegment {
            start,
            end,
            in_log: 0,
        };
        let parts = split(&[
            segment(10, 10),
            segment(10, 10 + 2 * PART),
            segment(3 * PART, 4 * PART + 1),
        ]);
        let found: Vec<_> = parts
            .iter()
            .map(|part| (part.start, part.end, part.segment))
            .collect();
        let expected = [
            (10, 10, 0),
            (10, 10 + PART, 1),
            (10 + PART, 10 + 2 * PART, 1),
            (3 * PART, 4 * PART, 2),
            (4 * PART, 4 * PART + 1, 2),
        ];
        assert_eq!(found, expected);
    }
}
