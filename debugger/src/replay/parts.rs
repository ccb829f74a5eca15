//! Parts of segments: the units of searches. A part is replayed alone, from its beginning.

use super::accesses::Accesses;
use super::effects::Effects;
use super::run::{AccessSink, Run};
use super::segments::ReplaySegment;
use super::summary::PartSummary;
use super::{CHECKPOINT, ExecutedPath, ReplayGap, ThreadReplay};
use backtrail_decoder::Watch;
use backtrail_semantics::State;
use std::rc::Rc;
use std::sync::Arc;

/// The most instructions of a part. A replay of these takes a few milliseconds.
const PART: u64 = 1 << 15;
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

    /// Returns the accesses of a part. If the replay fails in it, those before.
    pub(super) fn accesses_of(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<Arc<Accesses>, ReplayGap> {
        if let Some(known) = self.accesses.borrow_mut().get(number) {
            return Ok(known);
        }
        let part = self.parts.get(number).ok_or(ReplayGap::NotRecorded)?;
        let ends = self.ends_of(part.segment, path, watch)?;
        let mut accesses = Accesses::default();
        accesses.reached = ends.reached.min(part.start);
        if ends.reached >= part.start {
            let mut run = self.run_at(part.segment, part.start, path, watch)?;
            match self.advance(&mut run, part.end, path, watch, &mut accesses) {
                Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
                Ok(()) | Err(_) => accesses.reached = run.index(),
            }
        }
        let accesses = Arc::new(accesses);
        let size = accesses.size();
        self.accesses.borrow_mut().add(number, accesses.clone(), size);
        Ok(accesses)
    }

    /// Moves a run on to the position before instruction `to`.
    pub(super) fn advance<S: AccessSink>(
        &self,
        run: &mut Run,
        to: u64,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
        sink: &mut S,
    ) -> Result<(), ReplayGap> {
        let mut effects = self.effects.borrow_mut();
        if effects.is_empty() {
            effects.push(Effects::default());
        }
        match effects.first_mut() {
            Some(effects) => run.forward_to(to, effects, path, watch, sink),
            None => Err(ReplayGap::NotRecorded),
        }
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
            self.advance(&mut run, next.min(index), path, watch, &mut ())?;
            self.keep(number, run.checkpoint());
        }
        Ok(run)
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
