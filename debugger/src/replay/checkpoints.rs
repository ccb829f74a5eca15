//! States of runs at positions, from which replays go on.

use backtrail_semantics::State;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The most checkpoints that are kept. Each takes about 2.5 KB.
const MAX_CHECKPOINTS: usize = 1 << 14;

/// The state of a run at a position.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The end of the segment.
    pub end: u64,
    /// The instruction before which it is.
    pub index: u64,
    /// The registers.
    pub state: State,
    /// The place of the next logged byte.
    pub at: usize,
    /// Whether the last system call has not returned.
    pub is_unfinished: bool,
    /// The address to which the last instruction leads, if it has run.
    pub next: Option<u64>,
}

/// The checkpoints of a thread, by segment and instruction.
#[derive(Debug, Default)]
pub struct Checkpoints(BTreeMap<(usize, u64), Rc<Checkpoint>>);

impl Checkpoints {
    /// Returns the last checkpoint of a segment at or before an instruction.
    pub fn nearest(&self, segment: usize, index: u64) -> Option<Rc<Checkpoint>> {
        let before = self.0.range((segment, 0)..=(segment, index));
        before.last().map(|(_, checkpoint)| checkpoint.clone())
    }

    /// Returns whether a position has a checkpoint.
    pub fn has(&self, segment: usize, index: u64) -> bool {
        self.0.contains_key(&(segment, index))
    }

    /// Adds a checkpoint. Every second one goes when there are too many.
    pub fn add(&mut self, segment: usize, checkpoint: Checkpoint) {
        if self.0.len() >= MAX_CHECKPOINTS {
            let mut is_kept = false;
            self.0.retain(|_, _| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.0.insert((segment, checkpoint.index), Rc::new(checkpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(index: u64) -> Checkpoint {
        Checkpoint {
            end: u64::MAX,
            index,
            state: State::default(),
            at: 0,
            is_unfinished: false,
            next: None,
        }
    }

    #[test]
    fn the_nearest_checkpoint_is_of_the_same_segment() {
        let mut checkpoints = Checkpoints::default();
        for (segment, index) in [(0, 10), (1, 20), (1, 30)] {
            checkpoints.add(segment, checkpoint(index));
        }
        let nearest = |segment, index| checkpoints.nearest(segment, index).map(|found| found.index);
        assert_eq!(nearest(1, 19), None);
        assert_eq!(nearest(1, 29), Some(20));
        assert_eq!(nearest(1, 30), Some(30));
        assert_eq!(nearest(0, 30), Some(10));
        assert!(checkpoints.has(1, 20) && !checkpoints.has(1, 21));
    }

    #[test]
    fn every_second_checkpoint_goes_when_there_are_too_many() {
        let mut checkpoints = Checkpoints::default();
        for index in 0..=MAX_CHECKPOINTS as u64 {
            checkpoints.add(0, checkpoint(index));
        }
        assert_eq!(checkpoints.0.len(), MAX_CHECKPOINTS / 2 + 1);
        let nearest = checkpoints.nearest(0, 101).unwrap();
        assert_eq!(nearest.index, 100);
    }
}
