//! Puts calls into the order of their beginnings, callers before callees.
//!
//! They are found in that order, but for roots that were adopted later than what they called.

use super::{Located, NO_PARENT, Nodes};

impl Nodes {
    /// Puts calls that were found late before the first one that is inside of them. Each of `adopted`, in the order of their
    /// numbers, is a root that was put around another, with that one's number. Says how numbers change.
    pub fn reorder(&mut self, adopted: &[(u32, u32)]) -> Renumbered {
        let renumbered = Renumbered::new(adopted);
        let mut order: Vec<(u32, usize)> = self
            .from(0)
            .map(|(located, _)| (renumbered.number(located.begin.call), located.number))
            .collect();
        order.sort_unstable();
        let mut sorted = Self::default();
        for (_, number) in order {
            if let Some(located) = self.batch(number) {
                sorted.take_over(self, &located, &renumbered);
            }
        }
        sorted.stock = std::mem::take(&mut self.stock);
        *self = sorted;
        self.find_depths();
        renumbered
    }

    /// Appends a batch of other calls.
    fn take_over(&mut self, others: &Self, located: &Located, renumbered: &Renumbered) {
        let (calls, words) = others.stock.size_of(located.batch.pattern);
        self.begin_batch(located.batch.pattern, calls, others.index(located));
        let parents = others.parents(located);
        for at in parents.clone() {
            self.put_parent(renumbered.number(others.word(at)));
        }
        for at in parents.end..located.begin.words + words {
            if let Some(&len) = others.lens.get(&at) {
                self.lens.insert(self.words.len() as u32, len);
            }
            self.words.push(others.word(at));
        }
    }

    /// Notes depths, when those noted are not right any more.
    fn find_depths(&mut self) {
        let mut depths = Vec::new();
        let mut open: Vec<u32> = Vec::new();
        for (located, _) in self.from(0) {
            for (id, call) in (located.begin.call..).zip(self.stock.calls(located.batch.pattern)) {
                let parent = self.parent_of(&located, call);
                while open.pop_if(|open| *open != parent).is_some() {}
                let depth = open.len() as u32;
                if depth.is_multiple_of(Self::DEPTHS) && depth != 0 {
                    depths.push((id, depth));
                }
                open.push(id);
            }
        }
        self.depths = depths;
    }
}

/// How the numbers of calls change when some that were found late come before those inside of them.
#[derive(Debug)]
pub(in crate::forest) struct Renumbered {
    families: Vec<Family>,
}

/// A root, and those that were put around it one after the other.
#[derive(Debug)]
struct Family {
    root: u32,
    /// Ascending.
    adopted: Vec<u32>,
}

impl Renumbered {
    fn new(adopted: &[(u32, u32)]) -> Self {
        let mut families: Vec<Family> = Vec::new();
        for &(outer, inner) in adopted {
            match families.last_mut() {
                Some(family) if family.adopted.last() == Some(&inner) => family.adopted.push(outer),
                _ => families.push(Family {
                    root: inner,
                    adopted: vec![outer],
                }),
            }
        }
        Self { families }
    }

    /// The new number of a call.
    pub fn number(&self, id: u32) -> u32 {
        let after = self.families.partition_point(|family| family.root <= id);
        let family = after.checked_sub(1).and_then(|last| self.families.get(last));
        let Some(family) = family.filter(|_| id != NO_PARENT) else {
            return id;
        };
        match family.adopted.binary_search(&id) {
            // Who came last is outermost.
            Ok(at) => family.root + (family.adopted.len() - 1 - at) as u32,
            Err(before) => id + (family.adopted.len() - before) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forest::nodes::Node;
    use crate::forest::nodes::tests::node;

    #[test]
    fn roots_found_late_come_before_what_they_called() {
        let mut nodes = Nodes::default();
        // Two histories with a gap between; in each, two roots are found one after the other.
        let mut adopted = Vec::new();
        for base in [0, 100] {
            let (root, _) = nodes.push(node(base, base + 3, NO_PARENT), 0).unwrap();
            nodes.push(node(base + 1, base + 2, root), 1);
            let (second, _) = nodes.push(node(base, base + 9, NO_PARENT), 0).unwrap();
            nodes.set_parent(root, second);
            nodes.push(node(base + 5, base + 6, second), 1);
            let (third, _) = nodes.push(node(base, base + 20, NO_PARENT), 0).unwrap();
            nodes.set_parent(second, third);
            nodes.push(node(base + 12, base + 14, third), 1);
            adopted.extend([(second, root), (third, second)]);
        }
        let renumbered = nodes.reorder(&adopted);
        let all: Vec<_> = (0..12).map(|id| nodes.get(id).unwrap()).collect();
        let first = [
            node(0, 20, NO_PARENT),
            node(0, 9, 0),
            node(0, 3, 1),
            node(1, 2, 2),
            node(5, 6, 1),
            node(12, 14, 0),
        ];
        assert_eq!(all[..6], first);
        let second = first.map(|node| Node {
            first: node.first + 100,
            end: node.end + 100,
            parent: match node.parent {
                NO_PARENT => NO_PARENT,
                parent => parent + 6,
            },
            ..node
        });
        assert_eq!(all[6..], second);
        assert_eq!(
            (0..12).map(|id| nodes.depth(id)).collect::<Vec<_>>(),
            [0, 1, 2, 3, 2, 1].repeat(2)
        );
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 11].map(|id| renumbered.number(id)),
            [2, 3, 1, 4, 0, 5, 11]
        );
    }
}
