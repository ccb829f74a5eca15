//! Functions by weight.

use crate::columns::add;
use crate::function_profile::SymbolId;
use crate::tree::{CallTree, NodeIdx};
use std::collections::HashMap;

/// The weights of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionWeight<const N: usize> {
    /// The function.
    pub symbol: SymbolId,
    /// The weight of the samples in which it is the innermost function, by column.
    pub own: [i64; N],
    /// The weight of the samples in which it is on the stack, by column. Recursion counts once.
    pub total: [i64; N],
}

/// Returns the functions of a call tree, those with the largest own weight in the first column
/// first. The tree must not be an inverted one.
#[must_use]
pub fn top<const N: usize>(tree: &CallTree<N>) -> Vec<FunctionWeight<N>> {
    let mut rows: HashMap<SymbolId, FunctionWeight<N>> = HashMap::new();
    // The functions on the path to the current node, with the number of their calls.
    let mut active: HashMap<SymbolId, u32> = HashMap::new();
    let mut pending = vec![Step::Enter(NodeIdx::ROOT)];
    while let Some(step) = pending.pop() {
        let at = match step {
            Step::Enter(at) => at,
            Step::Leave(symbol) => {
                if let Some(calls) = active.get_mut(&symbol) {
                    *calls -= 1;
                }
                continue;
            }
        };
        let Some(node) = tree.node(at) else { continue };
        if let Some(symbol) = node.symbol {
            let row = rows.entry(symbol).or_insert(FunctionWeight {
                symbol,
                own: [0; N],
                total: [0; N],
            });
            add(&mut row.own, node.own);
            let calls = active.entry(symbol).or_insert(0);
            if *calls == 0 {
                add(&mut row.total, node.total);
            }
            *calls += 1;
            pending.push(Step::Leave(symbol));
        }
        pending.extend(tree.callees(at).into_iter().map(|(at, _)| Step::Enter(at)));
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    let first = |weights: [i64; N]| weights.first().copied().unwrap_or(0);
    rows.sort_by_key(|row| {
        std::cmp::Reverse((first(row.own), first(row.total), std::cmp::Reverse(row.symbol)))
    });
    rows
}

/// A step of a walk over the tree.
enum Step {
    Enter(NodeIdx),
    Leave(SymbolId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::folded;
    use crate::function_profile::FunctionProfile;

    #[test]
    fn recursive_function_counts_once() {
        let folded = "main;f;g;f;h 5\nmain;f 2\nmain;g 1\n";
        let profile = FunctionProfile::new(&folded::read(folded.as_bytes()).unwrap()).unwrap();
        let tree = CallTree::<1>::new(&profile, |sample| Some((0, sample.weight)));
        let row = |row: &FunctionWeight<1>| (profile.name(row.symbol).to_owned(), row.own[0], row.total[0]);
        let rows: Vec<_> = top(&tree).iter().map(row).collect();
        let expected = [("h", 5, 5), ("f", 2, 7), ("g", 1, 6), ("main", 0, 8)];
        assert_eq!(
            rows,
            expected.map(|(name, own, total)| (name.to_owned(), own, total))
        );
    }
}
