//! The mapped files of processes over time.

use backtrail_pt::{FileOffset, Pid};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A mapped part of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedModule<M> {
    /// The module.
    pub module: M,
    /// The file offset of the first byte.
    pub offset: FileOffset,
}

/// A mapping with the address after its last byte.
#[derive(Clone, Copy, Debug)]
struct Mapping<M> {
    end: u64,
    mapped: MappedModule<M>,
}

/// The mappings of one process by their first addresses. They do not overlap.
#[derive(Clone, Debug)]
struct AddressSpace<M> {
    mappings: BTreeMap<u64, Mapping<M>>,
}

impl<M> Default for AddressSpace<M> {
    fn default() -> Self {
        Self {
            mappings: BTreeMap::new(),
        }
    }
}

impl<M: Copy> AddressSpace<M> {
    /// Adds a mapping, which replaces what was there.
    fn map(&mut self, start: u64, end: u64, mapped: MappedModule<M>) {
        self.unmap(start, end);
        self.mappings.insert(start, Mapping { end, mapped });
    }

    /// Removes mappings between two addresses. Parts outside of them stay.
    fn unmap(&mut self, start: u64, end: u64) {
        let before = self.mappings.range(..start).next_back();
        let first = before
            .filter(|(_, mapping)| mapping.end > start)
            .map(|(at, _)| *at);
        let first = first.unwrap_or(start);
        let overlapping: Vec<_> = self.mappings.range(first..end).map(|(at, _)| *at).collect();
        for at in overlapping {
            let Some(old) = self.mappings.remove(&at) else {
                continue;
            };
            if at < start {
                let head = Mapping { end: start, ..old };
                self.mappings.insert(at, head);
            }
            if old.end > end {
                let mut tail = old;
                tail.mapped.offset = old.mapped.offset + (end - at);
                self.mappings.insert(end, tail);
            }
        }
    }

    fn find(&self, address: u64) -> Option<MappedModule<M>> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < mapping.end).then(|| MappedModule {
            module: mapping.mapped.module,
            offset: mapping.mapped.offset + (address - start),
        })
    }
}

/// The mappings of all processes and of the kernel at one time. `M` identifies a module.
#[derive(Clone, Debug)]
pub struct AddressSpaces<M> {
    processes: HashMap<Pid, AddressSpace<M>>,
    kernel: AddressSpace<M>,
}

impl<M> Default for AddressSpaces<M> {
    fn default() -> Self {
        Self {
            processes: HashMap::new(),
            kernel: AddressSpace::default(),
        }
    }
}

impl<M: Copy> AddressSpaces<M> {
    /// Maps a part of a module. `None`: in the kernel.
    pub fn map(&mut self, pid: Option<Pid>, start: u64, size: u64, mapped: MappedModule<M>) {
        let space = match pid {
            None => &mut self.kernel,
            Some(pid) => self.processes.entry(pid).or_default(),
        };
        if size > 0 {
            space.map(start, start.saturating_add(size), mapped);
        }
    }

    /// Copies the mappings of a parent to its new child.
    pub fn fork(&mut self, parent: Pid, child: Pid) {
        let copy = self.processes.get(&parent).cloned().unwrap_or_default();
        self.processes.insert(child, copy);
    }

    /// Removes all mappings of a process, because it executes another program or ended.
    pub fn clear(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Returns the module and offset of an address of a process, or of the kernel.
    #[must_use]
    pub fn find(&self, pid: Option<Pid>, address: u64) -> Option<MappedModule<M>> {
        let space = match pid {
            None => Some(&self.kernel),
            Some(pid) => self.processes.get(&pid),
        };
        space.and_then(|space| space.find(address))
    }

    /// Returns the mappings of a process in ascending order: the addresses, and the part of a
    /// module at the first one.
    pub fn mappings(&self, pid: Pid) -> impl Iterator<Item = (Range<u64>, MappedModule<M>)> {
        let spaces = self.processes.get(&pid).into_iter();
        spaces.flat_map(|space| {
            let mappings = space.mappings.iter();
            mappings.map(|(start, mapping)| (*start..mapping.end, mapping.mapped))
        })
    }

    /// Returns whether mappings of a process are known.
    #[must_use]
    pub fn has(&self, pid: Pid) -> bool {
        self.processes.contains_key(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid(7);

    fn mapped(module: usize, offset: u64) -> MappedModule<usize> {
        MappedModule {
            module,
            offset: FileOffset(offset),
        }
    }

    fn at(spaces: &AddressSpaces<usize>, pid: Pid, address: u64) -> Option<(usize, u64)> {
        let found = spaces.find(Some(pid), address)?;
        Some((found.module, found.offset.0))
    }

    #[test]
    fn newer_mapping_replaces_a_part_of_an_older_one() {
        let mut spaces = AddressSpaces::default();
        spaces.map(Some(PID), 0x1000, 0x3000, mapped(0, 0x100));
        spaces.map(Some(PID), 0x2000, 0x1000, mapped(1, 0));
        assert_eq!(at(&spaces, PID, 0x1fff), Some((0, 0x10ff)));
        assert_eq!(at(&spaces, PID, 0x2000), Some((1, 0)));
        assert_eq!(at(&spaces, PID, 0x3001), Some((0, 0x2101)));
        assert_eq!(at(&spaces, PID, 0x4000), None);
        spaces.map(Some(PID), 0, 0x5000, mapped(2, 0));
        assert_eq!(at(&spaces, PID, 0x2000), Some((2, 0x2000)));
    }

    #[test]
    fn child_has_the_mappings_of_its_parent() {
        let mut spaces = AddressSpaces::default();
        spaces.map(Some(PID), 0x1000, 0x1000, mapped(0, 0));
        spaces.fork(PID, Pid(8));
        spaces.clear(PID);
        assert_eq!(at(&spaces, PID, 0x1000), None);
        assert_eq!(at(&spaces, Pid(8), 0x1000), Some((0, 0)));
        assert_eq!(spaces.find(None, 0x1000), None);
        assert!(!spaces.has(PID) && spaces.has(Pid(8)));
    }

    proptest::proptest! {
        /// Every address belongs to the last mapping that covers it.
        #[test]
        fn last_mapping_holds(maps in proptest::collection::vec((0u64..60, 1u64..20), 0..20)) {
            let mut spaces = AddressSpaces::default();
            for (index, (start, size)) in maps.iter().enumerate() {
                spaces.map(Some(PID), *start, *size, mapped(index, *start));
            }
            for address in 0..90 {
                let mut covering = maps.iter().enumerate().rev();
                let last = covering.find(|(_, (start, size))| (*start..start + size).contains(&address));
                proptest::prop_assert_eq!(at(&spaces, PID, address), last.map(|(index, _)| (index, address)));
            }
        }
    }
}
