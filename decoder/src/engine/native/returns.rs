//! The return addresses that a compressed return may mean (SDM volume 3, "RET Compression").

/// The last calls that have not returned; of more than fit, the oldest are forgotten.
#[derive(Clone)]
pub(super) struct Returns {
    addresses: [u64; Self::DEPTH],
    /// One past the newest, modulo the depth.
    top: usize,
    len: usize,
}

impl Returns {
    const DEPTH: usize = 64;

    pub fn new() -> Self {
        Self {
            addresses: [0; Self::DEPTH],
            top: 0,
            len: 0,
        }
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub fn push(&mut self, address: u64) {
        self.addresses[self.top % Self::DEPTH] = address;
        self.top = (self.top + 1) % Self::DEPTH;
        self.len = (self.len + 1).min(Self::DEPTH);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.top = (self.top + Self::DEPTH - 1) % Self::DEPTH;
        Some(self.addresses[self.top % Self::DEPTH])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_64_are_kept() {
        let mut returns = Returns::new();
        (0..100).for_each(|address| returns.push(address));
        for address in (36..100).rev() {
            assert_eq!(returns.pop(), Some(address));
        }
        assert_eq!(returns.pop(), None);
        returns.push(7);
        assert_eq!(returns.pop(), Some(7));
        returns.push(8);
        returns.clear();
        assert_eq!(returns.pop(), None);
    }
}
