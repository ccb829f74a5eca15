//! The order of the builds of a service, by the time at which a host first ran them.

use std::collections::{BTreeMap, BTreeSet};

/// The order of one build in relation to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildOrder {
    /// The build first ran before the other.
    Older,
    /// Both are one build.
    Same,
    /// The build first ran after the other.
    Newer,
    /// No host reported when one of them first ran.
    Undetermined,
}

/// The builds of a service.
///
/// Only the time at which a host first ran a build orders it. Names, dates of upload and version
/// numbers do not. A build can have a name before any host runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Builds {
    first_ran: BTreeMap<String, Option<u64>>,
    deleted: BTreeSet<String>,
}

impl Builds {
    /// Builds the order from names and times, in microseconds since 1970. `None`: no host reported
    /// to run the build.
    pub fn new(builds: impl IntoIterator<Item = (String, Option<u64>)>) -> Self {
        let mut order = Self::default();
        for (build, first_ran) in builds {
            match first_ran {
                Some(time) => order.add_run(&build, time),
                None => order.add_name(&build),
            }
        }
        order
    }

    /// Adds a build that no host is known to run.
    pub fn add_name(&mut self, build: &str) {
        self.first_ran.entry(build.to_owned()).or_insert(None);
    }

    /// Adds the statement that a host ran a build since a time. The earliest time counts.
    pub fn add_run(&mut self, build: &str, since: u64) {
        let entry = self.first_ran.entry(build.to_owned()).or_insert(None);
        *entry = Some(entry.map_or(since, |known| known.min(since)));
    }

    /// Removes a build from the list. Its order stays known, so that no state of a group changes.
    pub fn delete(&mut self, build: &str) {
        if self.first_ran.contains_key(build) {
            self.deleted.insert(build.to_owned());
        }
    }

    /// Returns the time at which a host first ran a build.
    #[must_use]
    pub fn first_ran(&self, build: &str) -> Option<u64> {
        self.first_ran.get(build).copied().flatten()
    }

    /// Returns the order of a build in relation to another.
    ///
    /// Two builds that first ran at the same time are undetermined.
    #[must_use]
    pub fn order(&self, build: &str, other: &str) -> BuildOrder {
        match build == other {
            true => BuildOrder::Same,
            false => order_of_times(self.first_ran(build), self.first_ran(other)),
        }
    }

    /// Returns the builds that are not deleted, oldest first. Builds that never ran are last.
    #[must_use]
    pub fn listed(&self) -> Vec<&str> {
        let mut listed: Vec<(&str, u64)> = self
            .first_ran
            .iter()
            .filter(|(build, _)| !self.deleted.contains(*build))
            .map(|(build, time)| (build.as_str(), time.unwrap_or(u64::MAX)))
            .collect();
        listed.sort_by_key(|(_, time)| *time);
        listed.into_iter().map(|(build, _)| build).collect()
    }
}

/// Returns the order of two builds by their times.
#[must_use]
pub fn order_of_times(time: Option<u64>, other: Option<u64>) -> BuildOrder {
    match (time, other) {
        (Some(time), Some(other)) if time < other => BuildOrder::Older,
        (Some(time), Some(other)) if time > other => BuildOrder::Newer,
        _ => BuildOrder::Undetermined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_are_ordered_by_their_first_run() {
        let mut builds = Builds::new([("2.0".to_owned(), Some(10)), ("1.9".to_owned(), Some(20))]);
        assert_eq!(builds.order("1.9", "2.0"), BuildOrder::Newer);
        assert_eq!(builds.order("2.0", "1.9"), BuildOrder::Older);
        assert_eq!(builds.order("2.0", "2.0"), BuildOrder::Same);
        // Another host ran it earlier, and reports it late.
        builds.add_run("1.9", 5);
        assert_eq!(builds.order("1.9", "2.0"), BuildOrder::Older);
        assert_eq!(builds.listed(), ["1.9", "2.0"]);
    }

    #[test]
    fn unknown_times_are_undetermined() {
        let mut builds = Builds::new([("a".to_owned(), Some(10)), ("b".to_owned(), Some(10))]);
        builds.add_name("next");
        assert_eq!(builds.order("a", "b"), BuildOrder::Undetermined);
        assert_eq!(builds.order("a", "next"), BuildOrder::Undetermined);
        assert_eq!(builds.order("a", "unheard"), BuildOrder::Undetermined);
        assert_eq!(builds.order("next", "next"), BuildOrder::Same);
        builds.add_run("next", 30);
        assert_eq!(builds.order("next", "a"), BuildOrder::Newer);
    }

    #[test]
    fn deleted_build_keeps_its_order() {
        let mut builds = Builds::new([("a".to_owned(), Some(1)), ("b".to_owned(), Some(2))]);
        builds.delete("a");
        builds.delete("unheard");
        assert_eq!(builds.listed(), ["b"]);
        assert_eq!(builds.order("a", "b"), BuildOrder::Older);
    }
}
