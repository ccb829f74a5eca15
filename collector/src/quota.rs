//! Quotas that divide a limited resource among users.

use crate::users::User;

/// The size of a resource, and the limits of its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// All units.
    pub all: usize,
    /// The units that all ordinary users together may have. The rest is reserved for root and
    /// system services.
    pub ordinary: usize,
    /// The units that one ordinary user may have.
    pub per_user: usize,
}

impl Quota {
    /// Returns the usual quota: a quarter for one user, and a quarter reserved for system users.
    #[must_use]
    pub const fn quarters(all: usize) -> Self {
        let quarter = all / 4;
        Self {
            all,
            ordinary: all - quarter,
            per_user: if quarter == 0 { 1 } else { quarter },
        }
    }

    /// Returns the user who must give up a unit so that `user` can have one more. `None`: no user
    /// has to. `held` has each user with units once.
    ///
    /// The evictee is the user who would have most of the scarce units. If several would, `user`
    /// itself comes first.
    pub fn evictee<I>(&self, user: User, held: I) -> Option<User>
    where
        I: IntoIterator<Item = (User, usize)> + Clone,
    {
        let is_ordinary = |other: &User| !other.is_system;
        let sum = |of: &dyn Fn(&User) -> bool| -> usize {
            let held = held.clone().into_iter().filter(|(other, _)| of(other));
            held.map(|(_, count)| count).sum()
        };
        let own = sum(&|other| *other == user);
        let largest = |of: &dyn Fn(&User) -> bool| {
            let others = held.clone().into_iter();
            let others = others.filter(|(other, _)| *other != user && of(other));
            // Of several equal maxima, the last one is used.
            let all = others.chain([(user, own + 1)]);
            all.max_by_key(|(_, count)| *count).map(|(other, _)| other)
        };
        if is_ordinary(&user) && own >= self.per_user {
            Some(user)
        } else if is_ordinary(&user) && sum(&is_ordinary) >= self.ordinary {
            largest(&is_ordinary)
        } else if sum(&|_| true) >= self.all {
            largest(&|_| true)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const QUOTA: Quota = Quota::quarters(16);

    const fn ordinary(id: u32) -> User {
        User { id, is_system: false }
    }

    const fn system(id: u32) -> User {
        User { id, is_system: true }
    }

    #[test]
    fn user_at_its_limit_is_evicted() {
        let held = [(ordinary(1), 4)];
        assert_eq!(QUOTA.evictee(ordinary(1), held), Some(ordinary(1)));
        assert_eq!(QUOTA.evictee(ordinary(2), held), None);
    }

    #[test]
    fn largest_ordinary_user_is_evicted() {
        let held = [
            (ordinary(1), 4),
            (ordinary(2), 3),
            (ordinary(3), 3),
            (ordinary(4), 2),
        ];
        assert_eq!(QUOTA.evictee(ordinary(5), held), Some(ordinary(1)));
        assert_eq!(
            QUOTA.evictee(ordinary(2), held),
            Some(ordinary(2)),
            "it would have as many"
        );
        assert_eq!(QUOTA.evictee(User::ROOT, held), None, "the reserve is there");
    }

    #[test]
    fn system_users_have_the_reserve() {
        let all = [(User::ROOT, 9), (system(7), 3), (ordinary(1), 4)];
        assert_eq!(QUOTA.evictee(system(7), all), Some(User::ROOT));
        assert_eq!(QUOTA.evictee(User::ROOT, all), Some(User::ROOT));
        assert_eq!(QUOTA.evictee(ordinary(2), all), Some(User::ROOT));
        let reserve = [
            (User::ROOT, 4),
            (ordinary(1), 4),
            (ordinary(2), 4),
            (ordinary(3), 4),
        ];
        assert_eq!(QUOTA.evictee(ordinary(4), reserve), Some(ordinary(3)));
    }

    proptest! {
        #[test]
        fn quotas_always_hold(all in 1usize..40, users in prop::collection::vec((0u32..8, any::<bool>()), 0..400)) {
            let quota = Quota::quarters(all);
            let mut held: HashMap<User, usize> = HashMap::new();
            for (id, is_system) in users {
                let user = User { id, is_system };
                let before: usize = held.iter().filter(|(user, _)| user.is_system).map(|(_, count)| count).sum();
                let counts = held.clone();
                if let Some(evictee) = quota.evictee(user, counts) {
                    if evictee != user {
                        let count = held.get_mut(&evictee).unwrap();
                        *count -= 1;
                        *held.entry(user).or_default() += 1;
                    }
                    held.retain(|_, count| *count != 0);
                } else {
                    *held.entry(user).or_default() += 1;
                }
                let sum = |of: &dyn Fn(&User) -> bool| -> usize {
                    held.iter().filter(|(user, _)| of(user)).map(|(_, count)| count).sum()
                };
                prop_assert!(sum(&|_| true) <= quota.all);
                prop_assert!(sum(&|user| !user.is_system) <= quota.ordinary);
                prop_assert!(held.iter().all(|(user, count)| user.is_system || *count <= quota.per_user));
                let reserve = quota.all - quota.ordinary;
                prop_assert!(
                    user.is_system || sum(&|user| user.is_system) >= before.min(reserve),
                    "an ordinary user took of the reserve"
                );
            }
        }
    }
}
