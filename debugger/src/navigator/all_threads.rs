//! `continue` over all threads: the hit that is nearest in time.

use super::{HitsElsewhere, Navigator, Stop, UnorderedHit};
use crate::breakpoint::{self, Breakpoint, SearchRange};
use crate::error::Result;
use crate::session::Thread;
use crate::step::{Direction, Motion, Target};
use crate::stop::StopReason;
use crate::thread_at_time::{ThreadAtTime, thread_at_time};
use crate::thread_order::{Rank, needs_nothing_before, positions_before, rank};
use backtrail_decoder::{Stage, Watch};
use backtrail_pt::Tid;

/// The search in one thread.
struct ThreadSearch {
    tid: Tid,
    /// The rest of the history to search.
    range: SearchRange,
    /// Where the search began.
    begin: u64,
    /// The nearest hit in the range, once it was searched.
    found: Option<Option<(u64, u32)>>,
}

/// The nearest hit of all threads.
#[derive(Clone, Copy)]
struct NearestHit {
    tid: Tid,
    index: u64,
    number: u32,
    rank: Rank,
}

impl Navigator {
    /// Returns whether `continue` searches in other threads, too.
    pub(super) fn searches_all_threads(&self, motion: &Motion) -> bool {
        matches!(motion, Motion::Continue)
            && !self.scheduler_locking
            && self
                .session
                .threads()
                .iter()
                .any(|thread| thread.tid != self.current && self.has_breakpoints(thread))
    }

    /// Continues to the nearest hit of all threads, or as far as the current thread goes.
    pub(super) fn continue_all(&mut self, direction: Direction, watch: &Watch<'_>) -> Result<Stop> {
        let from = self.index();
        self.begin_watching(watch)?;
        self.note_shared_memory(watch)?;
        let target = self.with_steps(watch, |steps| steps.target(&Motion::Continue, direction, from))?;
        let mut searches = self.searches(direction, &target)?;
        let mut passed: u64 = 0;
        loop {
            passed = passed.saturating_add(1);
            watch.report(Stage::Search, 0, passed)?;
            let Some(hit) = self.nearest_hit(&mut searches, direction, watch)? else {
                return self.stop_at_edge(direction, target, watch);
            };
            let counts = match hit.tid == self.current {
                true => self.counts(hit.index, hit.number, direction, watch)?,
                false => self.visiting(hit.tid, hit.index, |navigator| {
                    navigator.counts(hit.index, hit.number, direction, watch)
                })?,
            };
            if counts {
                return self.stop_at_hit(hit, &searches, direction, watch);
            }
            let is_watched = self.breakpoints.get_mut(hit.number)?.watchpoint.is_some();
            for search in &mut searches {
                if is_watched {
                    // The access may have changed the memory to watch.
                    search.found = None;
                }
                if search.tid != hit.tid {
                    continue;
                }
                search.found = None;
                match direction {
                    Direction::Forward => search.range.start = hit.index.saturating_add(1),
                    Direction::Backward => search.range.end = hit.index,
                }
            }
        }
    }

    /// Returns the hits of enabled breakpoints in each thread, and where they are.
    ///
    /// # Errors
    ///
    /// If that depends on history that is not decoded yet; when canceled.
    pub(super) fn hits_elsewhere(&self, watch: &Watch<'_>) -> Result<Vec<HitsElsewhere>> {
        let mut found = Vec::new();
        for thread in self.session.threads() {
            if !self.has_breakpoints(thread) {
                continue;
            }
            thread.needs_beginning()?;
            let (hits, first, last) = self.with_steps_of(thread, watch, |steps| {
                let process = self.session.process(thread).map(|process| process.pid);
                let all = self.breakpoints.all().iter();
                let meant = all.filter_map(|one| one.hits_in(process?, thread.tid));
                let (mut count, mut first, mut last) = (0_u64, None, None);
                for hits in meant {
                    count = count.saturating_add(hits.count(&steps.lines)?.all);
                    let earliest = hits.next(&steps.lines, 0, u64::MAX)?;
                    first = [first, earliest].into_iter().flatten().min();
                    last = last.max(hits.previous(&steps.lines, thread.history.len(), 0)?);
                }
                Ok((count, first, last))
            })?;
            if let (Some(first), Some(last)) = (first, last) {
                found.push(HitsElsewhere {
                    thread: thread.tid.0,
                    name: thread.name.clone(),
                    hits,
                    first: thread.position(first).to_string(),
                    last: thread.position(last).to_string(),
                });
            }
        }
        Ok(found)
    }

    fn has_breakpoints(&self, thread: &Thread) -> bool {
        let Some(process) = self.session.process(thread) else {
            return false;
        };
        let hits = |one: &Breakpoint| one.hits_in(process.pid, thread.tid).is_some();
        !thread.history.is_empty()
            && (self.breakpoints.all().iter().any(hits) || self.has_watchpoints(thread))
    }

    /// Returns where hits are searched: in this thread as far as its gaps permit, in others from
    /// the time of the current position on.
    fn searches(&self, direction: Direction, target: &Target) -> Result<Vec<ThreadSearch>> {
        let (here, index) = (self.thread()?, self.index());
        let is_gap = matches!(target.reason, StopReason::Gap { .. });
        let now = rank(&self.session, here, index)?;
        let limit = match is_gap {
            true => rank(&self.session, here, target.index)?,
            false => None,
        };
        let mut searches = Vec::new();
        for thread in self.session.threads() {
            if !self.has_breakpoints(thread) {
                continue;
            }
            let len = thread.history.len();
            let before = |rank: Option<Rank>| match rank {
                Some(rank) => positions_before(&self.session, here, rank, thread),
                None => Ok(None),
            };
            let (start, end) = if thread.tid == here.tid {
                match direction {
                    Direction::Forward => (index.saturating_add(1), target.index.saturating_add(1).min(len)),
                    Direction::Backward => (target.index, index),
                }
            } else {
                let Some(begin) = before(now)? else {
                    continue;
                };
                match direction {
                    Direction::Forward => (begin, before(limit)?.unwrap_or(len)),
                    Direction::Backward => (before(limit)?.unwrap_or(0), begin),
                }
            };
            searches.push(ThreadSearch {
                tid: thread.tid,
                range: SearchRange {
                    start,
                    end,
                    direction,
                },
                begin: match direction {
                    Direction::Forward => start,
                    Direction::Backward => end,
                },
                found: None,
            });
        }
        Ok(searches)
    }

    /// Returns the nearest hit of all searches.
    fn nearest_hit(
        &self,
        searches: &mut [ThreadSearch],
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<Option<NearestHit>> {
        let mut nearest: Option<NearestHit> = None;
        for search in searches.iter_mut() {
            let thread = self.session.thread(search.tid)?;
            let found = match search.found {
                Some(found) => found,
                None => self.hit_in(thread, search.range, watch)?,
            };
            search.found = Some(found);
            let Some((index, number)) = found else {
                continue;
            };
            if index == 0 {
                thread.needs_beginning()?;
            }
            // Without times, only the current thread is searched.
            let rank = rank(&self.session, thread, index)?.unwrap_or(Rank::unstamped(thread.tid, index));
            let is_nearer = nearest.is_none_or(|nearest| match direction {
                Direction::Forward => rank < nearest.rank,
                Direction::Backward => rank > nearest.rank,
            });
            if is_nearer {
                nearest = Some(NearestHit {
                    tid: thread.tid,
                    index,
                    number,
                    rank,
                });
            }
        }
        if direction == Direction::Backward {
            // Hits that are not decoded yet may be nearer.
            for search in searches.iter().filter(|search| search.found == Some(None)) {
                let thread = self.session.thread(search.tid)?;
                match nearest {
                    Some(nearest) if nearest.tid != search.tid => needs_nothing_before(nearest.rank, thread)?,
                    Some(_) => {}
                    None => thread.needs_beginning()?,
                }
            }
        }
        Ok(nearest)
    }

    /// Returns the nearest hit in a part of a thread's history, and the number of its breakpoint.
    pub(super) fn hit_in(
        &self,
        thread: &Thread,
        range: SearchRange,
        watch: &Watch<'_>,
    ) -> Result<Option<(u64, u32)>> {
        let process = self.session.process(thread).map(|process| process.pid);
        let Some(process) = process.filter(|_| range.start < range.end) else {
            return Ok(None);
        };
        let found = self.with_steps_of(thread, watch, |steps| {
            breakpoint::nearest(self.breakpoints.all(), process, thread.tid, &steps.lines, range)
        })?;
        let watched = self.nearest_watched(thread, range, watch)?;
        Ok(match range.direction {
            Direction::Forward => [found, watched].into_iter().flatten().min(),
            Direction::Backward => found.max(watched),
        })
    }

    /// Stops at a hit, and lists the other hits that may have come before it on the way.
    fn stop_at_hit(
        &mut self,
        hit: NearestHit,
        searches: &[ThreadSearch],
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<Stop> {
        let unordered = self.unordered_hits(hit, searches, direction, watch)?;
        let thread = self.session.thread(hit.tid)?;
        let begin = searches.iter().find(|search| search.tid == hit.tid);
        let begin = begin.map_or(hit.index, |search| search.begin);
        let crossed_gap = thread.history.gap_between(begin, hit.index);
        let crossed_gap = crossed_gap.map(|(_, gap)| gap.cause.to_string());
        let to = thread.position(hit.index);
        let stop = self.go_to(to)?;
        self.select_asked_frame();
        Ok(Stop {
            reason: self.breakpoints.stop_reason(hit.number),
            crossed_gap,
            undecided: self.breakpoints.take_undecided(),
            unseen: self.breakpoints.take_unseen(),
            unordered,
            ..stop
        })
    }

    /// Returns the next hits of other threads whose order with `hit` the time stamps leave open.
    fn unordered_hits(
        &self,
        hit: NearestHit,
        searches: &[ThreadSearch],
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<Vec<UnorderedHit>> {
        let here = self.session.thread(hit.tid)?;
        let mut unordered = Vec::new();
        for search in searches.iter().filter(|search| search.tid != hit.tid) {
            let other = self.session.thread(search.tid)?;
            let Some(Some((index, number))) = search.found else {
                continue;
            };
            let at = thread_at_time(&self.session, here, hit.index, other)?;
            let overlaps = match (at, direction) {
                (ThreadAtTime::Between(from, _), Direction::Backward) => index >= from,
                (ThreadAtTime::Between(_, until), Direction::Forward) => index < until,
                (ThreadAtTime::NotBegun | ThreadAtTime::Unknown, _) => false,
            };
            if overlaps {
                unordered.push(UnorderedHit {
                    breakpoint: number,
                    thread: other.tid.0,
                    name: other.name.clone(),
                    position: other.position(index).to_string(),
                });
            }
        }
        watch.report(Stage::Search, 1, 1)?;
        Ok(unordered)
    }

    /// Stops where the current thread's history ends, or at a gap.
    fn stop_at_edge(&mut self, direction: Direction, target: Target, watch: &Watch<'_>) -> Result<Stop> {
        if target.index == 0 && direction == Direction::Backward {
            self.thread()?.needs_beginning()?;
        }
        self.arrive(&Motion::Continue, target, watch)
    }

    /// Moves to a target in the current thread. The stop has the gap that the way crossed.
    pub(super) fn arrive(&mut self, motion: &Motion, target: Target, watch: &Watch<'_>) -> Result<Stop> {
        let Target { index, reason } = target;
        let is_edge = matches!(
            reason,
            StopReason::HistoryStart | StopReason::HistoryEnd { crash: None }
        );
        let elsewhere = match motion {
            Motion::Continue if is_edge => self.hits_elsewhere(watch)?,
            _ => Vec::new(),
        };
        let thread = self.thread()?;
        let crossed_gap = thread.history.gap_between(self.index(), index);
        let crossed_gap = crossed_gap.map(|(_, gap)| gap.cause.to_string());
        let crossed_gap = crossed_gap.filter(|_| !matches!(reason, StopReason::Gap { .. }));
        let to = thread.position(index);
        let stop = self.go_to(to)?;
        if matches!(reason, StopReason::Breakpoint { .. }) {
            self.select_asked_frame();
        }
        Ok(Stop {
            reason,
            crossed_gap,
            undecided: self.breakpoints.take_undecided(),
            unseen: self.breakpoints.take_unseen(),
            elsewhere,
            ..stop
        })
    }
}
