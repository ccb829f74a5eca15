//! RET compression: the return addresses of the last 64 calls (SDM volume 3, "Indirect Transfer
//! Compression for Returns").

use crate::Avma;

const DEPTH: usize = 64;

/// A ring of return addresses. The 65th call drops the oldest.
///
/// Decoders differ in whether a return without a match pops: in the SDM and in perf it does, in
/// libipt it does not. This stack is therefore cleared then, and its content is the top of the
/// stack of any decoder.
#[derive(Debug)]
pub(super) struct ReturnStack {
    ring: Box<[Avma; DEPTH]>,
    /// The index for the next call, below [`DEPTH`].
    top: usize,
    /// The number of addresses, at most [`DEPTH`].
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

    /// Pops the newest call if it returns to `target`; otherwise clears the stack. Returns whether
    /// it matched.
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
    fn newest_64_calls_match_and_mismatch_clears() {
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
