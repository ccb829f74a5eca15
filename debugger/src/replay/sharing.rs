//! Memory that a process shares with others, by its system calls.

use super::kernel::Call;
use super::range::MemoryRange;
use backtrail_semantics::State;
use std::rc::Rc;

/// `MAP_TYPE`, `MAP_SHARED` and `MAP_SHARED_VALIDATE` (`linux/mman.h`).
const MAP_TYPE: u64 = 0xf;
const MAP_SHARED: [u64; 2] = [1, 3];
/// The size of a page.
const PAGE: u64 = 4096;

/// A change of the memory map that matters for sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// Memory was mapped that other processes may write.
    Shared(MemoryRange),
    /// Memory was mapped privately, or unmapped.
    Private(MemoryRange),
    /// A mapping moved or grew.
    Moved {
        /// The old memory.
        from: MemoryRange,
        /// The new memory.
        to: MemoryRange,
    },
    /// A segment of System V has this size.
    Segment {
        /// Its identifier.
        id: u64,
        /// The size.
        size: u64,
    },
    /// A segment of System V was attached.
    Attached {
        /// Its identifier.
        id: u64,
        /// The address.
        address: u64,
    },
    /// The segment at an address was detached.
    Detached(u64),
}

impl MapChange {
    /// Returns the change by a system call. `after` has the registers after it.
    pub fn of(call: Call, after: &State) -> Option<Self> {
        let result = after.general[0];
        if Call::is_error(result) {
            return None;
        }
        let [first, second, third, fourth, ..] = call.arguments();
        let range = |address, size: u64| MemoryRange {
            address,
            size: size.checked_next_multiple_of(PAGE).unwrap_or(size),
        };
        Some(match call.number() {
            // mmap
            9 if MAP_SHARED.contains(&(fourth & MAP_TYPE)) => Self::Shared(range(result, second)),
            9 => Self::Private(range(result, second)),
            // munmap
            11 => Self::Private(range(first, second)),
            // mremap. An old size of zero copies a shared mapping.
            25 => Self::Moved {
                from: range(first, second.max(1)),
                to: range(result, third),
            },
            // shmget, shmat, shmdt
            29 => Self::Segment {
                id: result,
                size: second,
            },
            30 => Self::Attached {
                id: first,
                address: result,
            },
            67 => Self::Detached(first),
            _ => return None,
        })
    }
}

/// Memory that was shared with other processes in a part of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRange {
    /// The memory.
    pub range: MemoryRange,
    /// The system call that mapped it.
    pub since: u64,
    /// The system call that unmapped it.
    pub until: Option<u64>,
}

/// Returns the memory that was shared, from the changes of the memory map in order. `size_at`
/// returns the size of a segment of System V whose creation was not seen.
pub fn shared_ranges(
    changes: &[(u64, MapChange)],
    size_at: impl Fn(u64) -> Option<u64>,
) -> Rc<[SharedRange]> {
    let mut ranges: Vec<SharedRange> = Vec::new();
    let mut sizes: Vec<(u64, u64)> = Vec::new();
    for &(index, change) in changes {
        match change {
            MapChange::Shared(range) => share(&mut ranges, range, index),
            MapChange::Private(range) => unmap(&mut ranges, range, index),
            MapChange::Moved { from, to } => {
                let is_shared = ranges
                    .iter()
                    .any(|shared| shared.until.is_none() && shared.range.overlaps(from));
                if is_shared {
                    share(&mut ranges, to, index);
                }
                if to.address != from.address {
                    unmap(&mut ranges, from, index);
                }
            }
            MapChange::Segment { id, size } => sizes.push((id, size)),
            MapChange::Attached { id, address } => {
                let known = sizes.iter().rev().find(|(known, size)| *known == id && *size > 0);
                let size = known.map(|(_, size)| *size).or_else(|| size_at(address));
                let size = size.unwrap_or(PAGE);
                let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
                share(&mut ranges, MemoryRange { address, size }, index);
            }
            MapChange::Detached(address) => {
                let open = ranges.iter_mut().filter(|shared| shared.until.is_none());
                for shared in open.filter(|shared| shared.range.address == address) {
                    shared.until = Some(index);
                }
            }
        }
    }
    ranges.into()
}

fn share(ranges: &mut Vec<SharedRange>, range: MemoryRange, index: u64) {
    ranges.push(SharedRange {
        range,
        since: index,
        until: None,
    });
}

/// Ends the sharing of memory. The rest of a range goes on.
fn unmap(ranges: &mut Vec<SharedRange>, gone: MemoryRange, index: u64) {
    let mut rests = Vec::new();
    let gone_end = gone.address.saturating_add(gone.size);
    for shared in ranges.iter_mut().filter(|shared| shared.until.is_none()) {
        if !shared.range.overlaps(gone) {
            continue;
        }
        let end = shared.range.address.saturating_add(shared.range.size);
        shared.until = Some(index);
        for (from, to) in [(shared.range.address, gone.address), (gone_end, end)] {
            if from < to {
                let range = MemoryRange {
                    address: from,
                    size: to - from,
                };
                rests.push(SharedRange {
                    range,
                    until: None,
                    ..*shared
                });
            }
        }
    }
    ranges.extend(rests);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, size: u64) -> MemoryRange {
        MemoryRange { address, size }
    }

    fn change(number: u64, arguments: [u64; 4], result: u64) -> Option<MapChange> {
        let mut state = State::default();
        state.general[0] = number;
        for (register, argument) in [7, 6, 2, 10].into_iter().zip(arguments) {
            state.general[register] = argument;
        }
        let call = Call::before(&state);
        state.general[0] = result;
        MapChange::of(call, &state)
    }

    fn at(ranges: &[SharedRange], address: u64, index: u64) -> bool {
        let place = range(address, 1);
        ranges.iter().any(|shared| {
            let is_live = shared.since < index && shared.until.is_none_or(|until| until >= index);
            is_live && shared.range.overlaps(place)
        })
    }

    #[test]
    fn shared_mappings_are_those_with_the_flag() {
        // MAP_SHARED | MAP_ANONYMOUS, MAP_PRIVATE | MAP_ANONYMOUS
        let shared = change(9, [0, 100, 3, 0x21], 0x7000);
        assert_eq!(shared, Some(MapChange::Shared(range(0x7000, 0x1000))));
        let private = change(9, [0, 100, 3, 0x22], 0x7000);
        assert_eq!(private, Some(MapChange::Private(range(0x7000, 0x1000))));
        assert_eq!(change(9, [0, 100, 3, 0x21], -12_i64 as u64), None);
        assert_eq!(change(1, [0; 4], 0), None);
    }

    #[test]
    fn sharing_ends_where_memory_is_unmapped() {
        let changes = [
            (10, MapChange::Shared(range(0x1000, 0x3000))),
            (20, MapChange::Private(range(0x2000, 0x1000))),
        ];
        let ranges = shared_ranges(&changes, |_| None);
        assert!(!at(&ranges, 0x1000, 10) && at(&ranges, 0x1000, 11));
        assert!(at(&ranges, 0x2000, 20) && !at(&ranges, 0x2000, 21));
        assert!(at(&ranges, 0x1fff, 30) && at(&ranges, 0x3000, 30));
        assert!(!at(&ranges, 0x4000, 30));
    }

    #[test]
    fn moved_mappings_stay_shared() {
        let changes = [
            (10, MapChange::Shared(range(0x1000, 0x1000))),
            (
                20,
                MapChange::Moved {
                    from: range(0x1000, 0x1000),
                    to: range(0x8000, 0x2000),
                },
            ),
        ];
        let ranges = shared_ranges(&changes, |_| None);
        assert!(at(&ranges, 0x9000, 21) && !at(&ranges, 0x1000, 21));
    }

    #[test]
    fn attached_segments_have_the_size_of_their_creation() {
        let changes = [
            (5, change(29, [0, 0x3000, 0, 0], 7).unwrap()),
            (10, change(30, [7, 0, 0, 0], 0x4000).unwrap()),
            (20, change(67, [0x4000, 0, 0, 0], 0).unwrap()),
        ];
        let ranges = shared_ranges(&changes, |_| None);
        assert!(at(&ranges, 0x6fff, 11) && !at(&ranges, 0x7000, 11));
        assert!(!at(&ranges, 0x4000, 21));
    }
}
