//! Two sequences side by side: what both have in the same order, and what only one has.

use std::collections::{HashMap, VecDeque};

/// A step through both sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignStep {
    /// The elements at these places are the same.
    Both(usize, usize),
    /// Only the first sequence has the element at this place.
    First(usize),
    /// Only the second one.
    Second(usize),
}

/// Two sequences side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Every element once.
    pub steps: Vec<AlignStep>,
    /// They differ so much that the nth of a kind was paired with the nth of it, whatever the
    /// order.
    pub out_of_order: bool,
}

/// Aligns two sequences with as few unpaired elements as possible.
///
/// See Myers, "An O(ND) Difference Algorithm" (1986). If more than `most` elements differ, those
/// between the common beginning and end are paired without regard to order.
#[must_use]
pub fn align(first: &[u32], second: &[u32], most: usize) -> Alignment {
    let same = |pair: &(&u32, &u32)| pair.0 == pair.1;
    let head = first.iter().zip(second).take_while(same).count();
    let rest = |all: &'_ [u32]| all.get(head..).unwrap_or(&[]).to_vec();
    let (mut one, mut other) = (rest(first), rest(second));
    let tail = one.iter().rev().zip(other.iter().rev()).take_while(same).count();
    one.truncate(one.len() - tail);
    other.truncate(other.len() - tail);

    let mut steps: Vec<AlignStep> = (0..head).map(|at| AlignStep::Both(at, at)).collect();
    let (middle, out_of_order) = match shortest(&one, &other, most) {
        Some(steps) => (steps, false),
        None => (by_kind(&one, &other), true),
    };
    steps.extend(middle.into_iter().map(|step| step.moved(head, head)));
    let (one, other) = (head + one.len(), head + other.len());
    steps.extend((0..tail).map(|at| AlignStep::Both(one + at, other + at)));
    Alignment { steps, out_of_order }
}

impl AlignStep {
    fn moved(self, first: usize, second: usize) -> Self {
        match self {
            Self::Both(one, other) => Self::Both(one + first, other + second),
            Self::First(at) => Self::First(at + first),
            Self::Second(at) => Self::Second(at + second),
        }
    }
}

/// The steps with the fewest differences; `None`: there are more than `most`.
fn shortest(first: &[u32], second: &[u32], most: usize) -> Option<Vec<AlignStep>> {
    let (len, other_len) = (first.len() as isize, second.len() as isize);
    // The furthest point on each diagonal (index in the first minus index in the second) with this
    // number of differences.
    let mut reached: Vec<Vec<isize>> = Vec::new();
    for differences in 0..=most as isize {
        let mut row = Vec::with_capacity(differences as usize + 1);
        for diagonal in (-differences..=differences).step_by(2) {
            let before = |diagonal: isize| at_diagonal(reached.last(), differences - 1, diagonal);
            let mut at = match (before(diagonal - 1), before(diagonal + 1)) {
                _ if differences == 0 => 0,
                (Some(left), Some(up)) if left < up => up,
                (Some(left), _) => left + 1,
                (None, Some(up)) => up,
                (None, None) => continue,
            };
            while at < len
                && at - diagonal < other_len
                && first.get(at as usize) == second.get((at - diagonal) as usize)
            {
                at += 1;
            }
            row.push(at);
            if at >= len && at - diagonal >= other_len {
                reached.push(row);
                return Some(way_back(&reached, len, other_len));
            }
        }
        reached.push(row);
    }
    None
}

/// Returns the furthest point on a diagonal with this number of differences.
fn at_diagonal(row: Option<&Vec<isize>>, differences: isize, diagonal: isize) -> Option<isize> {
    let at = usize::try_from((diagonal + differences) / 2).ok()?;
    (diagonal.abs() <= differences).then(|| row?.get(at).copied())?
}

fn way_back(reached: &[Vec<isize>], len: isize, other_len: isize) -> Vec<AlignStep> {
    let (mut at, mut other) = (len, other_len);
    let mut steps = Vec::new();
    for differences in (0..reached.len() as isize).rev() {
        let diagonal = at - other;
        let row = usize::try_from(differences - 1)
            .ok()
            .and_then(|row| reached.get(row));
        let left = at_diagonal(row, differences - 1, diagonal - 1);
        let up = at_diagonal(row, differences - 1, diagonal + 1);
        let (begin, difference) = match (left, up) {
            _ if differences == 0 => (0, None),
            (Some(left), Some(up)) if left < up => (up, Some(false)),
            (Some(left), _) => (left + 1, Some(true)),
            (None, Some(up)) => (up, Some(false)),
            (None, None) => (0, None),
        };
        while at > begin && other > 0 {
            (at, other) = (at - 1, other - 1);
            steps.push(AlignStep::Both(at as usize, other as usize));
        }
        match difference {
            Some(true) => {
                at -= 1;
                steps.push(AlignStep::First(at as usize));
            }
            Some(false) => {
                other -= 1;
                steps.push(AlignStep::Second(other as usize));
            }
            None => {}
        }
    }
    steps.reverse();
    steps
}

/// The nth of a kind with the nth of it.
fn by_kind(first: &[u32], second: &[u32]) -> Vec<AlignStep> {
    let mut places: HashMap<u32, VecDeque<usize>> = HashMap::new();
    for (at, &kind) in second.iter().enumerate() {
        places.entry(kind).or_default().push_back(at);
    }
    let mut steps: Vec<AlignStep> = first
        .iter()
        .enumerate()
        .map(
            |(at, kind)| match places.get_mut(kind).and_then(VecDeque::pop_front) {
                Some(other) => AlignStep::Both(at, other),
                None => AlignStep::First(at),
            },
        )
        .collect();
    let mut rest: Vec<usize> = places.into_values().flatten().collect();
    rest.sort_unstable();
    steps.extend(rest.into_iter().map(AlignStep::Second));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(first: &str, second: &str, most: usize) -> String {
        let numbers = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
        let sign = |step: &AlignStep| match step {
            AlignStep::Both(at, _) => format!(" {}", &first[*at..=*at]),
            AlignStep::First(at) => format!(" -{}", &first[*at..=*at]),
            AlignStep::Second(at) => format!(" +{}", &second[*at..=*at]),
        };
        align(&numbers(first), &numbers(second), most)
            .steps
            .iter()
            .map(sign)
            .collect()
    }

    #[test]
    fn what_one_did_more_stands_where_it_did_it() {
        assert_eq!(text("pfr", "pcfr", 9), " p +c f r");
        assert_eq!(text("pcfr", "pfr", 9), " p -c f r");
        assert_eq!(text("", "ab", 9), " +a +b");
        assert_eq!(text("ab", "ab", 0), " a b");
        assert_eq!(text("axb", "ayb", 1), " a -x +y b");
    }

    /// The length of the longest common subsequence, by the table of all prefixes.
    fn longest_common(first: &[u32], second: &[u32]) -> usize {
        let mut row = vec![0; second.len() + 1];
        for one in first {
            let mut diagonal = 0;
            for (at, other) in second.iter().enumerate() {
                let above = row[at + 1];
                row[at + 1] = if one == other {
                    diagonal + 1
                } else {
                    above.max(row[at])
                };
                diagonal = above;
            }
        }
        row[second.len()]
    }

    proptest! {
        #[test]
        fn every_element_comes_once_and_no_fewer_can_differ(
            first in prop::collection::vec(0u32..4, 0..40),
            second in prop::collection::vec(0u32..4, 0..40),
            most in prop_oneof![Just(100usize), 0usize..12],
        ) {
            let Alignment { steps, out_of_order } = align(&first, &second, most);
            let (mut ones, mut others, mut both) = (Vec::new(), Vec::new(), 0);
            for step in &steps {
                match *step {
                    AlignStep::Both(one, other) => {
                        prop_assert_eq!(first[one], second[other]);
                        ones.push(one);
                        others.push(other);
                        both += 1;
                    }
                    AlignStep::First(one) => ones.push(one),
                    AlignStep::Second(other) => others.push(other),
                }
            }
            if out_of_order {
                others.sort_unstable();
            } else {
                prop_assert_eq!(both, longest_common(&first, &second));
            }
            prop_assert_eq!(ones, (0..first.len()).collect::<Vec<_>>());
            prop_assert_eq!(others, (0..second.len()).collect::<Vec<_>>());
            prop_assert!(!out_of_order || most < 100);
        }
    }
}
