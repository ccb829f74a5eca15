//! Where the trace repeats itself: the steps gone lately, in order, to be gone again as long as the same bytes follow.
//!
//! A program in a loop makes not only the same chunks but the same rows of them. Once a chunk comes again, what came
//! behind it the last time is gone on with, step by step, without looking anything up: the bytes are compared with
//! those of then, and each step is asked whether the last IP and the calls are as it needs them.

use super::did::Did;

/// A step that was gone, between packets: it begins at a block and an offset of the trace, and ends where the next one begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The low half of the offset.
    at: u32,
    pub block: u32,
    pub run: u32,
    pub did: Did,
}

impl Step {
    const NONE: Self = Self {
        at: 0,
        block: u32::MAX,
        run: 0,
        did: Did::OTHER,
    };
}

/// The steps gone lately, of one decode.
pub(super) struct Trail {
    /// A ring.
    steps: Box<[Step; Self::STEPS]>,
    /// How many were gone; the next has this number.
    count: u32,
    /// The last step by a chunk, by the hash of it and of what was before it.
    last: Box<[u32; Self::CHUNKS]>,
    /// Where the last step began.
    offset: usize,
    /// How many steps were gone again, each worth [`Self::WORTH`] chunks that none were behind, less these, of late.
    luck: i32,
    /// For how many chunks nothing is tried.
    idle: u32,
}

/// A step to be gone again, and how.
#[derive(Clone, Copy)]
pub(super) struct Row {
    number: u32,
    /// How far back it is in the trace.
    pub distance: usize,
}

impl Trail {
    /// Steps that are remembered; a power of two.
    const STEPS: usize = 1 << 14;
    /// Chunks that are; the same.
    const CHUNKS: usize = 1 << 14;
    /// Longer steps are not gone again: offsets are told apart by their low halves.
    const LONGEST: usize = 1 << 16;
    /// The number of the first step: those before it are too long ago to be remembered.
    const FIRST: u32 = 2 * Self::STEPS as u32;
    const WORTH: i32 = 1;
    /// So much bad luck is enough, and then for so many chunks nothing is tried.
    const BAD_LUCK: i32 = -(1 << 10);
    const IDLE: u32 = 1 << 14;

    pub fn new() -> Self {
        Self {
            steps: Box::new([Step::NONE; Self::STEPS]),
            count: Self::FIRST,
            last: Box::new([0; Self::CHUNKS]),
            offset: 0,
            luck: 0,
            idle: 0,
        }
    }

    /// Forgets all: what a block makes of packets may be something else.
    pub fn clear(&mut self) {
        self.steps.fill(Step::NONE);
    }

    /// A step is gone, from an offset and a block on.
    #[inline]
    pub fn push(&mut self, offset: usize, block: u32, run: u32, did: Did) {
        if self.idle > 0 {
            return;
        }
        if offset.wrapping_sub(self.offset) > Self::LONGEST {
            self.clear();
        }
        self.offset = offset;
        self.put(Step {
            at: offset as u32,
            block,
            run,
            did,
        });
    }

    #[inline]
    fn put(&mut self, step: Step) {
        self.steps[self.count as usize % Self::STEPS] = step;
        self.count = self.count.wrapping_add(1);
    }

    /// The last step was by a chunk of this hash, and what is next is at an offset and a block. Gives what came behind that
    /// chunk the last time.
    #[inline]
    pub fn behind(&mut self, hash: u64, offset: usize, block: u32) -> Option<Row> {
        if self.idle > 0 {
            self.rest();
            return None;
        }
        let now = self.count.wrapping_sub(1);
        // What comes behind a chunk is as a rule what came behind it when the same was before it.
        let context = self.step(now.wrapping_sub(1)).run;
        let hash = hash ^ u64::from(context).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let last = &mut self.last[hash as usize >> 3 & (Self::CHUNKS - 1)];
        let before = std::mem::replace(last, now);
        let ago = self.count.wrapping_sub(before) as usize;
        let (was, is) = (self.step(before), self.step(now));
        let row = Row {
            number: before.wrapping_add(1),
            distance: 0,
        };
        let next = self.step(row.number);
        let distance = (offset as u32).wrapping_sub(next.at) as usize;
        // Between it and now there is another step at least, whose end is known.
        let known = ago > 2 && ago < Self::STEPS && (was.run, was.block) == (is.run, is.block);
        (known && next.block == block).then_some(Row { distance, ..row })
    }

    /// Nothing is tried, and nothing noted. When it is over, what was noted before is too long ago.
    fn rest(&mut self) {
        self.idle -= 1;
        if self.idle == 0 {
            self.count = self.count.wrapping_add(Self::STEPS as u32);
        }
    }

    #[inline]
    fn step(&self, number: u32) -> &Step {
        &self.steps[number as usize % Self::STEPS]
    }

    /// The first step of a row, and how long it is.
    #[inline]
    pub fn first(&self, row: Row) -> (Step, usize) {
        let (step, next) = (self.step(row.number), self.step(row.number.wrapping_add(1)));
        (*step, next.at.wrapping_sub(step.at) as usize)
    }

    /// The block behind the first step of a row.
    pub fn behind_first(&self, row: Row) -> u32 {
        self.step(row.number.wrapping_add(1)).block
    }

    /// The step, the first of a row, is gone again, from an offset on. Gives the rest of the row.
    #[inline]
    pub fn again(&mut self, step: Step, row: Row, offset: usize) -> Row {
        self.offset = offset;
        self.put(Step {
            at: offset as u32,
            ..step
        });
        Row {
            number: row.number.wrapping_add(1),
            ..row
        }
    }

    /// A row was gone again for so many steps. Gives the block that is next.
    #[inline]
    pub fn end(&mut self, row: Row, steps: usize) -> u32 {
        self.luck = (self.luck + Self::WORTH * steps as i32 - 1).min(0);
        if self.luck < Self::BAD_LUCK {
            (self.luck, self.idle) = (0, Self::IDLE);
        }
        self.step(row.number).block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: Did = Did::NOTHING;

    /// Goes steps of ten bytes by these blocks and runs, from an offset on; gives the offset behind.
    fn go(trail: &mut Trail, offset: usize, blocks: &[u32]) -> usize {
        for (at, &block) in blocks.iter().enumerate() {
            trail.push(offset + 10 * at, block, block + 100, CHUNK);
        }
        offset + 10 * blocks.len()
    }

    #[test]
    fn what_came_behind_a_chunk_is_told_when_it_comes_again() {
        let mut trail = Trail::new();
        let offset = go(&mut trail, 0, &[1, 2]);
        assert!(trail.behind(5, offset, 3).is_none());
        let offset = go(&mut trail, offset, &[3, 4, 1, 2]);
        let row = trail.behind(5, offset, 3).unwrap();
        assert_eq!(row.distance, 40);
        let (step, len) = trail.first(row);
        assert_eq!((step.block, step.run, step.did, len), (3, 103, CHUNK, 10));
        assert_eq!(trail.behind_first(row), 4);
        let rest = trail.again(step, row, offset);
        assert_eq!(trail.first(rest).0.block, 4);
        assert_eq!(trail.end(rest, 1), 4);
    }

    #[test]
    fn what_is_not_the_same_is_not_told() {
        let mut trail = Trail::new();
        let begin = |trail: &mut Trail| {
            let offset = go(trail, 0, &[1, 2]);
            trail.behind(5, offset, 3);
            go(trail, offset, &[3, 4, 1, 2])
        };
        let offset = begin(&mut trail);
        assert!(trail.behind(5, offset, 4).is_none(), "another block is next");
        let mut trail = Trail::new();
        let offset = begin(&mut trail);
        trail.clear();
        assert!(trail.behind(5, offset, 3).is_none(), "forgotten");
        let mut trail = Trail::new();
        begin(&mut trail);
        let offset = go(&mut trail, 1 << 20, &[1, 2]);
        assert!(trail.behind(5, offset, 3).is_none(), "too far in the trace");
        let mut trail = Trail::new();
        let offset = begin(&mut trail);
        let offset = go(&mut trail, offset, &[9; Trail::STEPS]);
        let offset = go(&mut trail, offset, &[1, 2]);
        assert!(trail.behind(5, offset, 3).is_none(), "too long ago");
    }

    #[test]
    fn where_hardly_any_row_comes_again_none_is_looked_for() {
        let mut trail = Trail::new();
        let mut offset = 0;
        let mut tries = 0;
        for _ in 0..3 * -Trail::BAD_LUCK {
            offset = go(&mut trail, offset, &[1, 2, 3]);
            if let Some(row) = trail.behind(5, offset, 1) {
                trail.end(row, 0);
                tries += 1;
            }
        }
        assert_eq!(tries, 1 - Trail::BAD_LUCK);
    }

    #[test]
    fn what_was_before_a_rest_is_not_told_behind_it() {
        let mut trail = Trail::new();
        let offset = go(&mut trail, 0, &[1, 2]);
        trail.behind(5, offset, 3);
        let offset = go(&mut trail, offset, &[3, 4]);
        trail.idle = 1;
        // These are not noted.
        let offset = go(&mut trail, offset, &[7, 8]);
        assert!(trail.behind(6, offset, 9).is_none());
        let offset = go(&mut trail, offset, &[1, 2]);
        assert!(trail.behind(5, offset, 3).is_none(), "from before the rest");
        let offset = go(&mut trail, offset, &[3, 4, 1, 2]);
        assert!(trail.behind(5, offset, 3).is_some(), "from behind it");
    }
}
