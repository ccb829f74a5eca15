//! The order in which callers come before their callees.
//!
//! Source: LLVM, `ProfiledCallGraph.h`, and `scc_iterator` and `scc_member_iterator` in
//! `SCCIterator.h`.

use super::tree::{ContextTree, NodeIdx, ROOT};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The calls among functions, with their numbers of executions.
struct CallGraph {
    names: Vec<Arc<str>>,
    /// The callees of each function, in the order of their names.
    callees: Vec<Vec<(usize, u64)>>,
}

/// Returns the functions, callers before callees. Calls that are not executed more than `cold`
/// times are ignored.
pub(super) fn callers_first(tree: &ContextTree, cold: u64) -> Vec<Arc<str>> {
    let graph = CallGraph::new(tree, cold);
    let mut order: Vec<usize> = graph
        .components()
        .into_iter()
        .flat_map(|component| graph.sorted(component))
        .collect();
    order.reverse();
    order
        .into_iter()
        .filter_map(|function| graph.names.get(function).cloned())
        .collect()
}

/// Returns how often a function was called in a context.
pub(super) fn calls_of(tree: &ContextTree, node: NodeIdx) -> Option<u64> {
    let callee = tree.node(node)?;
    let samples = tree.samples(node)?;
    let caller = tree.samples(callee.parent)?;
    let calls = caller.calls_of(callee.call_site, &callee.function);
    Some(calls.max(samples.entries()))
}

impl CallGraph {
    fn new(tree: &ContextTree, cold: u64) -> Self {
        let mut edges: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>> = BTreeMap::new();
        for index in tree.nodes() {
            let Some(callee) = tree.node(index) else {
                continue;
            };
            edges.entry(Arc::clone(&callee.function)).or_default();
            let Some(caller) = tree.node(callee.parent).filter(|_| callee.parent != ROOT) else {
                continue;
            };
            let calls = edges.entry(Arc::clone(&caller.function)).or_default();
            let sum = calls.entry(Arc::clone(&callee.function)).or_default();
            *sum = sum.saturating_add(calls_of(tree, index).unwrap_or(0));
        }
        let names: Vec<Arc<str>> = edges.keys().cloned().collect();
        let numbers: HashMap<&str, usize> = names
            .iter()
            .enumerate()
            .map(|(number, name)| (&**name, number))
            .collect();
        let of = |calls: &BTreeMap<Arc<str>, u64>| {
            let kept = calls.iter().filter(|(_, weight)| cold == 0 || **weight > cold);
            let calls = kept.filter_map(|(name, weight)| Some((*numbers.get(&**name)?, *weight)));
            calls.collect()
        };
        Self {
            callees: edges.values().map(of).collect(),
            names,
        }
    }

    fn callees(&self, function: usize) -> &[(usize, u64)] {
        self.callees.get(function).map_or(&[], |callees| callees)
    }

    /// Returns the functions that call each other, callees first, by Tarjan's algorithm.
    fn components(&self) -> Vec<Vec<usize>> {
        /// A function that is being visited.
        struct Visit {
            function: usize,
            next: usize,
            lowest: usize,
        }
        const DONE: usize = usize::MAX;
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut components = Vec::new();
        let mut stack = Vec::new();
        let mut visits: Vec<Visit> = Vec::new();
        let mut number = 0;
        for root in 0..self.names.len() {
            let mut to_visit = Some(root).filter(|root| !numbers.contains_key(root));
            loop {
                if let Some(function) = to_visit.take() {
                    number += 1;
                    numbers.insert(function, number);
                    stack.push(function);
                    visits.push(Visit {
                        function,
                        next: 0,
                        lowest: number,
                    });
                }
                let Some(visit) = visits.last_mut() else {
                    break;
                };
                if let Some((callee, _)) = self.callees(visit.function).get(visit.next) {
                    visit.next += 1;
                    match numbers.get(callee) {
                        None => to_visit = Some(*callee),
                        Some(known) => visit.lowest = visit.lowest.min(*known),
                    }
                    continue;
                }
                let (function, lowest) = (visit.function, visit.lowest);
                visits.pop();
                if let Some(caller) = visits.last_mut() {
                    caller.lowest = caller.lowest.min(lowest);
                }
                if numbers.get(&function) == Some(&lowest) {
                    let mut component = Vec::new();
                    while let Some(member) = stack.pop() {
                        numbers.insert(member, DONE);
                        component.push(member);
                        if member == function {
                            break;
                        }
                    }
                    components.push(component);
                }
            }
        }
        components
    }

    /// Returns functions that call each other, so that the most executed calls come last: the
    /// reversed order of a maximum spanning tree.
    fn sorted(&self, component: Vec<usize>) -> Vec<usize> {
        if component.len() <= 1 {
            return component;
        }
        let members: HashSet<usize> = component.iter().copied().collect();
        let mut edges: Vec<(usize, usize, u64)> = Vec::new();
        for function in &component {
            let callees = self.callees(*function).iter();
            let inside = callees.filter(|(callee, _)| members.contains(callee));
            edges.extend(inside.map(|(callee, weight)| (*function, *callee, *weight)));
        }
        edges.sort_by_key(|(_, _, weight)| std::cmp::Reverse(*weight));
        let mut groups: HashMap<usize, usize> = component.iter().map(|member| (*member, *member)).collect();
        let mut tree: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (from, to, _) in &edges {
            let (one, other) = (group_of(&mut groups, *from), group_of(&mut groups, *to));
            if one != other {
                groups.insert(other, one);
                tree.insert((*from, *to));
            }
        }
        let mut incoming: HashMap<usize, BTreeSet<(usize, usize)>> = HashMap::new();
        for edge in &tree {
            incoming.entry(edge.1).or_default().insert(*edge);
        }
        let has_none = |incoming: &HashMap<usize, BTreeSet<(usize, usize)>>, function: usize| {
            incoming.get(&function).is_none_or(BTreeSet::is_empty)
        };
        let mut queue: VecDeque<usize> = VecDeque::new();
        let mut queued = HashSet::new();
        for (from, _, _) in &edges {
            if has_none(&incoming, *from) && queued.insert(*from) {
                queue.push_back(*from);
            }
        }
        let mut sorted = Vec::new();
        while let Some(function) = queue.pop_front() {
            sorted.push(function);
            for (callee, _) in self.callees(function) {
                let edge = (function, *callee);
                incoming.entry(*callee).or_default().remove(&edge);
                if tree.contains(&edge) && has_none(&incoming, *callee) {
                    queue.push_back(*callee);
                }
            }
        }
        sorted.reverse();
        sorted
    }
}

/// Returns the group of a function, and shortens the way to it.
fn group_of(groups: &mut HashMap<usize, usize>, function: usize) -> usize {
    let mut root = function;
    while let Some(next) = groups.get(&root).filter(|next| **next != root) {
        root = *next;
    }
    let mut at = function;
    while at != root {
        match groups.insert(at, root) {
            Some(next) => at = next,
            None => break,
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(calls: &[(&str, &str, u64)]) -> Vec<String> {
        let mut names = BTreeSet::new();
        for (caller, callee, _) in calls {
            names.extend([*caller, *callee]);
        }
        let names: Vec<&str> = names.into_iter().collect();
        let number = |name: &str| names.iter().position(|known| *known == name).unwrap();
        let callees = names.iter().map(|name| {
            let calls = calls.iter().filter(|(caller, _, _)| caller == name);
            let mut callees: Vec<_> = calls
                .map(|(_, callee, weight)| (number(callee), *weight))
                .collect();
            callees.sort_unstable();
            callees
        });
        let graph = CallGraph {
            callees: callees.collect(),
            names: names.iter().map(|name| (*name).into()).collect(),
        };
        let components = graph.components().into_iter();
        let mut order: Vec<usize> = components.flat_map(|component| graph.sorted(component)).collect();
        order.reverse();
        order.into_iter().map(|at| names[at].to_owned()).collect()
    }

    #[test]
    fn callers_are_before_their_callees() {
        let calls = [("main", "b", 3), ("b", "a", 9), ("main", "a", 1), ("a", "z", 1)];
        assert_eq!(order(&calls), ["main", "b", "a", "z"]);
    }

    #[test]
    fn hot_calls_of_a_cycle_decide() {
        let calls = [("main", "a", 1), ("a", "b", 5), ("b", "c", 50), ("c", "a", 40)];
        assert_eq!(order(&calls), ["main", "b", "c", "a"]);
    }
}
