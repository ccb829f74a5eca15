//! Suggestions of similar groups, by the alignment of their stacks in linear time.
//!
//! The method follows FaST (Rodrigues, Aloise, Fernandes, Dagenais: *FaST: A linear time stack
//! trace alignment heuristic for crash report deduplication*, MSR 2022). The n-th occurrence of a
//! function in one stack is aligned with the n-th occurrence in the other. A pair counts by the
//! weight of its function, less the difference of its positions. Rare functions and inner frames
//! weigh more. A suggestion is for people: nothing is merged.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// The frames of a stack that are compared.
const MAX_FRAMES: usize = 40;
/// The most groups that are compared.
const MAX_GROUPS: usize = 10_000;
/// The most suggestions.
const MAX_SUGGESTIONS: usize = 20;
/// The least similarity of a suggestion.
const LEAST: f64 = 0.4;
/// The exponent of a position's weight: the fifth frame weighs a third of the first.
const POSITION_EXPONENT: f64 = 0.7;
/// The loss of a pair for each frame of difference in position.
const SHIFT_LOSS: f64 = 0.1;

/// A group that may have the same defect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suggestion {
    /// The identifier of the group.
    pub group: String,
    /// The similarity, from 0 to 1.
    pub similarity: f64,
}

/// Returns the groups whose stacks are most similar to a stack, most similar first.
///
/// Stacks are lists of normalized names, innermost first.
#[must_use]
pub fn similar<'a>(
    stack: &[String],
    groups: impl IntoIterator<Item = (&'a str, &'a [String])>,
) -> Vec<Suggestion> {
    let groups: Vec<(&str, &[String])> = groups.into_iter().take(MAX_GROUPS).collect();
    let weights = Weights::of(std::iter::once(stack).chain(groups.iter().map(|(_, names)| *names)));
    let mut found: Vec<Suggestion> = groups
        .into_iter()
        .map(|(group, names)| Suggestion {
            group: group.to_owned(),
            similarity: similarity(stack, names, &weights),
        })
        .filter(|suggestion| suggestion.similarity >= LEAST)
        .collect();
    found.sort_by(|one, two| {
        two.similarity
            .total_cmp(&one.similarity)
            .then_with(|| one.group.cmp(&two.group))
    });
    found.truncate(MAX_SUGGESTIONS);
    found
}

/// The weights of functions: rare ones weigh more.
struct Weights<'a> {
    stacks: f64,
    frequencies: HashMap<&'a str, u32>,
}

impl<'a> Weights<'a> {
    fn of(stacks: impl Iterator<Item = &'a [String]>) -> Self {
        let mut count = 0_u32;
        let mut frequencies = HashMap::new();
        for stack in stacks {
            count += 1;
            let names: HashSet<&str> = stack.iter().take(MAX_FRAMES).map(String::as_str).collect();
            for name in names {
                *frequencies.entry(name).or_insert(0) += 1;
            }
        }
        Self {
            stacks: f64::from(count),
            frequencies,
        }
    }

    /// Returns the weight of a function at a position.
    fn weight(&self, name: &str, position: usize) -> f64 {
        let stacks = f64::from(self.frequencies.get(name).copied().unwrap_or(1));
        let rarity = 1.0 + (self.stacks / stacks).ln();
        rarity / position_number(position + 1).powf(POSITION_EXPONENT)
    }
}

/// Returns a position as a number. Positions are below [`MAX_FRAMES`].
fn position_number(position: usize) -> f64 {
    f64::from(u32::try_from(position).unwrap_or(u32::MAX))
}

/// Returns the similarity of two stacks: the weight of aligned frames in relation to all frames.
fn similarity(one: &[String], two: &[String], weights: &Weights<'_>) -> f64 {
    let mut occurrences: HashMap<&str, Vec<usize>> = HashMap::new();
    for (position, name) in two.iter().take(MAX_FRAMES).enumerate().rev() {
        occurrences.entry(name).or_default().push(position);
    }
    let total: f64 = [one, two]
        .iter()
        .flat_map(|stack| stack.iter().take(MAX_FRAMES).enumerate())
        .map(|(position, name)| weights.weight(name, position))
        .sum();
    let mut aligned = 0.0;
    for (position, name) in one.iter().take(MAX_FRAMES).enumerate() {
        let Some(other) = occurrences.get_mut(name.as_str()).and_then(Vec::pop) else {
            continue;
        };
        let pair = weights.weight(name, position) + weights.weight(name, other);
        let shift = position_number(position.abs_diff(other));
        aligned += pair * (-SHIFT_LOSS * shift).exp();
    }
    if total > 0.0 { aligned / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    fn suggest(subject: &str, groups: &[(&str, &str)]) -> Vec<(String, f64)> {
        let stacks: Vec<(&str, Vec<String>)> = groups.iter().map(|(id, names)| (*id, stack(names))).collect();
        let found = similar(
            &stack(subject),
            stacks.iter().map(|(id, names)| (*id, &names[..])),
        );
        found
            .into_iter()
            .map(|suggestion| (suggestion.group, suggestion.similarity))
            .collect()
    }

    #[test]
    fn equal_stacks_are_most_similar() {
        let groups = [
            ("other", "read parse run main"),
            ("same", "settle post run main"),
            ("near", "settle post retry run main"),
        ];
        let found = suggest("settle post run main", &groups);
        let names: Vec<&str> = found.iter().map(|(group, _)| &**group).collect();
        assert_eq!(names, ["same", "near"]);
        assert!((found[0].1 - 1.0).abs() < 1e-9 && found[1].1 < 0.95, "{found:?}");
    }

    #[test]
    fn inner_frames_weigh_more_than_outer_ones() {
        let groups = [("inner", "settle post x y z"), ("outer", "x y z run main")];
        let found = suggest("settle post a run main", &groups);
        assert_eq!(found[0].0, "inner");
    }

    #[test]
    fn similarity_is_symmetric_and_between_0_and_1() {
        let (one, two) = (stack("a b a c d a"), stack("b a a e a"));
        let weights = Weights::of([&one[..], &two[..]].into_iter());
        let there = similarity(&one, &two, &weights);
        let back = similarity(&two, &one, &weights);
        assert!((there - back).abs() < 1e-9);
        assert!(there > 0.0 && there < 1.0);
        assert!((similarity(&[], &[], &weights)).abs() < 1e-9);
    }

    #[test]
    fn many_long_stacks_take_bounded_time() {
        let started = std::time::Instant::now();
        let long = vec!["f".to_owned(); 5000];
        let groups: Vec<(&str, &[String])> = vec![("g", &long[..]); 3000];
        assert_eq!(similar(&long, groups).len(), MAX_SUGGESTIONS);
        assert!(started.elapsed().as_secs() < 20);
    }
}
