//! A trial of rules on past crashes, before the rules are saved.

use super::signature::{Grouping, group_id};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most moves that a trial lists. Counts are exact beyond it.
const MAX_MOVES: usize = 500;
/// The most merges and splits that a trial lists.
const MAX_GROUPS: usize = 200;

/// A stack key with its group: the crashes at the same addresses.
#[derive(Clone, Debug)]
pub struct GroupedKey {
    /// The key.
    pub key: String,
    /// The service.
    pub service: String,
    /// The identifier of the key's group.
    pub group: String,
    /// The title of the key's group.
    pub title: String,
    /// The number of reports.
    pub reports: u64,
}

/// A group in a trial.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrialGroup {
    /// The identifier.
    pub id: String,
    /// The title.
    pub title: String,
}

/// A key that would move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMove {
    /// The key.
    pub key: String,
    /// The number of its reports.
    pub reports: u64,
    /// The group that has the key.
    pub from: TrialGroup,
    /// The group that would have it.
    pub to: TrialGroup,
}

/// A group that would get keys of several groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// The group after the change.
    pub to: TrialGroup,
    /// The groups before.
    pub from: Vec<TrialGroup>,
}

/// A group whose keys would go to several groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The group before the change.
    pub from: TrialGroup,
    /// The groups after it.
    pub to: Vec<TrialGroup>,
}

/// The effect that rules would have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The keys that would move, those with most reports first, at most 500.
    pub moves: Vec<KeyMove>,
    /// The number of keys that would move.
    pub moved_keys: u64,
    /// The number of their reports.
    pub moved_reports: u64,
    /// The number of keys that would stay.
    pub unchanged_keys: u64,
    /// Groups that would become one, at most 200.
    pub merges: Vec<Merge>,
    /// Groups that would become several, at most 200.
    pub splits: Vec<Split>,
}

/// A trial that runs. Keys come one after the other, so that not all of them are in memory.
#[derive(Debug, Default)]
pub struct TrialRun {
    trial: Trial,
    sources: BTreeMap<TrialGroup, BTreeSet<TrialGroup>>,
    targets: BTreeMap<TrialGroup, BTreeSet<TrialGroup>>,
}

impl TrialRun {
    /// Adds a key, and the grouping that it would have. Nothing is changed.
    pub fn add(&mut self, key: &GroupedKey, grouping: Grouping) {
        let trial = &mut self.trial;
        let from = TrialGroup {
            id: key.group.clone(),
            title: key.title.clone(),
        };
        let to = TrialGroup {
            id: group_id(&key.service, &grouping),
            title: grouping.title,
        };
        self.sources.entry(to.clone()).or_default().insert(from.clone());
        self.targets.entry(from.clone()).or_default().insert(to.clone());
        if from.id == to.id {
            trial.unchanged_keys += 1;
            return;
        }
        trial.moved_keys += 1;
        trial.moved_reports = trial.moved_reports.saturating_add(key.reports);
        trial.moves.push(KeyMove {
            key: key.key.clone(),
            reports: key.reports,
            from,
            to,
        });
        if trial.moves.len() >= 2 * MAX_MOVES {
            keep_largest(&mut trial.moves);
        }
    }

    /// Returns the number of keys so far.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.trial.moved_keys + self.trial.unchanged_keys
    }

    /// Returns the effect on all keys that were added.
    #[must_use]
    pub fn finish(self) -> Trial {
        let mut trial = self.trial;
        keep_largest(&mut trial.moves);
        let merged = self.sources.into_iter().filter(|(_, from)| from.len() > 1);
        let merged = merged.map(|(to, from)| Merge {
            to,
            from: from.into_iter().collect(),
        });
        trial.merges = merged.take(MAX_GROUPS).collect();
        let split = self.targets.into_iter().filter(|(_, to)| to.len() > 1);
        let split = split.map(|(from, to)| Split {
            from,
            to: to.into_iter().collect(),
        });
        trial.splits = split.take(MAX_GROUPS).collect();
        trial
    }
}

fn keep_largest(moves: &mut Vec<KeyMove>) {
    moves.sort_by(|one, two| two.reports.cmp(&one.reports).then_with(|| one.key.cmp(&two.key)));
    moves.truncate(MAX_MOVES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grouping::cause::{CrashCause, CrashFacts};
    use crate::grouping::rules::RuleSet;
    use crate::grouping::signature::{Version, group_with};
    use crate::stack::Frame;

    fn grouping(names: &[&str], rules: &RuleSet) -> Grouping {
        let cause = CrashCause::of(&CrashFacts {
            signal: 6,
            code: -6,
            ..CrashFacts::default()
        });
        let frame = |name: &&str| Frame {
            function: Some((*name).to_owned()),
            ..Frame::default()
        };
        let frames: Vec<Frame> = names.iter().map(frame).collect();
        group_with(Version::LATEST, &cause, &frames, rules)
    }

    /// The keys of a trial: name, reports and stack.
    const KEYS: [(&str, u64, &[&str]); 4] = [
        ("a", 5, &["app::fail", "ledger::post", "main"]),
        ("b", 7, &["app::fail", "ledger::settle", "main"]),
        ("c", 1, &["ledger::post", "main"]),
        ("d", 2, &["ledger::load", "main"]),
    ];

    /// Tries rules on the keys, whose groups are those of the rules before.
    fn try_rules(before: &RuleSet, after: &RuleSet) -> Trial {
        let mut run = TrialRun::default();
        for (key, reports, names) in KEYS {
            let old = grouping(names, before);
            let grouped = GroupedKey {
                key: key.to_owned(),
                service: "ledger".to_owned(),
                group: group_id("ledger", &old),
                title: old.title,
                reports,
            };
            run.add(&grouped, grouping(names, after));
        }
        assert_eq!(run.keys(), 4);
        run.finish()
    }

    #[test]
    fn rules_that_change_nothing_move_nothing() {
        let rules = RuleSet::default();
        let trial = try_rules(&rules, &rules);
        assert_eq!((trial.moved_keys, trial.unchanged_keys), (0, 4));
        assert!(trial.moves.is_empty() && trial.merges.is_empty() && trial.splits.is_empty());
    }

    #[test]
    fn ignored_wrapper_splits_and_merges() {
        let rules = RuleSet::parse("ignore app::fail").unwrap();
        let trial = try_rules(&RuleSet::default(), &rules);
        assert_eq!(
            (trial.moved_keys, trial.moved_reports, trial.unchanged_keys),
            (2, 12, 2)
        );
        let moved: Vec<&str> = trial.moves.iter().map(|moved| &*moved.key).collect();
        assert_eq!(moved, ["b", "a"]);
        assert_eq!(trial.splits.len(), 1);
        assert_eq!(trial.splits[0].from.title, "SIGABRT in app::fail");
        assert_eq!(trial.splits[0].to.len(), 2);
        assert_eq!(trial.merges.len(), 1);
        assert_eq!(trial.merges[0].to.title, "SIGABRT in ledger::post");
    }

    #[test]
    fn removed_rule_undoes_its_merge() {
        let rules = RuleSet::parse("group-by main as Everything").unwrap();
        let trial = try_rules(&rules, &RuleSet::default());
        assert_eq!(
            (trial.moved_keys, trial.splits.len(), trial.merges.len()),
            (4, 1, 0)
        );
        assert_eq!(trial.splits[0].to.len(), 3);
    }
}
