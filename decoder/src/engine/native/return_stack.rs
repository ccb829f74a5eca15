//! The return stack for compressed returns (SDM volume 3, "Indirect Transfer Compression for
//! Returns (RET)").

use crate::engine::native::code::BlockIdx;

/// The most recent open calls, each by the index of the block that ends in it. If there are too
/// many, the oldest are dropped.
pub(super) struct ReturnStack {
    /// The innermost call is at `top - 1`. There is room below the oldest call for comparisons of a
    /// fixed size, and above the top for writes of a fixed size.
    calls: Box<[BlockIdx; Self::HIGHEST + WRITTEN]>,
    top: usize,
    len: usize,
}

/// The index of no block: matches any call, or none.
pub(super) const ANY: BlockIdx = BlockIdx::NONE;

/// The number of calls compared at once, and of calls written at once.
pub(super) const COMPARED: usize = 4;
pub(super) const WRITTEN: usize = 6;

impl ReturnStack {
    const DEPTH: usize = 64;
    /// The lowest `top`, and the one at which the calls are moved down.
    const LOWEST: usize = COMPARED + Self::DEPTH;
    const HIGHEST: usize = 1 << 10;

    pub fn new() -> Self {
        Self {
            calls: Box::new([BlockIdx(0); Self::HIGHEST + WRITTEN]),
            top: Self::LOWEST,
            len: 0,
        }
    }

    pub fn clear(&mut self) {
        (self.top, self.len) = (Self::LOWEST, 0);
    }

    #[inline]
    pub fn push(&mut self, call: BlockIdx) {
        if let Some(slot) = self.calls.get_mut(self.top) {
            *slot = call;
        }
        self.grow(1);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<BlockIdx> {
        self.len = self.len.checked_sub(1)?;
        self.top -= 1;
        self.calls.get(self.top).copied()
    }

    /// Returns the innermost call.
    pub fn innermost(&self) -> Option<BlockIdx> {
        let top = self.top.checked_sub(1).filter(|_| self.len > 0)?;
        self.calls.get(top).copied()
    }

    /// Returns whether these calls are the innermost, the innermost last, even if `more` further
    /// calls drop the oldest. The first is not [`ANY`].
    pub fn ends_with(&self, calls: &[BlockIdx], more: u8) -> bool {
        let innermost = self.calls.get(self.top - calls.len().min(self.top)..self.top);
        let is = |(here, wanted): (&BlockIdx, &BlockIdx)| here == wanted || *wanted == ANY;
        self.len_with(more) >= calls.len() && innermost.is_some_and(|here| here.iter().zip(calls).all(is))
    }

    /// Like [`Self::ends_with`], for the last `count` of these calls.
    #[inline]
    pub fn ends_with_few(&self, calls: &[BlockIdx; COMPARED], count: u8, more: u8) -> bool {
        /// The entries to compare for each count.
        const MASKS: [[u32; COMPARED]; COMPARED + 1] = {
            const ALL: u32 = u32::MAX;
            [
                [0; 4],
                [0, 0, 0, ALL],
                [0, 0, ALL, ALL],
                [0, ALL, ALL, ALL],
                [ALL; 4],
            ]
        };
        let innermost = self.top.checked_sub(COMPARED);
        let innermost = innermost.and_then(|from| self.calls.get(from..from + COMPARED));
        let innermost = innermost.and_then(<[BlockIdx]>::first_chunk::<COMPARED>);
        let (Some(innermost), Some(mask)) = (innermost, MASKS.get(usize::from(count))) else {
            return false;
        };
        // Branchless: the count is unpredictable.
        let compared = |at: usize| if calls[at] == ANY { 0 } else { mask[at] };
        let differ = (0..COMPARED).fold(0, |differ, at| {
            differ | (innermost[at].0 ^ calls[at].0) & compared(at)
        });
        self.len_with(more) >= usize::from(count) && differ == 0
    }

    /// Drops the oldest calls, as `more` calls that have since returned would have done. Then pops
    /// `returned` calls and pushes `opened`, the innermost last.
    pub fn replace(&mut self, more: u8, returned: u8, opened: &[BlockIdx]) {
        self.shrink(more, returned);
        opened.iter().for_each(|&call| self.push(call));
    }

    /// Like [`Self::replace`], for the first `count` of these calls.
    #[inline]
    pub fn replace_few(&mut self, more: u8, returned: u8, opened: &[BlockIdx; WRITTEN], count: u8) {
        let (len, count) = (self.len_with(more), usize::from(count));
        let returned = usize::from(returned).min(len);
        let below = self.top - returned;
        if let Some(above) = self.calls.get_mut(below..below + WRITTEN) {
            above.copy_from_slice(opened);
        }
        self.len = (len - returned + count).min(Self::DEPTH);
        self.top = below + count;
        if self.top >= Self::HIGHEST {
            self.move_down();
        }
    }

    /// Drops the oldest calls, as `calls` further calls that have since returned would have done.
    #[inline]
    pub fn make_room(&mut self, calls: u8) {
        self.len = self.len_with(calls);
    }

    #[inline]
    fn shrink(&mut self, more: u8, returned: u8) {
        let returned = usize::from(returned).min(self.len_with(more));
        self.len = self.len_with(more) - returned;
        self.top -= returned;
    }

    /// Counts further calls above the top.
    #[inline]
    fn grow(&mut self, calls: usize) {
        self.top += calls;
        self.len = (self.len + calls).min(Self::DEPTH);
        if self.top >= Self::HIGHEST {
            self.move_down();
        }
    }

    #[cold]
    fn move_down(&mut self) {
        self.calls.copy_within(self.top - Self::DEPTH..self.top, COMPARED);
        self.top = Self::LOWEST;
    }

    /// Returns how many calls remain after `more` further calls.
    #[inline]
    fn len_with(&self, more: u8) -> usize {
        self.len.min(Self::DEPTH.saturating_sub(usize::from(more)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_64_are_kept() {
        let mut returns = ReturnStack::new();
        (0..5000).for_each(|call| returns.push(BlockIdx(call)));
        for call in (5000 - 64..5000).rev() {
            assert_eq!(returns.pop(), Some(BlockIdx(call)));
        }
        assert_eq!(returns.pop(), None);
        returns.push(BlockIdx(7));
        assert_eq!(returns.pop(), Some(BlockIdx(7)));
        (0..64).for_each(|call| returns.push(BlockIdx(call)));
        returns.make_room(63);
        assert_eq!((returns.pop(), returns.pop()), (Some(BlockIdx(63)), None));
        returns.push(BlockIdx(8));
        returns.clear();
        assert_eq!(returns.pop(), None);
    }

    #[test]
    fn bulk_operations_equal_single_ones() {
        let (mut all, mut few) = (ReturnStack::new(), ReturnStack::new());
        let mut next = 0;
        for round in 0..5000u32 {
            let [opened, returned, more] =
                [round * 3 % 7, round * 7 % 5, round * 11 % 70].map(|number| number as u8);
            let mut calls = [BlockIdx(0); COMPARED];
            let innermost = all.top - COMPARED..all.top;
            calls.copy_from_slice(&all.calls[innermost]);
            if round % 9 == 0 {
                calls[round as usize % COMPARED].0 ^= 1;
            }
            let last = &calls[COMPARED - usize::from(returned)..];
            let fits = all.ends_with(last, more);
            assert_eq!(few.ends_with_few(&calls, returned, more), fits);
            if fits || round % 3 == 0 {
                let new = [0, 1, 2, 3, 4, 5].map(|within| BlockIdx(next + within));
                next += 6;
                all.replace(more, returned, &new[..usize::from(opened)]);
                few.replace_few(more, returned, &new, opened);
            }
            let calls =
                |returns: &ReturnStack| returns.calls[returns.top - returns.len..returns.top].to_vec();
            assert_eq!(calls(&all), calls(&few));
        }
    }
}
