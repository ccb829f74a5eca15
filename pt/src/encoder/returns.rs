//! RET compression: the return addresses of the last 64 calls (SDM volume 3, "Indirect Transfer
//! Compression for Returns").

use crate::Avma;

const DEPTH: usize = 64;

/// A ring of return addresses: the 65th call drops the oldest.
///
/// Decoders differ in whether a return that did not match pops: by the SDM and in perf it does, in libipt it does not. So this one
/// forgets everything then, and its content is the top of any decoder's stack.
#[derive(Debug)]
pub(super) struct ReturnStack {
    ring: Box<[Avma; DEPTH]>,
    /// Where the next call goes, below [`DEPTH`].
    top: usize,
    /// How many are held, at most [`DEPTH`].
    held: usize,
}

impl Default for ReturnStack {
    fn default() -> Self {
        Self {
            ring: Box::new([Avma(0); DEPTH]),
            top: 0,
            held: 0,
        }
    }
}

impl ReturnStack {
    #[inline]
    pub(super) fn push(&mut self, next: Avma) {
        if let Some(slot) = self.ring.get_mut(self.top) {
            *slot = next;
        }
        self.top = (self.top + 1) % DEPTH;
        self.held = (self.held + 1).min(DEPTH);
    }

    /// Pops when the newest call returns to `target`; else forgets all.
    #[inline]
    pub(super) fn matches(&mut self, target: Avma) -> bool {
        let newest = (self.top + DEPTH - 1) % DEPTH;
        let matches = self.held > 0 && self.ring.get(newest) == Some(&target);
        if matches {
            (self.top, self.held) = (newest, self.held - 1);
        } else {
            self.clear();
        }
        matches
    }

    pub(super) fn clear(&mut self) {
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_64_calls_match_in_reverse_and_a_mismatch_forgets() {
        let mut stack = ReturnStack::default();
        (0..65).for_each(|call| stack.push(Avma(call)));
        assert!((1..65).rev().all(|call| stack.matches(Avma(call))));
        assert!(!stack.matches(Avma(0)), "the oldest was dropped");
        stack.push(Avma(1));
        stack.push(Avma(2));
        assert!(!stack.matches(Avma(7)));
        assert!(!stack.matches(Avma(1)));
    }
}
