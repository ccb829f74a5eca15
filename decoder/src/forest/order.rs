//! Puts calls into the order of their beginnings, callers before callees.
//!
//! They are found in that order, but for roots that were adopted later than what they called.

use super::Forest;
use super::nodes::{NO_PARENT, Node, Nodes};

pub(super) fn order(forest: &mut Forest) {
    let nodes = &forest.nodes;
    let family = Family::of(nodes);
    let mut renamed = vec![NO_PARENT; nodes.len()];
    let mut depths: Vec<u32> = vec![0; nodes.len()];
    let mut ordered = Nodes::default();
    let mut next = family.first_root;
    while let Some(node) = nodes.get(next) {
        let parent = renamed.get(node.parent as usize).copied().unwrap_or(NO_PARENT);
        let depth = depths.get(parent as usize).map_or(0, |depth| depth + 1);
        let id = ordered.push(Node { parent, ..node }, depth).unwrap_or(NO_PARENT);
        if let (Some(name), Some(known)) = (renamed.get_mut(next as usize), depths.get_mut(id as usize)) {
            (*name, *known) = (id, depth);
        }
        next = family.after(next, nodes);
    }
    for (node, _) in &mut forest.interrupted {
        *node = renamed.get(*node as usize).copied().unwrap_or(NO_PARENT);
    }
    forest.interrupted.sort_unstable();
    forest.nodes = ordered;
}

/// Who comes next in the order.
struct Family {
    first_root: u32,
    first_child: Vec<u32>,
    next_sibling: Vec<u32>,
}

impl Family {
    fn of(nodes: &Nodes) -> Self {
        let mut first_child = vec![NO_PARENT; nodes.len()];
        let mut next_sibling = vec![NO_PARENT; nodes.len()];
        // Siblings begin in the order in which they were found, except that a node found late may
        // begin early: only an adopted root, which is no one's later sibling but the next root's.
        let mut order: Vec<u32> = (0..nodes.len() as u32).collect();
        order.sort_by_key(|&id| nodes.first(id).unwrap_or(0));
        let mut first_root = NO_PARENT;
        for &id in order.iter().rev() {
            let head = first_child
                .get_mut(nodes.parent(id) as usize)
                .unwrap_or(&mut first_root);
            if let Some(sibling) = next_sibling.get_mut(id as usize) {
                *sibling = std::mem::replace(head, id);
            }
        }
        Self {
            first_root,
            first_child,
            next_sibling,
        }
    }

    /// The first child, else the next sibling of the nearest ancestor that has one.
    fn after(&self, id: u32, nodes: &Nodes) -> u32 {
        let get = |list: &[u32], at: u32| list.get(at as usize).copied().unwrap_or(NO_PARENT);
        let child = get(&self.first_child, id);
        if child != NO_PARENT {
            return child;
        }
        let mut at = id;
        loop {
            let sibling = get(&self.next_sibling, at);
            if sibling != NO_PARENT {
                return sibling;
            }
            match nodes.parent(at) {
                NO_PARENT => return NO_PARENT,
                parent => at = parent,
            }
        }
    }
}
