//! The rate limit of bundles: a token bucket for each user, and inside it one for each executable.
//!
//! Both levels have the same parameters, so a user has one budget, however many names its
//! executables have. Memory is bounded. A user's bucket is removed only while it is full, because a
//! new bucket would be full too. Cycling through ids or names therefore never refills a bucket.
//! When no bucket is full, further users share one.

use crate::config::LimitConfig;
use crate::users::User;
use std::collections::HashMap;
use std::time::Instant;

/// Maximum number of executables with a bucket, of all users together.
const MAX_EXECUTABLES: usize = 1024;
/// Maximum number of users with a bucket.
const MAX_USERS: usize = 1024;
/// Maximum number of ordinary users with a bucket: those that are not root or a system service.
const MAX_ORDINARY_USERS: usize = MAX_USERS / 4 * 3;

/// The buckets.
#[derive(Debug)]
pub struct Limiter {
    limit: LimitConfig,
    users: HashMap<User, Budget>,
    /// Shared by system users without a bucket.
    other_system_users: Budget,
    /// Shared by ordinary users without a bucket.
    other_users: Budget,
}

/// The budget of a user.
#[derive(Debug)]
struct Budget {
    bucket: Bucket,
    executables: HashMap<String, Bucket>,
}

/// A token bucket. `None` before its first use, when it is full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Option<Level>);

#[derive(Clone, Copy, Debug)]
struct Level {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Returns how many tokens the bucket holds at `now`.
    fn tokens(self, limit: LimitConfig, now: Instant) -> f64 {
        let burst = f64::from(limit.burst);
        match self.0 {
            Some(Level { tokens, at }) => {
                let passed = now.saturating_duration_since(at).as_secs_f64();
                (tokens + passed * limit.per_second).min(burst)
            }
            None => burst,
        }
    }

    fn has_token(self, limit: LimitConfig, now: Instant) -> bool {
        self.tokens(limit, now) >= 1.0
    }

    fn is_full(self, limit: LimitConfig, now: Instant) -> bool {
        self.tokens(limit, now) >= f64::from(limit.burst)
    }

    fn take(&mut self, limit: LimitConfig, now: Instant) {
        let tokens = (self.tokens(limit, now) - 1.0).max(0.0);
        // A time before the last one must not count twice.
        let at = self.0.map_or(now, |level| level.at.max(now));
        self.0 = Some(Level { tokens, at });
    }
}

impl Budget {
    fn new() -> Self {
        Self {
            bucket: Bucket::default(),
            executables: HashMap::new(),
        }
    }

    /// Takes a token of the user and one of the executable, or neither.
    fn take(&mut self, executable: &str, limit: LimitConfig, now: Instant) -> bool {
        if !self.bucket.has_token(limit, now) {
            return false;
        }
        match self.executables.get_mut(executable) {
            Some(bucket) if !bucket.has_token(limit, now) => return false,
            Some(bucket) => bucket.take(limit, now),
            None => {
                let mut bucket = Bucket::default();
                bucket.take(limit, now);
                self.executables.insert(executable.to_owned(), bucket);
            }
        }
        self.bucket.take(limit, now);
        true
    }

    /// Forgets the executable that has the most tokens left.
    fn forget_executable(&mut self, limit: LimitConfig, now: Instant) {
        let fullest = self.executables.iter().max_by(|(_, one), (_, other)| {
            let tokens = |bucket: &Bucket| bucket.tokens(limit, now);
            tokens(one).total_cmp(&tokens(other))
        });
        if let Some(name) = fullest.map(|(name, _)| name.clone()) {
            self.executables.remove(&name);
        }
    }
}

impl Limiter {
    /// Creates full buckets.
    #[must_use]
    pub fn new(limit: LimitConfig) -> Self {
        Self {
            limit,
            users: HashMap::new(),
            other_system_users: Budget::new(),
            other_users: Budget::new(),
        }
    }

    /// Replaces the limits.
    pub fn set(&mut self, limit: LimitConfig) {
        self.limit = limit;
    }

    /// Returns whether a user's executable may cause one more bundle now. If so, takes a token from
    /// both buckets.
    pub fn admits(&mut self, user: User, executable: &str, now: Instant) -> bool {
        let limit = self.limit;
        let budget = if self.users.contains_key(&user) || self.make_room_for(user, now) {
            self.users.entry(user).or_insert_with(Budget::new)
        } else if user.is_system {
            &mut self.other_system_users
        } else {
            &mut self.other_users
        };
        let admits = budget.take(executable, limit, now);
        self.forget_executables(now);
        admits
    }

    fn has_room_for(&self, user: User) -> bool {
        let ordinary = || self.users.keys().filter(|user| !user.is_system).count();
        self.users.len() < MAX_USERS && (user.is_system || ordinary() < MAX_ORDINARY_USERS)
    }

    /// Returns whether there is room for a new user. If not, first removes users whose buckets are
    /// full.
    fn make_room_for(&mut self, user: User, now: Instant) -> bool {
        if !self.has_room_for(user) {
            let limit = self.limit;
            self.users.retain(|_, budget| !budget.bucket.is_full(limit, now));
        }
        self.has_room_for(user)
    }

    /// Removes executables until their number is within the bound. The user with most executables
    /// loses one each time. That user's own bucket still limits it.
    fn forget_executables(&mut self, now: Instant) {
        while self.executables() > MAX_EXECUTABLES {
            let limit = self.limit;
            let most = self.budgets_mut().max_by_key(|budget| budget.executables.len());
            match most {
                Some(budget) => budget.forget_executable(limit, now),
                None => return,
            }
        }
    }

    fn executables(&self) -> usize {
        let others = [&self.other_system_users, &self.other_users];
        let budgets = self.users.values().chain(others);
        budgets.map(|budget| budget.executables.len()).sum()
    }

    fn budgets_mut(&mut self) -> impl Iterator<Item = &mut Budget> {
        let others = [&mut self.other_system_users, &mut self.other_users];
        self.users.values_mut().chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMIT: LimitConfig = LimitConfig {
        burst: 3,
        per_second: 2.0,
    };
    const STORMER: User = ordinary(1000);

    const fn ordinary(id: u32) -> User {
        User { id, is_system: false }
    }

    /// Returns how many of `count` attempts are admitted, each by another user and executable.
    fn admitted(
        limiter: &mut Limiter,
        count: u32,
        now: Instant,
        who: impl Fn(u32) -> (User, String),
    ) -> usize {
        let attempt = |number: &u32| {
            let (user, executable) = who(*number);
            limiter.admits(user, &executable, now)
        };
        (0..count).filter(attempt).count()
    }

    #[test]
    fn storm_is_limited_to_the_rate() {
        let mut limiter = Limiter::new(LIMIT);
        let start = Instant::now();
        let admitted = (0..1000u64)
            .filter(|ms| limiter.admits(STORMER, "/bin/storm", start + Duration::from_millis(*ms)))
            .count();
        assert_eq!(
            admitted, 4,
            "three at once, one more within a second (two from its very end on)"
        );
        let later = start + Duration::from_secs(60);
        assert!(limiter.admits(STORMER, "/bin/storm", later));
        assert!(
            limiter.admits(STORMER, "/bin/storm", start),
            "an earlier time takes one of the two left"
        );
        assert!(limiter.admits(STORMER, "/bin/storm", later));
        assert!(!limiter.admits(STORMER, "/bin/storm", later));
    }

    #[test]
    fn many_names_of_one_user_share_its_budget() {
        let mut limiter = Limiter::new(LIMIT);
        let now = Instant::now();
        let name = |number: u32| (STORMER, format!("/tmp/{}", number % 5));
        assert_eq!(admitted(&mut limiter, 50, now, name), 3);
    }

    #[test]
    fn storm_leaves_other_users_their_budgets() {
        let mut limiter = Limiter::new(LIMIT);
        let now = Instant::now();
        let storm = |number: u32| (STORMER, format!("/tmp/{number}"));
        assert_eq!(admitted(&mut limiter, 10_000, now, storm), 3);
        for user in [ordinary(1001), User::ROOT, User::UNKNOWN] {
            let same = |_| (user, "/tmp/1".to_owned());
            assert_eq!(admitted(&mut limiter, 10, now, same), 3, "{user:?}");
        }
    }

    #[test]
    fn refused_executable_costs_its_user_nothing() {
        let mut limiter = Limiter::new(LIMIT);
        let start = Instant::now();
        let one = |_| (STORMER, "/bin/one".to_owned());
        assert_eq!(admitted(&mut limiter, 10, start, one), 3);
        // Half a second refills one token of each.
        let later = start + Duration::from_millis(500);
        assert!(limiter.admits(STORMER, "/bin/other", later));
        assert!(
            !limiter.admits(STORMER, "/bin/one", later),
            "the user has none left"
        );
    }

    #[test]
    fn cycling_ids_does_not_refill_a_bucket() {
        let mut limiter = Limiter::new(LimitConfig {
            per_second: 0.001,
            ..LIMIT
        });
        let now = Instant::now();
        let users = 10 * MAX_USERS as u32;
        let cycle = |number: u32| (ordinary(1000 + number % users), "/tmp/a".to_owned());
        let all = admitted(&mut limiter, 4 * users, now, cycle);
        assert_eq!(
            all,
            3 * (MAX_ORDINARY_USERS + 1),
            "those remembered, and one budget for all others"
        );
        let system = |_| (User::ROOT, "/sbin/a".to_owned());
        assert_eq!(
            admitted(&mut limiter, 10, now, system),
            3,
            "a system user has room"
        );
        let later = now + Duration::from_secs(3000);
        let new = |_| (ordinary(1), "/tmp/a".to_owned());
        assert_eq!(
            admitted(&mut limiter, 10, later, new),
            3,
            "full buckets make room"
        );
    }

    #[test]
    fn memory_is_bounded_and_the_largest_user_pays() {
        let mut limiter = Limiter::new(LimitConfig {
            burst: u32::MAX,
            per_second: 0.0,
        });
        let now = Instant::now();
        for number in 0..10 {
            assert!(limiter.admits(ordinary(7), &format!("/bin/{number}"), now));
        }
        let storm = |number: u32| (STORMER, format!("/tmp/{number}"));
        assert_eq!(admitted(&mut limiter, 5000, now, storm), 5000);
        assert_eq!(limiter.executables(), MAX_EXECUTABLES);
        assert_eq!(limiter.users[&ordinary(7)].executables.len(), 10);
        let many = |number: u32| (ordinary(number), "/tmp/a".to_owned());
        assert_eq!(admitted(&mut limiter, 5000, now, many), 5000);
        assert!(limiter.users.len() <= MAX_USERS);
        assert_eq!(limiter.executables(), MAX_EXECUTABLES);
    }
}
