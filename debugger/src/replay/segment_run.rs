//! The replay of whole segments, several at once if a search is likely to need them.
//!
//! Segments do not depend on each other: each begins with all registers.

use super::checkpoints::Checkpoint;
use super::effects::Effects;
use super::parts::{Part, SegmentEnds};
use super::run::Run;
use super::segments::ReplaySegment;
use super::summary::{AccessedBytes, PartSummary};
use super::{ExecutedPath, ReplayGap, ThreadReplay};
use backtrail_bundle::value_log::ValueLog;
use backtrail_decoder::Watch;
use std::ops::Range;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

/// The most segments that are replayed at once. Each takes the memory of its content, and of the
/// effects of its instructions.
const MOST_AT_ONCE: usize = 8;

/// The log, and its places in the history.
#[derive(Clone, Copy)]
struct SegmentSource<'a> {
    log: &'a ValueLog,
    segments: &'a [ReplaySegment],
    parts: &'a [Part],
}

/// A replayed segment.
struct ReplayedSegment {
    content: Arc<[u8]>,
    /// The states at the beginnings of its parts.
    checkpoints: Vec<Checkpoint>,
    /// The summaries of parts, by their numbers.
    summaries: Vec<(usize, PartSummary)>,
    ends: SegmentEnds,
}

impl SegmentSource<'_> {
    /// Reads the content of a segment.
    fn content(&self, number: usize) -> Result<Arc<[u8]>, ReplayGap> {
        let segment = self.segments.get(number).ok_or(ReplayGap::NotRecorded)?;
        let in_log = self.log.segments().get(segment.in_log);
        let content = in_log.and_then(|in_log| self.log.content(in_log).ok());
        Ok(content.ok_or(ReplayGap::LogEnd(segment.start))?.into())
    }

    /// Replays a segment.
    fn replay(
        &self,
        number: usize,
        effects: &mut Effects,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<ReplayedSegment, ReplayGap> {
        let segment = self.segments.get(number).ok_or(ReplayGap::NotRecorded)?;
        let content = self.content(number)?;
        let mut run = Run::new(segment, content.clone()).ok_or(ReplayGap::LogEnd(segment.start))?;
        let start = run.state().clone();
        let mut is_complete = true;
        let (mut checkpoints, mut summaries) = (Vec::new(), Vec::new());
        for of_segment in parts_of(self.parts, number) {
            let Some(part) = self.parts.get(of_segment) else {
                break;
            };
            let mut bytes = AccessedBytes::default();
            if is_complete {
                checkpoints.push(run.checkpoint());
                is_complete = match run.forward_to(part.end, effects, path, watch, &mut bytes) {
                    Ok(()) => true,
                    Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
                    Err(_) => false,
                };
            }
            summaries.push((of_segment, bytes.into_summary(is_complete)));
        }
        Ok(ReplayedSegment {
            content,
            checkpoints,
            summaries,
            ends: SegmentEnds {
                start,
                end: run.state().clone(),
                reached: run.index(),
                is_complete,
            },
        })
    }
}

impl ThreadReplay {
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
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let numbers = {
            let ends = self.ends.borrow();
            let is_known = |number: usize| ends.contains_key(&number);
            next_segments(
                number,
                self.segments.len(),
                processors.min(MOST_AT_ONCE),
                is_known,
            )
        };
        let replayed = self.replay_at_once(&numbers, path, watch);
        // A segment ahead that fails is tried again when it is needed.
        let mut answer = Err(ReplayGap::NotRecorded);
        for (&replayed_number, replayed) in numbers.iter().zip(replayed) {
            let kept = replayed.map(|replayed| self.keep_segment(replayed_number, replayed));
            match kept {
                Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
                kept if replayed_number == number => answer = kept,
                _ => {}
            }
        }
        answer
    }

    /// Returns the content of a segment.
    pub(super) fn content_of(&self, number: usize) -> Result<Arc<[u8]>, ReplayGap> {
        if let Some(known) = self.contents.borrow_mut().get(number) {
            return Ok(known);
        }
        let content = self.source().content(number)?;
        let size = content.len();
        self.contents.borrow_mut().add(number, content.clone(), size);
        Ok(content)
    }

    fn source(&self) -> SegmentSource<'_> {
        SegmentSource {
            log: &self.log,
            segments: &self.segments,
            parts: &self.parts,
        }
    }

    /// Replays segments, each on a thread.
    fn replay_at_once(
        &self,
        numbers: &[usize],
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Vec<Result<ReplayedSegment, ReplayGap>> {
        let source = self.source();
        let mut effects = self.effects.take();
        if effects.len() < numbers.len() {
            effects.resize_with(numbers.len(), Effects::default);
        }
        let mut work = numbers.iter().zip(&mut effects);
        let first = work.next();
        let replayed = thread::scope(|threads| {
            let others: Vec<_> = work
                .map(|(&number, effects)| threads.spawn(move || source.replay(number, effects, path, watch)))
                .collect();
            let first = first.map(|(&number, effects)| source.replay(number, effects, path, watch));
            let others = others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            first.into_iter().chain(others).collect()
        });
        *self.effects.borrow_mut() = effects;
        replayed
    }

    fn keep_segment(&self, number: usize, replayed: ReplayedSegment) -> Rc<SegmentEnds> {
        let size = replayed.content.len();
        let mut contents = self.contents.borrow_mut();
        if contents.get(number).is_none() {
            contents.add(number, replayed.content, size);
        }
        for checkpoint in replayed.checkpoints {
            self.keep(number, checkpoint);
        }
        let mut summaries = self.summaries.borrow_mut();
        for (part, summary) in replayed.summaries {
            summaries.insert(part, Rc::new(summary));
        }
        let ends = Rc::new(replayed.ends);
        self.ends.borrow_mut().insert(number, ends.clone());
        ends
    }
}

/// Returns a segment, and those of `count` that a search needs next. These are as many as it has
/// passed, the one before at least, and no more than `most` with the segment itself.
fn next_segments(number: usize, count: usize, most: usize, is_known: impl Fn(usize) -> bool) -> Vec<usize> {
    let is_passed = |passed: &usize| is_known(*passed);
    let later = (number + 1..count).take_while(is_passed).take(most).count();
    let earlier = (0..number).rev().take_while(is_passed).take(most).count();
    let ahead = later.max(earlier).max(1).min(most.saturating_sub(1));
    let is_unknown = |next: &usize| !is_known(*next);
    let mut numbers = vec![number];
    match later >= earlier {
        true => numbers.extend((0..number).rev().take_while(is_unknown).take(ahead)),
        false => numbers.extend((number + 1..count).take_while(is_unknown).take(ahead)),
    }
    numbers
}

/// Returns the numbers of the parts of a segment.
fn parts_of(parts: &[Part], segment: usize) -> Range<usize> {
    let first = parts.partition_point(|part| part.segment < segment);
    let after = parts.partition_point(|part| part.segment <= segment);
    first..after
}

#[cfg(test)]
mod tests {
    use super::next_segments;

    #[test]
    fn search_replays_more_segments_at_once_the_more_it_passes() {
        let next = |number, known: &[usize]| next_segments(number, 20, 4, |one| known.contains(&one));
        assert_eq!(next(10, &[]), [10, 9]);
        assert_eq!(next(10, &[11]), [10, 9]);
        assert_eq!(next(10, &[11, 12]), [10, 9, 8]);
        assert_eq!(next(10, &[11, 12, 13, 14, 15]), [10, 9, 8, 7]);
        assert_eq!(next(10, &[7, 8, 9]), [10, 11, 12, 13]);
        assert_eq!(next_segments(10, 20, 1, |_| false), [10]);
    }

    #[test]
    fn search_replays_no_segment_twice_and_none_outside() {
        let next = |number, known: &[usize]| next_segments(number, 20, 8, |one| known.contains(&one));
        assert_eq!(next(1, &[2, 3, 4, 5, 6]), [1, 0]);
        assert_eq!(next(19, &[15, 16, 17, 18]), [19]);
        assert_eq!(next(10, &[8, 11, 12, 13, 14]), [10, 9]);
        // A gap ends the passed segments.
        assert_eq!(next(10, &[12, 13, 14]), [10, 9]);
    }
}
