//! The return addresses that a compressed return may mean (SDM volume 3, "RET Compression").

/// The last calls that have not returned; of more than fit, the oldest are forgotten.
#[derive(Clone)]
pub(super) struct Returns {
    calls: [Call; Self::DEPTH],
    /// One past the newest, modulo the depth.
    top: usize,
    len: usize,
}

/// A call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Call {
    /// Where it returns to.
    pub address: u64,
    /// The number of the block that ends in it.
    pub block: u32,
}

impl Returns {
    const DEPTH: usize = 64;

    pub fn new() -> Self {
        Self {
            calls: [Call::default(); Self::DEPTH],
            top: 0,
            len: 0,
        }
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub fn push(&mut self, call: Call) {
        self.calls[self.top % Self::DEPTH] = call;
        self.top = (self.top + 1) % Self::DEPTH;
        self.len = (self.len + 1).min(Self::DEPTH);
    }

    /// These calls are the innermost, the innermost first, also when so many calls more make it forget
    /// the oldest.
    #[inline]
    pub fn fits(&self, calls: &[Call], more: u8) -> bool {
        let innermost = |at: usize| self.calls[(self.top + 2 * Self::DEPTH - 1 - at) % Self::DEPTH];
        self.len_with(more) >= calls.len()
            && calls.iter().enumerate().all(|(at, &call)| innermost(at) == call)
    }

    /// How many calls are left of these when so many are made besides.
    #[inline]
    fn len_with(&self, more: u8) -> usize {
        self.len.min(Self::DEPTH - usize::from(more).min(Self::DEPTH))
    }

    /// Returns from so many calls, and makes others.
    #[inline]
    pub fn replace(&mut self, returned: usize, calls: &[Call]) {
        self.len -= returned.min(self.len);
        self.top = (self.top + 2 * Self::DEPTH - returned.min(Self::DEPTH)) % Self::DEPTH;
        calls.iter().for_each(|&call| self.push(call));
    }

    /// Forgets the oldest as so many calls more would have done, which have returned meanwhile.
    #[inline]
    pub fn make_room(&mut self, calls: u8) {
        self.len = self.len_with(calls);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Call> {
        self.len = self.len.checked_sub(1)?;
        self.top = (self.top + Self::DEPTH - 1) % Self::DEPTH;
        Some(self.calls[self.top % Self::DEPTH])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_64_are_kept() {
        let call = |address| Call { address, block: 0 };
        let mut returns = Returns::new();
        (0..100).for_each(|address| returns.push(call(address)));
        for address in (36..100).rev() {
            assert_eq!(returns.pop(), Some(call(address)));
        }
        assert_eq!(returns.pop(), None);
        returns.push(call(7));
        assert_eq!(returns.pop(), Some(call(7)));
        (0..64).for_each(|address| returns.push(call(address)));
        returns.make_room(63);
        assert_eq!((returns.pop(), returns.pop()), (Some(call(63)), None));
        returns.push(call(8));
        returns.clear();
        assert_eq!(returns.pop(), None);
    }
}
