//! The search for the accesses of a thread to memory.

use super::accesses::{Access, AccessKind};
use super::{ExecutedPath, MemoryRange, PartSummary, ReplayGap, ThreadReplay};
use backtrail_decoder::{Stage, Watch};
use std::ops::Range;

/// The kinds of accesses that a search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFilter {
    /// Stores, and writes of the kernel.
    Writes,
    /// Loads.
    Reads,
    /// Both.
    All,
}

impl AccessFilter {
    fn includes(self, kind: AccessKind) -> bool {
        match self {
            Self::Writes => kind != AccessKind::Load,
            Self::Reads => kind == AccessKind::Load,
            Self::All => true,
        }
    }
}

/// An access that a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundAccess {
    /// The instruction.
    pub index: u64,
    /// The kind.
    pub kind: AccessKind,
    /// The memory.
    pub range: MemoryRange,
}

/// The result of a search. It ends at the nearest access or unseen place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessSearch {
    /// The nearest access.
    pub found: Option<FoundAccess>,
    /// A place on the way at which anything may have been written unseen, the nearest. A search
    /// that begins in a gap reports that one.
    pub unknown: Option<u64>,
    /// The nearest place of that kind in the searched range.
    pub unseen: Option<UnseenPlace>,
}

/// A place at which memory may have been accessed unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnseenPlace {
    /// The instruction that passes it.
    pub index: u64,
    /// The position to show: the system call, or the edge of the gap.
    pub position: u64,
    /// Whether values are missing there. Otherwise it is a system call.
    pub is_gap: bool,
}

/// A search on its way through the parts of segments.
struct SearchWay<'a> {
    wanted: WantedAccesses<'a>,
    instructions: Range<u64>,
    search: AccessSearch,
}

impl<'a> SearchWay<'a> {
    fn new(ranges: &'a [MemoryRange], filter: AccessFilter, instructions: Range<u64>) -> Self {
        Self {
            wanted: WantedAccesses { ranges, filter },
            instructions,
            search: AccessSearch::default(),
        }
    }

    /// Takes an access. Returns whether the search ends there.
    fn takes(&mut self, access: &Access) -> bool {
        if access.kind == AccessKind::Anywhere {
            return self.passes(access.index, access.index, false);
        }
        let is_wanted = self.wanted.includes(access);
        if is_wanted {
            self.search.found = Some(found(access));
        }
        is_wanted
    }

    /// Passes the end of what is known. Returns whether the search ends there.
    fn passes_end(&mut self, at: u64) -> bool {
        self.passes(at, at, true)
    }

    /// Passes the beginning of what is known after a gap. Returns whether the search ends there.
    fn passes_start(&mut self, at: u64) -> bool {
        match at.checked_sub(1) {
            Some(index) => self.passes(index, at, true),
            None => false,
        }
    }

    fn passes(&mut self, index: u64, position: u64, is_gap: bool) -> bool {
        self.search.unknown.get_or_insert(position);
        let is_event = is_gap || self.wanted.filter != AccessFilter::Reads;
        if is_event && self.instructions.contains(&index) {
            self.search.unseen.get_or_insert(UnseenPlace {
                index,
                position,
                is_gap,
            });
        }
        self.search.unseen.is_some()
    }

    /// Returns whether a part has accesses to check.
    fn needs(&self, summary: &PartSummary) -> bool {
        let may_access = |range: &MemoryRange| match self.wanted.filter {
            AccessFilter::Writes => summary.may_write(*range),
            AccessFilter::Reads | AccessFilter::All => summary.may_access(*range),
        };
        !summary.is_complete || summary.may_access_anywhere() || self.wanted.ranges.iter().any(may_access)
    }
}

/// The accesses that a search finds.
#[derive(Clone, Copy, Debug)]
pub struct WantedAccesses<'a> {
    ranges: &'a [MemoryRange],
    filter: AccessFilter,
}

impl WantedAccesses<'_> {
    fn includes(&self, access: &Access) -> bool {
        let range = MemoryRange {
            address: access.address,
            size: access.size,
        };
        self.filter.includes(access.kind) && self.ranges.iter().any(|wanted| wanted.overlaps(range))
    }
}

impl ThreadReplay {
    /// Returns the last access to a range by an instruction from `limit` on and before `end`.
    ///
    /// # Errors
    /// Fails when canceled.
    pub fn previous_access(
        &self,
        path: &dyn ExecutedPath,
        (ranges, filter): (&[MemoryRange], AccessFilter),
        (limit, end): (u64, u64),
        watch: &Watch<'_>,
    ) -> Result<AccessSearch, ReplayGap> {
        let mut way = SearchWay::new(ranges, filter, limit..end);
        let after = self.parts.partition_point(|part| part.start < end);
        let begins_part = self.parts.get(after).is_some_and(|part| part.start == end);
        if begins_part
            && after > 0
            && end > limit
            && !self.part_continues(after, path, watch)?
            && way.passes_start(end)
        {
            return Ok(way.search);
        }
        let mut known_to = end;
        for number in (0..after).rev() {
            let Some(part) = self.parts.get(number) else {
                break;
            };
            if known_to <= limit {
                return Ok(way.search);
            }
            report(watch, end, part.start.max(limit), limit)?;
            let summary = self.summary_of(number, path, watch)?;
            if part.end < known_to && way.passes_end(part.end) {
                return Ok(way.search);
            }
            if way.needs(&summary) {
                let accesses = self.accesses_of(number, path, watch)?;
                if accesses.reached < part.end.min(known_to) && way.passes_end(accesses.reached) {
                    return Ok(way.search);
                }
                for access in accesses.before(end).iter().rev() {
                    if access.index < limit || way.takes(access) {
                        return Ok(way.search);
                    }
                }
            }
            let is_gap = number > 0 && part.start > limit && !self.part_continues(number, path, watch)?;
            if is_gap && way.passes_start(part.start) {
                return Ok(way.search);
            }
            known_to = part.start;
        }
        if known_to > limit {
            way.search.unknown.get_or_insert(known_to);
        }
        Ok(way.search)
    }

    /// Returns the first access to a range by an instruction from `start` on and before `limit`.
    ///
    /// # Errors
    /// Fails when canceled.
    pub fn next_access(
        &self,
        path: &dyn ExecutedPath,
        (ranges, filter): (&[MemoryRange], AccessFilter),
        (start, limit): (u64, u64),
        watch: &Watch<'_>,
    ) -> Result<AccessSearch, ReplayGap> {
        let mut way = SearchWay::new(ranges, filter, start..limit);
        let first = self.parts.partition_point(|part| part.end <= start);
        let before = first.checked_sub(1).and_then(|before| self.parts.get(before));
        // A search that begins in a gap does not pass the edge before it.
        let mut is_edge = before.is_some_and(|part| part.end == start);
        let mut known_to = start;
        for number in first..self.parts.len() {
            let Some(part) = self.parts.get(number) else {
                break;
            };
            if part.start > limit {
                break;
            }
            report(watch, start, part.start.max(start), limit)?;
            let is_gap =
                part.start > known_to || part.start > start && !self.part_continues(number, path, watch)?;
            if is_gap && way.passes_start(part.start) {
                return Ok(way.search);
            }
            known_to = part.end;
            is_edge = true;
            if part.start >= limit {
                break;
            }
            let summary = self.summary_of(number, path, watch)?;
            if way.needs(&summary) {
                let accesses = self.accesses_of(number, path, watch)?;
                for access in accesses.from(start) {
                    if access.index >= limit || way.takes(access) {
                        return Ok(way.search);
                    }
                }
                if accesses.reached < part.end.min(limit) {
                    if accesses.reached >= start && way.passes_end(accesses.reached) {
                        return Ok(way.search);
                    }
                    way.search.unknown.get_or_insert(start);
                }
            }
        }
        if known_to < limit {
            way.search.unknown.get_or_insert(known_to);
            if is_edge {
                way.passes_end(known_to);
            }
        }
        Ok(way.search)
    }
}

fn found(access: &Access) -> FoundAccess {
    FoundAccess {
        index: access.index,
        kind: access.kind,
        range: MemoryRange {
            address: access.address,
            size: access.size,
        },
    }
}

fn report(watch: &Watch<'_>, from: u64, at: u64, to: u64) -> Result<(), ReplayGap> {
    watch
        .report(Stage::Search, from.abs_diff(at), from.abs_diff(to).max(1))
        .map_err(|_| ReplayGap::Canceled)
}

#[cfg(test)]
mod tests {
    use super::super::MAX_CONTENTS;
    use super::super::accesses::Accesses;
    use super::super::kernel::KernelWrites;
    use super::super::parts::{self, MAX_ACCESSES, SegmentEnds};
    use super::super::recent::Recent;
    use super::super::run::AccessSink;
    use super::super::segments::ReplaySegment;
    use super::super::summary::AccessedBytes;
    use super::*;
    use backtrail_bundle::value_log::{ValueLog, beginning};
    use backtrail_decoder::{History, Position, Version};
    use backtrail_pt::{Avma, Tid};
    use backtrail_semantics::{Observer, State};
    use iced_x86::Instruction;
    use std::rc::Rc;

    /// The path of made segments, which are replayed already.
    struct NoPath;

    impl ExecutedPath for NoPath {
        fn history(&self) -> &History {
            panic!("the segments are replayed")
        }

        fn decode(&self, _version: Version, _pc: Avma, _len: u8) -> Option<Instruction> {
            None
        }

        fn position(&self, index: u64) -> Position {
            Position::new(Tid(1), index)
        }
    }

    /// A made segment, with the first instruction that was not replayed, and a register at its
    /// beginning and end.
    struct MadeSegment {
        instructions: Range<u64>,
        reached: u64,
        stores: Vec<u64>,
        calls: Vec<u64>,
        registers: [u64; 2],
    }

    impl MadeSegment {
        fn new(instructions: Range<u64>) -> Self {
            Self {
                reached: instructions.end,
                instructions,
                stores: Vec::new(),
                calls: Vec::new(),
                registers: [0, 0],
            }
        }
    }

    const PLACE: MemoryRange = MemoryRange {
        address: 0x1000,
        size: 4,
    };

    fn replay(made: &[MadeSegment]) -> ThreadReplay {
        let log = ValueLog::parse(beginning().into(), "made").unwrap();
        let segments = made.iter().map(|made| ReplaySegment {
            start: made.instructions.start,
            end: made.instructions.end,
            in_log: 0,
        });
        let segments: Vec<ReplaySegment> = segments.collect();
        let replay = ThreadReplay {
            log,
            parts: parts::split(&segments),
            segments,
            contents: Recent::new(MAX_CONTENTS).into(),
            ends: Default::default(),
            effects: Default::default(),
            checkpoints: Default::default(),
            accesses: Recent::new(MAX_ACCESSES).into(),
            summaries: Default::default(),
            begins_at_exec: std::cell::OnceCell::new(),
            shared: Default::default(),
        };
        for (number, made) in made.iter().enumerate() {
            let (mut accesses, mut words) = (Accesses::default(), AccessedBytes::default());
            for index in made.instructions.clone() {
                if made.stores.contains(&index) {
                    accesses.of(index).stored(PLACE.address, &[1, 0, 0, 0]);
                    words.of(index).stored(PLACE.address, &[1, 0, 0, 0]);
                }
                if made.calls.contains(&index) {
                    accesses.kernel(index, KernelWrites::Anywhere);
                    words.kernel(index, KernelWrites::Anywhere);
                }
            }
            accesses.reached = made.reached;
            let [start, end] = made.registers.map(|value| {
                let mut state = State::default();
                state.general[3] = value;
                state
            });
            let is_complete = made.reached == made.instructions.end;
            let ends = SegmentEnds {
                start,
                end,
                reached: made.reached,
                is_complete,
            };
            replay.ends.borrow_mut().insert(number, Rc::new(ends));
            let summary = words.into_summary(is_complete);
            replay.summaries.borrow_mut().insert(number, Rc::new(summary));
            let mut known = replay.accesses.borrow_mut();
            known.add(number, std::sync::Arc::new(accesses), 0);
        }
        replay
    }

    fn search(replay: &ThreadReplay, is_forward: bool, range: (u64, u64)) -> AccessSearch {
        let wanted: (&[MemoryRange], AccessFilter) = (&[PLACE], AccessFilter::Writes);
        let watch = Watch::none();
        match is_forward {
            true => replay.next_access(&NoPath, wanted, range, &watch),
            false => replay.previous_access(&NoPath, wanted, range, &watch),
        }
        .unwrap()
    }

    /// Returns the index and position of the unseen place, and the instruction of the access.
    fn events(
        replay: &ThreadReplay,
        is_forward: bool,
        range: (u64, u64),
    ) -> (Option<(u64, u64)>, Option<u64>) {
        let search = search(replay, is_forward, range);
        (
            search.unseen.map(|place| (place.index, place.position)),
            search.found.map(|found| found.index),
        )
    }

    #[test]
    fn unknown_system_calls_end_searches_for_writes() {
        let replay = replay(&[MadeSegment {
            stores: vec![10, 30],
            calls: vec![20],
            ..MadeSegment::new(0..100)
        }]);
        assert_eq!(events(&replay, false, (0, 100)), (None, Some(30)));
        assert_eq!(events(&replay, false, (0, 30)), (Some((20, 20)), None));
        assert_eq!(events(&replay, false, (0, 20)), (None, Some(10)));
        assert_eq!(events(&replay, true, (11, 100)), (Some((20, 20)), None));
        assert_eq!(events(&replay, true, (21, 100)), (None, Some(30)));
        // A kernel write is no read.
        let read = (&[PLACE][..], AccessFilter::Reads);
        let reads = replay.previous_access(&NoPath, read, (0, 100), &Watch::none());
        let reads = reads.unwrap();
        assert_eq!((reads.unseen, reads.unknown), (None, Some(20)));
    }

    #[test]
    fn segments_that_do_not_continue_are_passed_once() {
        let replay = replay(&[
            MadeSegment {
                stores: vec![10],
                ..MadeSegment::new(0..50)
            },
            MadeSegment {
                stores: vec![60],
                registers: [7, 7],
                ..MadeSegment::new(50..100)
            },
        ]);
        assert_eq!(events(&replay, false, (0, 60)), (Some((49, 50)), None));
        assert_eq!(events(&replay, false, (0, 50)), (Some((49, 50)), None));
        assert_eq!(events(&replay, false, (0, 49)), (None, Some(10)));
        assert_eq!(events(&replay, true, (11, 100)), (Some((49, 50)), None));
        assert_eq!(events(&replay, true, (11, 50)), (Some((49, 50)), None));
        assert_eq!(events(&replay, true, (50, 100)), (None, Some(60)));
    }

    #[test]
    fn segments_that_continue_have_no_gap() {
        let replay = replay(&[
            MadeSegment {
                stores: vec![10],
                ..MadeSegment::new(0..50)
            },
            MadeSegment::new(50..100),
        ]);
        assert_eq!(events(&replay, false, (0, 100)), (None, Some(10)));
        assert_eq!(events(&replay, true, (11, 100)), (None, None));
        assert_eq!(search(&replay, true, (11, 100)).unknown, None);
    }

    #[test]
    fn missing_values_are_passed_at_their_edges() {
        // The first segment disagrees after instruction 40, and the history goes on after 100.
        let replay = replay(&[
            MadeSegment {
                stores: vec![10],
                reached: 40,
                ..MadeSegment::new(0..50)
            },
            MadeSegment::new(50..100),
        ]);
        assert_eq!(events(&replay, false, (0, 100)), (Some((49, 50)), None));
        assert_eq!(events(&replay, false, (0, 49)), (Some((40, 40)), None));
        assert_eq!(events(&replay, false, (0, 40)), (None, Some(10)));
        assert_eq!(events(&replay, true, (11, 120)), (Some((40, 40)), None));
        assert_eq!(events(&replay, true, (41, 120)), (Some((49, 50)), None));
        assert_eq!(events(&replay, true, (50, 120)), (Some((100, 100)), None));
        // A search in the gap passes no edge, and does not know what is there.
        assert_eq!(events(&replay, true, (101, 120)), (None, None));
        assert_eq!(search(&replay, true, (101, 120)).unknown, Some(101));
    }
}
