//! Puts calls into the order of their beginnings, callers before callees.
//!
//! They are found in that order, but for roots that were adopted later than what they called.

use super::{Forest, NO_PARENT, Node};
use backtrail_pt::Avma;

pub(super) fn order(
    nodes: Vec<Node>,
    functions: Vec<Avma>,
    interrupted: Vec<(u32, Avma)>,
    end: u64,
) -> Forest {
    let family = Family::of(&nodes);
    let mut renamed = vec![NO_PARENT; nodes.len()];
    let mut ordered: Vec<Node> = Vec::with_capacity(nodes.len());
    let mut next = family.first_root;
    while let Some(&node) = nodes.get(next as usize) {
        let parent = renamed.get(node.parent as usize).copied().unwrap_or(NO_PARENT);
        let depth = ordered.get(parent as usize).map_or(0, |parent| parent.depth + 1);
        if let Some(name) = renamed.get_mut(next as usize) {
            *name = ordered.len() as u32;
        }
        ordered.push(Node {
            parent,
            depth,
            ..node
        });
        next = family.after(next, &nodes);
    }
    let rename = |&(node, at): &(u32, Avma)| Some((*renamed.get(node as usize)?, at));
    let mut interrupted: Vec<_> = interrupted.iter().filter_map(rename).collect();
    interrupted.sort_unstable();
    ordered.shrink_to_fit();
    Forest {
        nodes: ordered,
        functions,
        interrupted,
        end,
    }
}

/// Who comes next in the order.
struct Family {
    first_root: u32,
    first_child: Vec<u32>,
    next_sibling: Vec<u32>,
}

impl Family {
    fn of(nodes: &[Node]) -> Self {
        let mut first_child = vec![NO_PARENT; nodes.len()];
        let mut next_sibling = vec![NO_PARENT; nodes.len()];
        // Siblings begin in the order in which they were found, except that a node found late may
        // begin early: only an adopted root, which is no one's later sibling but the next root's.
        let mut order: Vec<u32> = (0..nodes.len() as u32).collect();
        order.sort_by_key(|&id| nodes.get(id as usize).map_or(0, |node| node.first));
        let mut first_root = NO_PARENT;
        for &id in order.iter().rev() {
            let Some(node) = nodes.get(id as usize) else {
                continue;
            };
            let head = first_child
                .get_mut(node.parent as usize)
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
    fn after(&self, id: u32, nodes: &[Node]) -> u32 {
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
            match nodes.get(at as usize) {
                Some(node) if node.parent != NO_PARENT => at = node.parent,
                _ => return NO_PARENT,
            }
        }
    }
}
