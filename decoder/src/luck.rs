//! Whether it pays to look for what came before.
//!
//! What is looked up each time costs something each time, also where hardly any of it comes again. There it is left
//! for a while, and for longer each time.

/// What was found of late, and what was not.
#[derive(Clone)]
pub(crate) struct Luck {
    /// Those found, each worth so many of those that were not, less these; at most 0.
    balance: i32,
    worth: i32,
    /// How often nothing is looked for; and how often the next time.
    idle: u32,
    next_idle: u32,
}

impl Luck {
    /// So much bad luck is enough, and then for so long nothing is looked for: twice as long each time, until luck is good again.
    const BAD: i32 = -(1 << 13);
    const SHORTEST_IDLE: u32 = 1 << 15;
    const LONGEST_IDLE: u32 = 1 << 20;

    /// One found is worth so many that are not.
    pub fn new(worth: i32) -> Self {
        Self {
            balance: 0,
            worth,
            idle: 0,
            next_idle: Self::SHORTEST_IDLE,
        }
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        *self = Self::new(self.worth);
    }

    /// It may be looked for this time.
    #[inline]
    pub fn allows(&mut self) -> bool {
        if self.idle > 0 {
            self.idle -= 1;
            return false;
        }
        true
    }

    #[inline]
    pub fn found(&mut self) {
        self.balance += self.worth;
        if self.balance >= 0 {
            (self.balance, self.next_idle) = (0, Self::SHORTEST_IDLE);
        }
    }

    #[inline]
    pub fn missed(&mut self) {
        self.balance -= 1;
        if self.balance < Self::BAD {
            (self.balance, self.idle) = (0, self.next_idle);
            self.next_idle = (2 * self.next_idle).min(Self::LONGEST_IDLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_luck_makes_it_idle_for_longer_each_time_until_luck_is_good() {
        /// Misses until nothing is looked for; says for how long.
        fn idle(luck: &mut Luck) -> u32 {
            while luck.allows() {
                luck.missed();
            }
            // The one that was not allowed.
            let mut times = 1;
            while !luck.allows() {
                times += 1;
            }
            times
        }
        let mut luck = Luck::new(1);
        let shortest = Luck::SHORTEST_IDLE;
        assert_eq!([idle(&mut luck), idle(&mut luck)], [shortest, 2 * shortest]);
        luck.found();
        assert_eq!(idle(&mut luck), shortest);
        let longest = (0..9).map(|_| idle(&mut luck)).max();
        assert_eq!(longest, Some(Luck::LONGEST_IDLE));
        luck.reset();
        assert_eq!(idle(&mut luck), shortest);
    }

    #[test]
    fn one_found_makes_up_for_what_it_is_worth() {
        let mut luck = Luck::new(4);
        for _ in 0..1 << 16 {
            assert!(luck.allows());
            (0..4).for_each(|_| luck.missed());
            luck.found();
        }
    }
}
