//! Calls as they are kept: 16 bytes each.

mod stock;

use super::{Left, Tag};
use std::collections::BTreeMap;
pub(super) use stock::{Ready, Stock};

/// The number of no call.
pub(super) const NO_PARENT: u32 = u32::MAX;

/// A call, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The first instruction, and one past the last.
    pub first: u64,
    pub end: u64,
    /// [`NO_PARENT`] for a root.
    pub parent: u32,
    /// In the forest's list.
    pub function: u32,
    pub entered: Tag,
    pub left: Left,
}

/// A call without instructions.
pub(super) const NO_NODE: Node = Node {
    first: 0,
    end: 0,
    parent: NO_PARENT,
    function: MAX_FUNCTIONS,
    entered: Tag::Unknown,
    left: Left::Unknown,
};

/// Calls by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// [`GROUP`] of them in each but the last: nothing is moved when more come.
    groups: Vec<Group>,
    len: usize,
    /// The numbers that do not fit: `first`, and lengths.
    firsts: BTreeMap<u32, u64>,
    lens: BTreeMap<u32, u64>,
    /// (call, depth) of those whose depth is a multiple of [`DEPTHS`], but 0; ascending.
    depths: Vec<(u32, u32)>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// What the `first` of its calls are counted from.
    base: u64,
    packed: Vec<Packed>,
}

#[derive(Clone, Copy, Debug)]
struct Packed {
    /// From the base of its group; [`FAR`] when it does not fit.
    first: u32,
    /// [`FAR`] when it does not fit.
    len: u32,
    parent: u32,
    /// The function, and in the low six bits how it was entered and left.
    what: u32,
}

const GROUP: usize = 1 << 12;
const DEPTHS: u32 = 64;
const FAR: u32 = u32::MAX;
/// The most functions that can be told apart.
pub(super) const MAX_FUNCTIONS: u32 = 1 << 26;

impl Nodes {
    pub fn len(&self) -> usize {
        self.len
    }

    fn packed(&self, id: u32) -> Option<&Packed> {
        let group = self.groups.get(id as usize / GROUP)?;
        group.packed.get(id as usize % GROUP)
    }

    #[inline]
    fn packed_mut(&mut self, id: u32) -> Option<&mut Packed> {
        let group = self.groups.get_mut(id as usize / GROUP)?;
        group.packed.get_mut(id as usize % GROUP)
    }

    /// Begins a group, or the last one anew where it is empty.
    #[cold]
    fn begin_group(&mut self, base: u64) {
        match self.groups.last_mut() {
            Some(group) if group.packed.is_empty() => group.base = base,
            last => {
                // The first one grows with its calls: there may be few.
                let packed = Vec::with_capacity(last.map_or(0, |_| GROUP));
                self.groups.push(Group { base, packed });
            }
        }
    }

    /// Appends a call of some depth. `None`: there are as many as can be told apart.
    #[inline]
    pub fn push(&mut self, node: Node, depth: u32) -> Option<u32> {
        let id = u32::try_from(self.len).ok().filter(|&id| id != NO_PARENT)?;
        if self.len.is_multiple_of(GROUP) {
            self.begin_group(node.first);
        }
        let group = self.groups.last_mut()?;
        let near = node
            .first
            .checked_sub(group.base)
            .filter(|&first| first < u64::from(FAR));
        let len = node.end.saturating_sub(node.first);
        group.packed.push(Packed {
            first: near.map_or_else(|| far(&mut self.firsts, id, node.first), |first| first as u32),
            len: match len < u64::from(FAR) {
                true => len as u32,
                false => far(&mut self.lens, id, len),
            },
            parent: node.parent,
            what: node.function << 6 | u32::from(node.entered.code()) << 3 | u32::from(node.left.code()),
        });
        self.len += 1;
        if depth.is_multiple_of(DEPTHS) && depth != 0 {
            self.depths.push((id, depth));
        }
        Some(id)
    }

    /// Takes all calls away.
    pub fn clear(&mut self) {
        self.groups.truncate(1);
        self.groups.iter_mut().for_each(|group| group.packed.clear());
        self.len = 0;
        self.firsts.clear();
        self.lens.clear();
        self.depths.clear();
    }

    /// So many more calls can be told apart.
    #[inline]
    pub fn has_room(&self, calls: u32) -> bool {
        self.len + calls as usize <= NO_PARENT as usize
    }

    /// Takes the last call away.
    pub fn pop(&mut self) {
        let Some(last) = self.len.checked_sub(1) else {
            return;
        };
        // A group that comes after the last call's is empty.
        self.groups.truncate(last / GROUP + 1);
        self.groups.last_mut().and_then(|group| group.packed.pop());
        self.len = last;
        let id = last as u32;
        self.firsts.remove(&id);
        self.lens.remove(&id);
        self.depths.pop_if(|(node, _)| *node == id);
    }

    pub fn first(&self, id: u32) -> Option<u64> {
        let group = self.groups.get(id as usize / GROUP)?;
        match group.packed.get(id as usize % GROUP)?.first {
            FAR => self.firsts.get(&id).copied(),
            first => Some(group.base + u64::from(first)),
        }
    }

    pub fn parent(&self, id: u32) -> u32 {
        self.packed(id).map_or(NO_PARENT, |node| node.parent)
    }

    pub fn function(&self, id: u32) -> u32 {
        self.packed(id).map_or(MAX_FUNCTIONS, |node| node.what >> 6)
    }

    pub fn get(&self, id: u32) -> Option<Node> {
        let packed = self.packed(id)?;
        let first = self.first(id)?;
        let len = match packed.len {
            FAR => self.lens.get(&id).copied()?,
            len => u64::from(len),
        };
        Some(Node {
            first,
            end: first + len,
            parent: packed.parent,
            function: packed.what >> 6,
            entered: Tag::of((packed.what >> 3 & 7) as u8),
            left: Left::of((packed.what & 7) as u8),
        })
    }

    pub fn set_parent(&mut self, id: u32, parent: u32) {
        if let Some(node) = self.packed_mut(id) {
            node.parent = parent;
        }
    }

    pub fn set_function(&mut self, id: u32, function: u32) {
        if let Some(node) = self.packed_mut(id) {
            node.what = function << 6 | node.what & 0x3f;
        }
    }

    /// The call, which began with instruction `first`, has ended.
    #[inline]
    pub fn close(&mut self, id: u32, first: u64, end: u64, left: Left) {
        let len = end.saturating_sub(first);
        let len = match len < u64::from(FAR) {
            true => len as u32,
            false => far(&mut self.lens, id, len),
        };
        if let Some(node) = self.packed_mut(id) {
            node.len = len;
            node.what = node.what & !7 | u32::from(left.code());
        }
    }

    /// How many calls it is inside of.
    pub fn depth(&self, id: u32) -> u32 {
        let (mut at, mut steps) = (id, 0);
        loop {
            let known = match self.depths.is_empty() {
                true => None,
                false => self.depths.binary_search_by_key(&at, |&(node, _)| node).ok(),
            };
            if let Some(&(_, depth)) = known.and_then(|known| self.depths.get(known)) {
                return depth + steps;
            }
            at = match self.parent(at) {
                NO_PARENT => return steps,
                parent => parent,
            };
            steps += 1;
        }
    }

    /// How many calls, from number `from` on, begin before instruction `index`; they ascend.
    pub fn begun(&self, from: usize, index: u64) -> usize {
        let (mut low, mut high) = (from, self.len);
        while low < high {
            let middle = low.midpoint(high);
            if self.first(middle as u32).is_some_and(|first| first < index) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(from)
    }

    pub fn shrink(&mut self) {
        self.groups.pop_if(|group| group.packed.is_empty());
        if let Some(group) = self.groups.last_mut() {
            group.packed.shrink_to_fit();
        }
        self.groups.shrink_to_fit();
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.len * size_of::<Packed>()
            + size_of_val(&*self.groups)
            + size_of_val(&*self.depths)
            + (self.firsts.len() + self.lens.len()) * 16
    }
}

/// Keeps the number of a call that does not fit.
#[cold]
fn far(numbers: &mut BTreeMap<u32, u64>, id: u32, number: u64) -> u32 {
    numbers.insert(id, number);
    FAR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(first: u64, end: u64, parent: u32) -> Node {
        Node {
            first,
            end,
            parent,
            function: 7,
            entered: Tag::Call,
            left: Left::Gap,
        }
    }

    #[test]
    fn what_is_packed_comes_back() {
        let mut nodes = Nodes::default();
        let all = [
            node(5, u64::from(u32::MAX) * 3, NO_PARENT),
            node(9, 9, 0),
            node(u64::from(u32::MAX) + 5, u64::from(u32::MAX) + 7, 0),
            node(2, 3, 1),
        ];
        for (at, node) in all.into_iter().enumerate() {
            assert_eq!(nodes.push(node, at as u32 * DEPTHS), Some(at as u32));
        }
        for (at, node) in all.into_iter().enumerate() {
            assert_eq!(nodes.get(at as u32), Some(node));
            assert_eq!(nodes.depth(at as u32), at as u32 * DEPTHS);
        }
        nodes.close(1, 9, 20, Left::Return);
        nodes.set_function(1, MAX_FUNCTIONS - 1);
        let found = nodes.get(1).unwrap();
        assert_eq!(
            (found.end, found.left, found.function, found.entered),
            (20, Left::Return, MAX_FUNCTIONS - 1, Tag::Call)
        );
        nodes.pop();
        assert_eq!((nodes.len(), nodes.get(3), nodes.begun(0, 9)), (3, None, 1));
    }

    #[test]
    fn calls_go_and_come_over_the_edge_of_a_group() {
        let mut nodes = Nodes::default();
        let last = GROUP as u64 + 1;
        (0..=last).for_each(|first| {
            nodes.push(node(first, first, NO_PARENT), 0);
        });
        (0..3).for_each(|_| nodes.pop());
        assert_eq!((nodes.len(), nodes.get(GROUP as u32 - 1)), (GROUP - 1, None));
        let far = 5 * u64::from(u32::MAX);
        for first in [far, far + 1, far + 2] {
            let id = nodes.push(node(first, first, NO_PARENT), 0).unwrap();
            assert_eq!(nodes.first(id), Some(first));
        }
        assert_eq!(
            (nodes.len(), nodes.first(GROUP as u32 - 2)),
            (GROUP + 2, Some(last - 3))
        );
        nodes.clear();
        assert_eq!(
            (nodes.push(node(far, far, NO_PARENT), 0), nodes.first(0)),
            (Some(0), Some(far))
        );
        assert_eq!((nodes.len(), nodes.firsts.len()), (1, 0));
    }
}
