//! Call trees: weights of stacks, added up by function.

use crate::columns::add;
use crate::function_profile::{FunctionProfile, SiteSample, SymbolId};
use crate::stacks::StackId;
use crate::table::Id;
use std::collections::HashMap;

/// The index of a node of a [`CallTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIdx(u32);

impl NodeIdx {
    /// The node of all stacks.
    pub const ROOT: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A function with the same callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<const N: usize> {
    /// The function. `None`: the root.
    pub symbol: Option<SymbolId>,
    /// The caller's node. That of the root is the root.
    pub caller: NodeIdx,
    /// The weight of the stacks that end here, by column.
    pub own: [i64; N],
    /// The weight of the stacks that pass here or end here, by column.
    pub total: [i64; N],
}

/// A call tree with `N` columns of weights: one for a profile, two for a comparison.
///
/// ```
/// use backtrail_profile::{CallTree, FunctionProfile, NodeIdx, format::folded};
///
/// let profile = folded::read("main;work 3\nmain 1\n".as_bytes())?;
/// let tree = CallTree::<1>::new(&FunctionProfile::new(&profile)?, |sample| Some((0, sample.weight)));
/// let (main, node) = tree.callees(NodeIdx::ROOT)[0];
/// assert_eq!((node.own, node.total), ([1], [4]));
/// assert_eq!(tree.callees(main)[0].1.total, [3]);
/// # Ok::<(), backtrail_profile::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CallTree<const N: usize> {
    nodes: Vec<Node<N>>,
    /// The callees of each node, by descending weight.
    callees: Vec<Vec<NodeIdx>>,
}

/// The frames of all inverted stacks that are read. A stack's share is at least
/// [`MIN_INVERTED_DEPTH`].
const MAX_INVERTED_FRAMES: usize = 1 << 24;
/// The frames of an inverted stack that are always read.
const MIN_INVERTED_DEPTH: usize = 16;

impl<const N: usize> CallTree<N> {
    /// Returns the tree of callees from the outermost frames on. `column` gives the column and
    /// weight of a sample, or `None` for samples that are left out.
    #[must_use]
    pub fn new(profile: &FunctionProfile, column: impl Fn(&SiteSample) -> Option<(usize, i64)>) -> Self {
        Self::inward(profile, weights(columns(profile, column)), None)
    }

    /// Returns the tree of samples with their columns and weights.
    #[must_use]
    pub fn of_samples<'a>(
        profile: &'a FunctionProfile,
        samples: impl IntoIterator<Item = (&'a SiteSample, usize, i64)>,
    ) -> Self {
        Self::inward(profile, weights(samples), None)
    }

    /// Returns the tree of what a function calls. Its only root is the function's outermost call in
    /// each stack.
    #[must_use]
    pub fn callees_of(
        profile: &FunctionProfile,
        symbol: SymbolId,
        column: impl Fn(&SiteSample) -> Option<(usize, i64)>,
    ) -> Self {
        Self::inward(profile, weights(columns(profile, column)), Some(symbol))
    }

    /// Returns the tree of callers from the innermost frames on.
    ///
    /// Of a large profile with deep stacks, the outermost callers are left out: at most 2^24 frames
    /// are read, or 16 of each stack.
    #[must_use]
    pub fn inverted(profile: &FunctionProfile, column: impl Fn(&SiteSample) -> Option<(usize, i64)>) -> Self {
        Self::outward(profile, weights(columns(profile, column)), None)
    }

    /// Returns the tree of what calls a function, from the function's outermost call outward, with
    /// the limit of [`CallTree::inverted`].
    #[must_use]
    pub fn callers_of(
        profile: &FunctionProfile,
        symbol: SymbolId,
        column: impl Fn(&SiteSample) -> Option<(usize, i64)>,
    ) -> Self {
        Self::outward(profile, weights(columns(profile, column)), Some(symbol))
    }

    /// Builds a tree from the outermost frames inward. The callers of a stack are read once.
    fn inward(
        profile: &FunctionProfile,
        weights: HashMap<StackId, [i64; N]>,
        focus: Option<SymbolId>,
    ) -> Self {
        let mut builder = Builder::new();
        // The node of each stack. `None`: the focus is not on the stack.
        let mut nodes = vec![focus.is_none().then_some(NodeIdx::ROOT)];
        // A stack without samples in the tree must not add nodes to it.
        let mut is_needed = vec![false; profile.stacks.len()];
        for stack in weights.keys() {
            mark(profile, *stack, &mut is_needed);
        }
        for (stack, caller, site) in profile.stacks.iter() {
            let caller = nodes.get(caller.index()).copied().flatten();
            let is_focus = caller.is_none() && focus == Some(site.symbol);
            let caller = if is_focus { Some(NodeIdx::ROOT) } else { caller };
            let is_needed = is_needed.get(stack.index()) == Some(&true);
            let caller = caller.filter(|_| is_needed);
            nodes.push(caller.map(|caller| builder.callee(caller, site.symbol)));
        }
        for (stack, weights) in weights {
            if let Some(node) = nodes.get(stack.index()).copied().flatten() {
                builder.add(node, weights);
            }
        }
        builder.finish()
    }

    /// Builds a tree from the innermost frames outward.
    fn outward(
        profile: &FunctionProfile,
        weights: HashMap<StackId, [i64; N]>,
        focus: Option<SymbolId>,
    ) -> Self {
        let mut builder = Builder::new();
        let mut stacks: Vec<_> = weights.into_iter().collect();
        stacks.sort_unstable_by_key(|(stack, _)| *stack);
        let depth = (MAX_INVERTED_FRAMES / stacks.len().max(1)).max(MIN_INVERTED_DEPTH);
        let outermost = focus.map(|symbol| outermost(profile, symbol));
        for (stack, weights) in stacks {
            let first = match &outermost {
                None => Some(stack),
                Some(outermost) => outermost.get(stack.index()).copied().flatten(),
            };
            let Some(first) = first else { continue };
            let mut node = NodeIdx::ROOT;
            for site in profile.stacks.frames(first).take(depth) {
                node = builder.callee(node, site.symbol);
            }
            builder.add(node, weights);
        }
        builder.finish()
    }

    /// Returns a node.
    #[must_use]
    pub fn node(&self, at: NodeIdx) -> Option<&Node<N>> {
        self.nodes.get(at.index())
    }

    /// Returns the callees of a node, those with the largest weight first. Of an inverted tree,
    /// these are callers.
    #[must_use]
    pub fn callees(&self, at: NodeIdx) -> Vec<(NodeIdx, &Node<N>)> {
        let callees = self.callees.get(at.index()).into_iter().flatten();
        callees.filter_map(|at| Some((*at, self.node(*at)?))).collect()
    }

    /// Returns all nodes. Callers come before their callees, and the root is the first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeIdx, &Node<N>)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.map(|(index, node)| (NodeIdx(index as u32), node))
    }

    /// Returns the number of nodes, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there is no node but the root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }
}

/// Returns the samples that have a column.
fn columns<'a>(
    profile: &'a FunctionProfile,
    column: impl Fn(&SiteSample) -> Option<(usize, i64)> + 'a,
) -> impl Iterator<Item = (&'a SiteSample, usize, i64)> {
    let samples = profile.samples.iter();
    samples.filter_map(move |sample| {
        let (column, weight) = column(sample)?;
        Some((sample, column, weight))
    })
}

/// Returns the weights of each stack that has samples.
fn weights<'a, const N: usize>(
    samples: impl IntoIterator<Item = (&'a SiteSample, usize, i64)>,
) -> HashMap<StackId, [i64; N]> {
    let mut weights = HashMap::new();
    for (sample, column, weight) in samples {
        let weights = weights.entry(sample.stack).or_insert([0; N]);
        if let Some(sum) = weights.get_mut(column) {
            *sum = i64::saturating_add(*sum, weight);
        }
    }
    weights
}

/// Marks a stack and its callers, up to the first that is marked already.
fn mark(profile: &FunctionProfile, stack: StackId, is_needed: &mut [bool]) {
    let mut next = Some(stack);
    while let Some(stack) = next {
        match is_needed.get_mut(stack.index()) {
            Some(marked @ false) => *marked = true,
            _ => break,
        }
        next = profile.stacks.split(stack).map(|(caller, _)| caller);
    }
}

/// Returns for each stack the part that ends with the function's outermost call.
fn outermost(profile: &FunctionProfile, symbol: SymbolId) -> Vec<Option<StackId>> {
    let mut outermost: Vec<Option<StackId>> = vec![None];
    for (stack, caller, site) in profile.stacks.iter() {
        let of_caller = outermost.get(caller.index()).copied().flatten();
        outermost.push(of_caller.or((site.symbol == symbol).then_some(stack)));
    }
    outermost
}

/// A tree that grows.
struct Builder<const N: usize> {
    nodes: Vec<Node<N>>,
    known: HashMap<(NodeIdx, SymbolId), NodeIdx>,
}

impl<const N: usize> Builder<N> {
    fn new() -> Self {
        let root = Node {
            symbol: None,
            caller: NodeIdx::ROOT,
            own: [0; N],
            total: [0; N],
        };
        Self {
            nodes: vec![root],
            known: HashMap::new(),
        }
    }

    /// Returns the node of a callee.
    fn callee(&mut self, caller: NodeIdx, symbol: SymbolId) -> NodeIdx {
        let next = NodeIdx(self.nodes.len() as u32);
        let at = *self.known.entry((caller, symbol)).or_insert(next);
        if at == next {
            self.nodes.push(Node {
                symbol: Some(symbol),
                caller,
                own: [0; N],
                total: [0; N],
            });
        }
        at
    }

    fn add(&mut self, at: NodeIdx, weights: [i64; N]) {
        if let Some(node) = self.nodes.get_mut(at.index()) {
            add(&mut node.own, weights);
        }
    }

    /// Adds up the totals, and sorts the callees.
    fn finish(mut self) -> CallTree<N> {
        for index in (0..self.nodes.len()).rev() {
            let Some(node) = self.nodes.get_mut(index) else {
                continue;
            };
            add(&mut node.total, node.own);
            let (caller, total) = (node.caller, node.total);
            if index > 0
                && let Some(caller) = self.nodes.get_mut(caller.index())
            {
                add(&mut caller.total, total);
            }
        }
        let mut callees = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            if let Some(callees) = callees.get_mut(node.caller.index()) {
                callees.push(NodeIdx(index as u32));
            }
        }
        let weight = |at: &NodeIdx| {
            let node = self.nodes.get(at.index());
            node.map_or(0, |node| {
                node.total
                    .iter()
                    .fold(0, |sum: i64, weight| sum.saturating_add(weight.saturating_abs()))
            })
        };
        for callees in &mut callees {
            callees.sort_by_key(|at| std::cmp::Reverse(weight(at)));
        }
        CallTree {
            nodes: self.nodes,
            callees,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::folded;

    const FOLDED: &str = "main;f;g;f;h 5\nmain;f 2\nmain;g 1\nother 4\n";

    fn profile() -> FunctionProfile {
        FunctionProfile::new(&folded::read(FOLDED.as_bytes()).unwrap()).unwrap()
    }

    fn weight(sample: &SiteSample) -> Option<(usize, i64)> {
        Some((0, sample.weight))
    }

    /// Returns each node as `indented name own/total`.
    fn text(profile: &FunctionProfile, tree: &CallTree<1>) -> Vec<String> {
        fn add(
            profile: &FunctionProfile,
            tree: &CallTree<1>,
            at: NodeIdx,
            depth: usize,
            out: &mut Vec<String>,
        ) {
            for (callee, node) in tree.callees(at) {
                let name = profile.name(node.symbol.unwrap());
                out.push(format!(
                    "{}{name} {}/{}",
                    " ".repeat(depth),
                    node.own[0],
                    node.total[0]
                ));
                add(profile, tree, callee, depth + 1, out);
            }
        }
        let mut out = Vec::new();
        add(profile, tree, NodeIdx::ROOT, 0, &mut out);
        out
    }

    fn named(profile: &FunctionProfile, name: &str) -> SymbolId {
        let mut symbols = profile.symbols.iter();
        symbols.find(|(_, symbol)| &*symbol.name == name).unwrap().0
    }

    #[test]
    fn tree_adds_up_stacks() {
        let profile = profile();
        let tree = CallTree::new(&profile, weight);
        assert_eq!(
            text(&profile, &tree),
            [
                "main 0/8",
                " f 2/7",
                "  g 0/5",
                "   f 0/5",
                "    h 5/5",
                " g 1/1",
                "other 4/4"
            ]
        );
        assert_eq!(tree.node(NodeIdx::ROOT).unwrap().total, [12]);
    }

    #[test]
    fn inverted_tree_has_callers() {
        let profile = profile();
        let tree = CallTree::inverted(&profile, weight);
        assert_eq!(
            text(&profile, &tree),
            [
                "h 0/5",
                " f 0/5",
                "  g 0/5",
                "   f 0/5",
                "    main 5/5",
                "other 4/4",
                "f 0/2",
                " main 2/2",
                "g 0/1",
                " main 1/1",
            ]
        );
    }

    #[test]
    fn recursive_function_counts_once_in_its_trees() {
        let profile = profile();
        let f = named(&profile, "f");
        let callees = CallTree::callees_of(&profile, f, weight);
        assert_eq!(
            text(&profile, &callees),
            ["f 2/7", " g 0/5", "  f 0/5", "   h 5/5"]
        );
        let callers = CallTree::callers_of(&profile, f, weight);
        assert_eq!(text(&profile, &callers), ["f 0/7", " main 7/7"]);
    }

    #[test]
    fn samples_that_are_left_out_have_no_nodes() {
        let profile = profile();
        let tree = CallTree::new(&profile, |sample| {
            (sample.weight == 4).then_some((0, sample.weight))
        });
        assert_eq!(text(&profile, &tree), ["other 4/4"]);
    }
}
