//! A trial of rules on past crashes, before the rules are saved.

use super::cause::CrashCause;
use super::rules::RuleSet;
use super::signature::{Version, group_id, group_with};
use crate::stack::Frame;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most moves that a trial lists. Counts are exact beyond it.
const MAX_MOVES: usize = 500;

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
    /// The cause.
    pub cause: CrashCause,
    /// The frames, with symbols as far as known.
    pub frames: Vec<Frame>,
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
    /// Groups that would become one.
    pub merges: Vec<Merge>,
    /// Groups that would become several.
    pub splits: Vec<Split>,
}

/// Tries rules, or another version of grouping, on keys. Nothing is changed.
#[must_use]
pub fn try_rules<'a>(
    version: Version,
    keys: impl IntoIterator<Item = &'a GroupedKey>,
    rules: &RuleSet,
) -> Trial {
    let mut trial = Trial::default();
    let mut sources: BTreeMap<TrialGroup, BTreeSet<TrialGroup>> = BTreeMap::new();
    let mut targets: BTreeMap<TrialGroup, BTreeSet<TrialGroup>> = BTreeMap::new();
    for key in keys {
        let grouping = group_with(version, &key.cause, &key.frames, rules);
        let from = TrialGroup {
            id: key.group.clone(),
            title: key.title.clone(),
        };
        let to = TrialGroup {
            id: group_id(&key.service, &grouping),
            title: grouping.title,
        };
        sources.entry(to.clone()).or_default().insert(from.clone());
        targets.entry(from.clone()).or_default().insert(to.clone());
        if from.id == to.id {
            trial.unchanged_keys += 1;
            continue;
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
    keep_largest(&mut trial.moves);
    let merged = sources.into_iter().filter(|(_, from)| from.len() > 1);
    trial.merges = merged
        .map(|(to, from)| Merge {
            to,
            from: from.into_iter().collect(),
        })
        .collect();
    let split = targets.into_iter().filter(|(_, to)| to.len() > 1);
    trial.splits = split
        .map(|(from, to)| Split {
            from,
            to: to.into_iter().collect(),
        })
        .collect();
    trial
}

fn keep_largest(moves: &mut Vec<KeyMove>) {
    moves.sort_by(|one, two| two.reports.cmp(&one.reports).then_with(|| one.key.cmp(&two.key)));
    moves.truncate(MAX_MOVES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grouping::cause::CrashFacts;

    fn key(key: &str, reports: u64, names: &[&str], rules: &RuleSet) -> GroupedKey {
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
        let grouping = group_with(Version::LATEST, &cause, &frames, rules);
        GroupedKey {
            key: key.to_owned(),
            service: "ledger".to_owned(),
            group: group_id("ledger", &grouping),
            title: grouping.title,
            reports,
            cause,
            frames,
        }
    }

    fn keys(rules: &RuleSet) -> [GroupedKey; 4] {
        [
            key("a", 5, &["app::fail", "ledger::post", "main"], rules),
            key("b", 7, &["app::fail", "ledger::settle", "main"], rules),
            key("c", 1, &["ledger::post", "main"], rules),
            key("d", 2, &["ledger::load", "main"], rules),
        ]
    }

    #[test]
    fn rules_that_change_nothing_move_nothing() {
        let rules = RuleSet::default();
        let trial = try_rules(Version::LATEST, &keys(&rules), &rules);
        assert_eq!((trial.moved_keys, trial.unchanged_keys), (0, 4));
        assert!(trial.moves.is_empty() && trial.merges.is_empty() && trial.splits.is_empty());
    }

    #[test]
    fn ignored_wrapper_splits_and_merges() {
        let keys = keys(&RuleSet::default());
        let rules = RuleSet::parse("ignore app::fail").unwrap();
        let trial = try_rules(Version::LATEST, &keys, &rules);
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
        let trial = try_rules(Version::LATEST, &keys(&rules), &RuleSet::default());
        assert_eq!(
            (trial.moved_keys, trial.splits.len(), trial.merges.len()),
            (4, 1, 0)
        );
        assert_eq!(trial.splits[0].to.len(), 3);
    }
}
