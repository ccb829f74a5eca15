//! Calls that lie ready to be appended as often as they are made again.

use super::{DEPTHS, FAR, GROUP, Left, NO_PARENT, Node, Nodes, Packed, Tag};

/// Calls, each counted from the beginning of a stretch of instructions that it ends within.
#[derive(Debug, Default)]
pub(in crate::forest) struct Stock {
    /// `first` is counted so, and `parent` from the first call that is appended together with it;
    /// [`NO_PARENT`] stands for the call that is open where they are appended.
    packed: Vec<Packed>,
}

/// Some of a [`Stock`] that are appended together.
pub(in crate::forest) struct Ready<'a> {
    packed: &'a [Packed],
    /// How many instructions the stretch has.
    instructions: u32,
    /// Calls that the innermost of them is inside of.
    deepest: u32,
}

impl Stock {
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// Adds what was called by the first of these calls, which stands for any, to the last `before`, with
    /// which they are to be appended. Gives how many of them the innermost is inside of.
    pub fn add(&mut self, calls: &Nodes, before: u32) -> u32 {
        let grouped = calls.groups.iter();
        let all = grouped.flat_map(|group| group.packed.iter().map(|call| (group.base as u32, call)));
        let called = all.skip(1).map(|(base, call)| Packed {
            first: base + call.first,
            parent: match call.parent {
                0 => NO_PARENT,
                parent => parent - 1 + before,
            },
            ..*call
        });
        self.packed.extend(called);
        let depths = (1..calls.len() as u32).map(|id| calls.depth(id));
        depths.max().map_or(0, |deepest| deepest - 1)
    }

    /// `len` calls, from number `first` on, of a stretch of so many instructions.
    #[inline]
    pub fn get(&self, first: u32, len: u32, instructions: u32, deepest: u32) -> Ready<'_> {
        let first = first as usize;
        Ready {
            packed: self.packed.get(first..first + len as usize).unwrap_or(&[]),
            instructions,
            deepest,
        }
    }
}

impl Nodes {
    /// Appends calls that were made, of some depth, by the call `parent` or by one another; the stretch begins
    /// with instruction `index`.
    #[inline]
    pub fn append(&mut self, calls: &Ready<'_>, index: u64, parent: u32, depth: u32) {
        if self.append_at_once(calls, index, parent, depth).is_none() {
            self.append_each(calls, index, parent, depth);
        }
    }

    /// Where all are of one group, all numbers fit, and no depth is to be noted.
    #[inline]
    fn append_at_once(&mut self, calls: &Ready<'_>, index: u64, parent: u32, depth: u32) -> Option<()> {
        let id = u32::try_from(self.len)
            .ok()
            .filter(|&id| id < NO_PARENT - GROUP as u32)?;
        let group = self.groups.last_mut()?;
        let shift = u32::try_from(index.checked_sub(group.base)?).ok()?;
        let near = shift.checked_add(calls.instructions)? != FAR;
        let before = group.packed.len();
        let one_group = before != 0 && before + calls.packed.len() <= GROUP;
        let plain = !depth.is_multiple_of(DEPTHS) && depth % DEPTHS + calls.deepest < DEPTHS;
        if !(near && one_group && plain) {
            return None;
        }
        self.len += calls.packed.len();
        group.packed.extend(calls.packed.iter().map(|call| Packed {
            first: call.first + shift,
            parent: match call.parent {
                NO_PARENT => parent,
                within => within + id,
            },
            ..*call
        }));
        Some(())
    }

    #[cold]
    fn append_each(&mut self, calls: &Ready<'_>, index: u64, parent: u32, depth: u32) {
        let mut appended: Vec<(u32, u32)> = Vec::with_capacity(calls.packed.len());
        for call in calls.packed {
            let caller = appended.get(call.parent as usize);
            let (parent, depth) = caller.map_or((parent, depth), |&(id, depth)| (id, depth + 1));
            let first = index + u64::from(call.first);
            let node = Node {
                first,
                end: first + u64::from(call.len),
                parent,
                function: call.what >> 6,
                entered: Tag::of((call.what >> 3 & 7) as u8),
                left: Left::of((call.what & 7) as u8),
            };
            let Some(id) = self.push(node, depth) else { return };
            appended.push((id, depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(first: u64, end: u64, parent: u32) -> Node {
        Node {
            first,
            end,
            parent,
            function: 3,
            entered: Tag::Call,
            left: Left::Return,
        }
    }

    #[test]
    fn calls_are_appended_at_once_as_one_by_one() {
        let mut made = Nodes::default();
        made.push(node(0, 0, NO_PARENT), 0);
        for (depth, call) in [(1, node(2, 9, 0)), (2, node(4, 6, 1)), (1, node(11, 12, 0))] {
            made.push(call, depth);
        }
        let mut stock = Stock::default();
        assert_eq!((stock.add(&made, 0), stock.len()), (1, 3));
        let ready = stock.get(0, 3, 20, 1);
        let (mut at_once, mut each) = (Nodes::default(), Nodes::default());
        // Over the edges of groups, of depths that are noted, and of numbers that fit.
        for (round, depth) in (0..GROUP as u64).zip((1..2 * DEPTHS).cycle()) {
            let index = 20 * round + (round >> 11) * (1 << 33);
            at_once.append(&ready, index, 0, depth);
            each.append_each(&ready, index, 0, depth);
        }
        assert_eq!(at_once.len(), each.len());
        for id in 0..each.len() as u32 {
            assert_eq!(at_once.get(id), each.get(id));
        }
        assert_eq!(at_once.depths, each.depths);
        assert_eq!(
            each.get(5).map(|node| (node.first, node.end, node.parent)),
            Some((31, 32, 0))
        );
        assert_eq!(each.get(4).map(|node| (node.first, node.parent)), Some((24, 3)));
    }
}
