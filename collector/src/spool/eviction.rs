//! The order in which bundles are removed. Each user has a share, so that no user can push out the
//! crashes of others.

use crate::users::User;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// A bundle that may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: String,
    /// Bytes on the disk.
    pub(super) size: u64,
    /// The user who owns it.
    pub(super) user: User,
    /// Whether it was sent, so that removing it loses nothing.
    pub(super) is_sent: bool,
}

/// The bundles in the order of their removal. Sent ones come first, oldest first. Then comes,
/// repeatedly, the oldest of the user whose bundles use most space. Bundles of system users stay
/// while they use no more than the reserve.
#[derive(Debug)]
pub(super) struct EvictionOrder {
    sent: VecDeque<Candidate>,
    users: HashMap<User, UserBundles>,
    /// Users with removable bundles, by the total size of their bundles.
    largest: BTreeSet<(u64, User)>,
    /// The same for system users.
    largest_system: BTreeSet<(u64, User)>,
    /// Total size of the bundles of system users.
    system: u64,
    reserve: u64,
    /// Whether the newest bundle is of a system user. Bundles of system users may then be removed
    /// for it.
    newest_is_system: bool,
}

#[derive(Debug, Default)]
struct UserBundles {
    total: u64,
    unsent: VecDeque<Candidate>,
}

impl EvictionOrder {
    /// Creates the order for the bundles, oldest first, without the newest, which stays. `reserve`
    /// is in bytes, for system users.
    pub(super) fn new(bundles: Vec<Candidate>, newest: &Candidate, reserve: u64) -> Self {
        let mut eviction = Self {
            sent: VecDeque::new(),
            users: HashMap::new(),
            largest: BTreeSet::new(),
            largest_system: BTreeSet::new(),
            system: 0,
            reserve,
            newest_is_system: newest.user.is_system,
        };
        eviction.count(newest);
        for bundle in bundles {
            eviction.count(&bundle);
            match bundle.is_sent {
                true => eviction.sent.push_back(bundle),
                false => eviction
                    .users
                    .entry(bundle.user)
                    .or_default()
                    .unsent
                    .push_back(bundle),
            }
        }
        let users: Vec<User> = eviction.users.keys().copied().collect();
        users.into_iter().for_each(|user| eviction.rank(user));
        eviction
    }

    fn count(&mut self, bundle: &Candidate) {
        self.users.entry(bundle.user).or_default().total += bundle.size;
        if bundle.user.is_system {
            self.system += bundle.size;
        }
    }

    /// Adds a user to the ranking, if the user has removable bundles.
    fn rank(&mut self, user: User) {
        let Some(bundles_of_user) = self
            .users
            .get(&user)
            .filter(|bundles_of_user| !bundles_of_user.unsent.is_empty())
        else {
            return;
        };
        let key = (bundles_of_user.total, user);
        match user.is_system {
            true => self.largest_system.insert(key),
            false => self.largest.insert(key),
        };
    }

    fn subtract(&mut self, bundle: &Candidate) {
        let Some(bundles_of_user) = self.users.get_mut(&bundle.user) else {
            return;
        };
        let key = (bundles_of_user.total, bundle.user);
        bundles_of_user.total = bundles_of_user.total.saturating_sub(bundle.size);
        if bundle.user.is_system {
            self.system = self.system.saturating_sub(bundle.size);
        }
        self.largest.remove(&key);
        self.largest_system.remove(&key);
        self.rank(bundle.user);
    }

    /// Removes the next bundle from the order.
    pub(super) fn take(&mut self) -> Option<Candidate> {
        let next = match self.sent.pop_front() {
            Some(sent) => sent,
            None => {
                let user = self.largest_user()?;
                self.users.get_mut(&user)?.unsent.pop_front()?
            }
        };
        self.subtract(&next);
        Some(next)
    }

    fn largest_user(&self) -> Option<User> {
        let other = self.largest.last();
        let may_go = self.system > self.reserve || (other.is_none() && self.newest_is_system);
        let system = self.largest_system.last().filter(|_| may_go);
        other.max(system).map(|(_, user)| *user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> User {
        User {
            id,
            is_system: id < 1000,
        }
    }

    fn bundle(name: &str, size: u64, id: u32) -> Candidate {
        Candidate {
            name: name.to_owned(),
            size,
            user: user(id),
            is_sent: name.starts_with("sent"),
        }
    }

    fn order(bundles: &[Candidate], newest: &Candidate, reserve: u64) -> Vec<String> {
        let mut eviction = EvictionOrder::new(bundles.to_vec(), newest, reserve);
        std::iter::from_fn(|| eviction.take())
            .map(|bundle| bundle.name)
            .collect()
    }

    #[test]
    fn the_largest_user_loses_the_oldest_first() {
        let bundles = [
            bundle("ann-1", 10, 1000),
            bundle("ben-1", 30, 1001),
            bundle("ben-2", 30, 1001),
            bundle("ann-2", 10, 1000),
            bundle("ben-3", 30, 1001),
        ];
        let newest = bundle("ann-3", 20, 1000);
        assert_eq!(
            order(&bundles, &newest, 0),
            ["ben-1", "ben-2", "ann-1", "ben-3", "ann-2"].map(str::to_owned)
        );
    }

    #[test]
    fn sent_ones_go_before_all_others() {
        let bundles = [
            bundle("ben-1", 90, 1001),
            bundle("sent-1", 1, 1000),
            bundle("sent-2", 50, 1001),
            bundle("ann-1", 60, 1000),
        ];
        let newest = bundle("newest", 0, 1000);
        assert_eq!(
            order(&bundles, &newest, 0),
            ["sent-1", "sent-2", "ben-1", "ann-1"].map(str::to_owned)
        );
    }

    #[test]
    fn system_users_keep_their_reserve() {
        let bundles = [
            bundle("root-1", 50, 0),
            bundle("root-2", 50, 0),
            bundle("www-1", 20, 33),
            bundle("ann-1", 10, 1000),
        ];
        assert_eq!(
            order(&bundles, &bundle("ann-2", 5, 1000), 70),
            ["root-1", "ann-1"].map(str::to_owned)
        );
        // System users may remove their own bundles for a new one.
        assert_eq!(
            order(&bundles, &bundle("root-3", 5, 0), 1000),
            ["ann-1", "root-1", "root-2", "www-1"].map(str::to_owned)
        );
    }

    #[test]
    fn hundred_thousand_bundles_are_sorted_quickly() {
        let bundles: Vec<Candidate> = (0..100_000)
            .map(|at| bundle("x", 1 + u64::from(at % 7), 1000 + at % 5000))
            .collect();
        let begun = std::time::Instant::now();
        assert_eq!(order(&bundles, &bundle("new", 1, 0), 0).len(), 100_000);
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
}
