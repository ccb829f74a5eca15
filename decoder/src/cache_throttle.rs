//! Pauses a cache whose lookups rarely hit.
//!
//! A lookup costs time even where hardly anything repeats. There lookups pause, and for longer each
//! time.

/// A hit-rate throttle with exponential back-off.
pub(crate) struct CacheThrottle {
    /// The hits, each worth `hit_weight` misses, minus the misses; at most 0.
    balance: i32,
    hit_weight: i32,
    /// The lookups left to skip, and the length of the next pause.
    pause: u32,
    next_pause: u32,
}

impl CacheThrottle {
    /// The balance at which lookups pause. Each pause is twice as long, until the balance is
    /// positive again.
    const MIN_BALANCE: i32 = -(1 << 13);
    const MIN_PAUSE: u32 = 1 << 15;
    const MAX_PAUSE: u32 = 1 << 20;

    /// Returns a throttle for which one hit outweighs `hit_weight` misses.
    pub fn new(hit_weight: i32) -> Self {
        Self {
            balance: 0,
            hit_weight,
            pause: 0,
            next_pause: Self::MIN_PAUSE,
        }
    }

    /// Resets the throttle.
    pub fn reset(&mut self) {
        *self = Self::new(self.hit_weight);
    }

    /// Returns whether to do the next lookup.
    #[inline]
    pub fn admits_lookup(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        true
    }

    #[inline]
    pub fn hit(&mut self) {
        self.balance += self.hit_weight;
        if self.balance >= 0 {
            (self.balance, self.next_pause) = (0, Self::MIN_PAUSE);
        }
    }

    #[inline]
    pub fn miss(&mut self) {
        self.balance -= 1;
        if self.balance < Self::MIN_BALANCE {
            (self.balance, self.pause) = (0, self.next_pause);
            self.next_pause = (2 * self.next_pause).min(Self::MAX_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_hits_return() {
        /// Misses until lookups pause. Returns the length of the pause.
        fn pause(throttle: &mut CacheThrottle) -> u32 {
            while throttle.admits_lookup() {
                throttle.miss();
            }
            // The lookup that was just refused.
            let mut times = 1;
            while !throttle.admits_lookup() {
                times += 1;
            }
            times
        }
        let mut throttle = CacheThrottle::new(1);
        let shortest = CacheThrottle::MIN_PAUSE;
        assert_eq!(
            [pause(&mut throttle), pause(&mut throttle)],
            [shortest, 2 * shortest]
        );
        throttle.hit();
        assert_eq!(pause(&mut throttle), shortest);
        let longest = (0..9).map(|_| pause(&mut throttle)).max();
        assert_eq!(longest, Some(CacheThrottle::MAX_PAUSE));
        throttle.reset();
        assert_eq!(pause(&mut throttle), shortest);
    }

    #[test]
    fn one_hit_outweighs_its_weight_in_misses() {
        let mut throttle = CacheThrottle::new(4);
        for _ in 0..1 << 16 {
            assert!(throttle.admits_lookup());
            (0..4).for_each(|_| throttle.miss());
            throttle.hit();
        }
    }
}
