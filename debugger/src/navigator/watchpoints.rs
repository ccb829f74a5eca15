//! Watchpoints: setting them, searching their hits, and deciding which hits count.

use super::{Navigator, Stop};
use crate::breakpoint::{ResolvedLocation, SearchRange};
use crate::error::{Error, Result};
use crate::evaluation::past_memory::PastMemory;
use crate::evaluation::thread_path::ThreadPath;
use crate::evaluation::watched;
use crate::replay::{AccessSearch, MemoryRange, ReplayGap, UnseenPlace};
use crate::session::{Session, Thread};
use crate::step::{Direction, Motion};
use crate::stop::StopReason;
use crate::thread_at_time::{ThreadAtTime, thread_at_time};
use crate::watchpoint::{
    UnseenAccesses, UnseenCause, WatchHit, WatchKind, WatchScope, WatchedChange, Watchpoint,
};
use backtrail_decoder::Watch;
use std::collections::BTreeMap;

/// The event at which a search for a watchpoint ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStop {
    /// An access by this instruction.
    Access(u64),
    /// The call in which the variables exist begins or ends here.
    ScopeEdge,
    /// Values were recorded from here on.
    LogStart,
}

impl Navigator {
    /// Sets a watchpoint on an expression of the selected frame, and returns its number.
    ///
    /// # Errors
    /// If no values were recorded; if the expression is invalid or constant; when canceled.
    pub fn set_watchpoint(
        &mut self,
        expression: &str,
        kind: WatchKind,
        at_location: bool,
        condition: Option<&str>,
        watch: &Watch<'_>,
    ) -> Result<u32> {
        self.needs_values()?;
        let watchpoint = watched::watchpoint(self, expression, kind, at_location, watch)?;
        let condition = condition
            .map(|text| self.condition(text, &BTreeMap::new()))
            .transpose()?;
        let location = match at_location {
            true => format!("-location {expression}"),
            false => expression.to_owned(),
        };
        let number = self.breakpoints.add(location, ResolvedLocation::default(), false);
        let breakpoint = self.breakpoints.get_mut(number)?;
        breakpoint.condition = condition;
        breakpoint.watchpoint = Some(watchpoint);
        Ok(number)
    }

    /// Returns whether the values of the current thread were recorded.
    ///
    /// # Errors
    /// As with [`Self::thread`].
    pub fn has_values(&self) -> Result<bool> {
        Ok(self.session.replay(self.thread()?).is_some())
    }

    /// Checks that an expression of the selected frame has a value that can change.
    ///
    /// # Errors
    /// As with [`Self::set_watchpoint`].
    pub fn is_watchable(&self, expression: &str, watch: &Watch<'_>) -> Result<()> {
        self.needs_values()?;
        watched::watchpoint(self, expression, WatchKind::Change, false, watch).map(|_| ())
    }

    /// Fails if the values of the current thread were not recorded.
    ///
    /// # Errors
    /// As said.
    pub(crate) fn needs_values(&self) -> Result<()> {
        match self.session.replay(self.thread()?) {
            Some(_) => Ok(()),
            None => Err(Error::Cannot(
                "no values were recorded, so that accesses to memory are unknown; record with `backtrail record --values`"
                    .to_owned(),
            )),
        }
    }

    /// Goes to the nearest write of an expression of the selected frame in a direction, in any
    /// thread.
    ///
    /// # Errors
    /// If no values were recorded; if the expression is invalid; if there is no write; when
    /// canceled.
    pub fn go_to_write(&mut self, expression: &str, direction: Direction, watch: &Watch<'_>) -> Result<Stop> {
        let home = self.position();
        let stop = self.with_one_watchpoint(expression, watch, |navigator| {
            navigator.run(&Motion::Continue, direction, watch)
        })?;
        if let Some(unseen) = &stop.unseen {
            self.back()?;
            let which = match direction {
                Direction::Backward => "last",
                Direction::Forward => "next",
            };
            let seen = match &stop.reason {
                StopReason::Watchpoint { hit, .. } => {
                    format!("the {which} write that is seen is at {}", hit.position)
                }
                _ => "no other write is seen".to_owned(),
            };
            return Err(Error::Cannot(format!(
                "the {which} write of {expression} is unknown: {unseen}; {seen}"
            )));
        }
        match stop.reason.clone() {
            StopReason::Watchpoint { hit, .. } => Ok(Stop {
                reason: StopReason::Watchpoint { number: 0, hit },
                ..stop
            }),
            _ => {
                self.back()?;
                let when = match direction {
                    Direction::Backward => "before",
                    Direction::Forward => "after",
                };
                let why = match (&stop.undecided, &stop.reason) {
                    (Some(undecided), _) => format!(": {}", undecided.why),
                    (None, StopReason::WatchScope { scope, .. }) => {
                        format!(" in {}, where it exists", scope.as_deref().unwrap_or("the call"))
                    }
                    (None, StopReason::Gap { cause }) => format!(": {cause}"),
                    _ => String::new(),
                };
                Err(Error::Cannot(format!(
                    "no recorded instruction writes {expression} {when} {home}{why}"
                )))
            }
        }
    }

    /// Returns the writes of an expression of the selected frame, the newest first, at most
    /// `limit`; and whether there are more. Places at which writes may be unseen have rows of their
    /// own.
    ///
    /// # Errors
    /// As with [`Self::go_to_write`].
    pub fn writes(
        &mut self,
        expression: &str,
        limit: usize,
        watch: &Watch<'_>,
    ) -> Result<(Vec<HistoryRow>, bool)> {
        let (tid, index) = (self.current, self.index());
        let frame = self.frame;
        self.visiting(tid, index, |navigator| {
            navigator.frame = frame;
            let positions = navigator.positions.clone();
            let found = navigator
                .with_one_watchpoint(expression, watch, |navigator| navigator.all_writes(limit, watch));
            navigator.positions = positions;
            found
        })
    }

    fn all_writes(&mut self, limit: usize, watch: &Watch<'_>) -> Result<(Vec<HistoryRow>, bool)> {
        self.stand_at_end_of_watch();
        let mut rows = Vec::new();
        let mut count = 0;
        loop {
            let stop = self.run(&Motion::Continue, Direction::Backward, watch)?;
            // A mapping is one place, at which several searches end.
            let is_new = |unseen: &UnseenAccesses| {
                let same =
                    |row: &HistoryRow| matches!(row, HistoryRow::Unseen { unseen: known } if known == unseen);
                !rows.iter().any(same)
            };
            let unseen = stop.unseen.filter(is_new);
            rows.extend(unseen.map(|unseen| HistoryRow::Unseen { unseen }));
            let StopReason::Watchpoint { hit, .. } = stop.reason else {
                return Ok((rows, false));
            };
            if count >= limit {
                return Ok((rows, true));
            }
            count += 1;
            let thread = self.thread()?;
            rows.push(HistoryRow::Write(WriteView {
                hit,
                thread: thread.tid.0,
                name: thread.name.clone(),
                place: write_place(&self.session, thread, self.index()),
            }));
        }
    }

    /// Goes to where the variables of the only watchpoint end: the end of their call, or that of
    /// the history.
    fn stand_at_end_of_watch(&mut self) {
        let watchpoint = self
            .breakpoints
            .all()
            .first()
            .and_then(|one| one.watchpoint.as_ref());
        let scope = watchpoint.and_then(|watchpoint| watchpoint.scope.as_ref());
        let end = match scope {
            Some(scope) => Some((scope.tid, scope.instructions.end)),
            None => self
                .session
                .main_thread()
                .map(|thread| (thread.tid, thread.history.len())),
        };
        if let Some((tid, end)) = end {
            self.stand_at(tid, end);
        }
    }

    /// Does something with a watchpoint on an expression alone.
    fn with_one_watchpoint<T>(
        &mut self,
        expression: &str,
        watch: &Watch<'_>,
        act: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let all = std::mem::take(&mut self.breakpoints);
        let done = self
            .set_watchpoint(expression, WatchKind::Change, false, None, watch)
            .and_then(|_| act(self));
        self.breakpoints = all;
        done
    }

    /// Finds the memory of all watchpoints at the current position, from which a search begins.
    pub(super) fn begin_watching(&mut self, watch: &Watch<'_>) -> Result<()> {
        let numbers = self.watchpoints();
        for number in numbers {
            self.locate_watchpoint(number, (self.current, self.index()), watch)?;
        }
        Ok(())
    }

    fn watchpoints(&self) -> Vec<u32> {
        let all = self.breakpoints.all().iter();
        all.filter(|one| one.enabled && one.watchpoint.is_some())
            .map(|one| one.number)
            .collect()
    }

    /// Finds the memory of a watchpoint at a position. Returns whether it has changed.
    pub(super) fn locate_watchpoint(
        &mut self,
        number: u32,
        (tid, index): (backtrail_pt::Tid, u64),
        watch: &Watch<'_>,
    ) -> Result<bool> {
        let Some(watchpoint) = self.breakpoints.get_mut(number)?.watchpoint.clone() else {
            return Ok(false);
        };
        if watchpoint.location.is_some() {
            return Ok(false);
        }
        let thread = self.session.thread(tid)?;
        let (_, ranges) = watched::evaluate(self, &watchpoint, (thread, index), watch)?;
        let breakpoint = self.breakpoints.get_mut(number)?;
        let has_changed = breakpoint.watchpoint.as_ref().map(|one| &one.ranges) != Some(&ranges);
        if let Some(watchpoint) = &mut breakpoint.watchpoint {
            watchpoint.ranges = ranges;
        }
        Ok(has_changed)
    }

    /// Returns whether a watchpoint may hit in a thread.
    pub(super) fn has_watchpoints(&self, thread: &Thread) -> bool {
        let watched = self.breakpoints.all().iter();
        watched
            .filter(|one| one.enabled)
            .filter_map(|one| one.watchpoint.as_ref())
            .any(|watchpoint| self.is_watched_in(watchpoint, thread))
    }

    fn is_watched_in(&self, watchpoint: &Watchpoint, thread: &Thread) -> bool {
        let process = self.session.process(thread).map(|process| process.pid);
        let meant = match &watchpoint.scope {
            Some(scope) if watchpoint.is_in_registers => scope.tid == thread.tid,
            _ => true,
        };
        process == Some(watchpoint.process) && meant && !thread.history.is_empty()
    }

    /// Returns the nearest position in a range at which a watchpoint may stop, and its number.
    pub(super) fn nearest_watched(
        &self,
        thread: &Thread,
        range: SearchRange,
        watch: &Watch<'_>,
    ) -> Result<Option<(u64, u32)>> {
        let mut nearest: Option<(u64, u32)> = None;
        for breakpoint in self.breakpoints.all().iter().filter(|one| one.enabled) {
            let Some(watchpoint) = &breakpoint.watchpoint else {
                continue;
            };
            if !self.is_watched_in(watchpoint, thread) {
                continue;
            }
            let range = match (nearest, range.direction) {
                (Some((at, _)), Direction::Forward) => SearchRange { end: at, ..range },
                (Some((at, _)), Direction::Backward) => SearchRange {
                    start: at + 1,
                    ..range
                },
                (None, _) => range,
            };
            if let Some(at) = self.next_watched(watchpoint, thread, range, watch)? {
                nearest = Some((at, breakpoint.number));
            }
        }
        Ok(nearest)
    }

    fn next_watched(
        &self,
        watchpoint: &Watchpoint,
        thread: &Thread,
        range: SearchRange,
        watch: &Watch<'_>,
    ) -> Result<Option<u64>> {
        let SearchRange {
            start,
            end,
            direction,
        } = range;
        let edge = scope_edge(watchpoint.scope.as_ref(), thread, range);
        if watchpoint.is_in_registers {
            let found = self.next_register_change(watchpoint, thread, range, watch)?;
            return Ok(match direction {
                Direction::Forward => [found, edge].into_iter().flatten().min(),
                Direction::Backward => found.max(edge),
            });
        }
        let (Some(replay), Some(path)) = (self.session.replay(thread), ThreadPath::of(&self.session, thread))
        else {
            return Ok(edge);
        };
        let wanted = (&*watchpoint.ranges, watchpoint.kind.filter());
        // The variables exist in the call alone.
        let scope = watchpoint.scope.as_ref().filter(|scope| scope.tid == thread.tid);
        let life = scope.map_or(0..u64::MAX, |scope| scope.instructions.clone());
        let canceled = |_: ReplayGap| Error::Canceled;
        match direction {
            Direction::Forward => {
                // A stop is after the access.
                let limit = edge.map_or(end, |edge| edge.min(end)).saturating_sub(1);
                let begin = start.saturating_sub(1).max(life.start);
                let limit = limit.min(life.end);
                let search = replay
                    .next_access(&path, wanted, (begin, limit), watch)
                    .map_err(canceled)?;
                Ok(nearest_event(&search).map(|index| index + 1).or(edge))
            }
            Direction::Backward => {
                let limit = edge.map_or(start, |edge| edge.max(start)).max(life.start);
                let end = end.min(life.end);
                let search = replay
                    .previous_access(&path, wanted, (limit, end), watch)
                    .map_err(canceled)?;
                let log_start = replay.start().filter(|first| (start.max(1)..end).contains(first));
                Ok(nearest_event(&search).or(edge.max(log_start)))
            }
        }
    }

    /// Returns the reason for which a watchpoint stops at a position, if it does: an access, or an
    /// edge of what is known. Otherwise the hit is passed.
    pub(super) fn watch_stop(
        &mut self,
        number: u32,
        index: u64,
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<Option<StopReason>> {
        let Some(watchpoint) = self.breakpoints.get_mut(number)?.watchpoint.clone() else {
            return Ok(None);
        };
        let thread = self.session.thread(self.current)?;
        let (stop, unseen) = self.events_at(&watchpoint, thread, index, direction, watch)?;
        if let Some(place) = unseen
            && let Some(hit) = self.unseen_hit(number, &watchpoint, place, direction, watch)?
        {
            return Ok(Some(StopReason::Watchpoint { number, hit }));
        }
        match stop {
            None => Ok(None),
            Some(WatchStop::ScopeEdge) => Ok(Some(StopReason::WatchScope {
                number,
                expression: watchpoint.expression.clone(),
                scope: watchpoint.scope.and_then(|scope| scope.function),
            })),
            Some(WatchStop::LogStart) => {
                if direction == Direction::Backward {
                    self.thread()?.needs_beginning()?;
                }
                Ok(Some(StopReason::Gap {
                    cause: "values were recorded from here on only".to_owned(),
                }))
            }
            Some(WatchStop::Access(at)) => {
                let thread = self.session.thread(self.current)?;
                if !self.is_in_scope(&watchpoint, thread, at)? {
                    return Ok(None);
                }
                let change = match watchpoint.is_in_registers {
                    true => self.register_change(&watchpoint, thread, index, direction, watch)?,
                    false => self.memory_change(number, &watchpoint, at, direction, watch)?,
                };
                let is_change = watchpoint.kind == WatchKind::Change && !watchpoint.is_in_registers;
                if is_change && change.has_changed() == Some(false) {
                    return Ok(None);
                }
                self.note_sharing(&watchpoint, (self.current, at), watch)?;
                let hit = self.hit(&watchpoint, change)?;
                Ok(Some(StopReason::Watchpoint { number, hit }))
            }
        }
    }

    fn hit(&self, watchpoint: &Watchpoint, change: WatchedChange) -> Result<WatchHit> {
        Ok(WatchHit {
            expression: watchpoint.expression.clone(),
            kind: watchpoint.kind,
            position: self.thread()?.position(change.at).to_string(),
            old: change.old.text,
            new: change.new.text,
        })
    }

    /// Notes the memory of all watchpoints that other processes may write.
    pub(super) fn note_shared_memory(&mut self, watch: &Watch<'_>) -> Result<()> {
        for number in self.watchpoints() {
            if let Some(watchpoint) = self.breakpoints.get_mut(number)?.watchpoint.clone() {
                self.note_sharing(&watchpoint, (self.current, self.index()), watch)?;
            }
        }
        Ok(())
    }

    /// Notes that other processes may write the memory of a watchpoint.
    fn note_sharing(
        &mut self,
        watchpoint: &Watchpoint,
        (tid, index): (backtrail_pt::Tid, u64),
        watch: &Watch<'_>,
    ) -> Result<()> {
        let thread = self.session.thread(tid)?;
        let Some(process) = self.session.process(thread) else {
            return Ok(());
        };
        if watchpoint.is_in_registers || watchpoint.kind == WatchKind::Read {
            return Ok(());
        }
        let memory = PastMemory {
            session: &self.session,
            process,
            thread,
            index,
            watch,
        };
        let ranges = watchpoint.ranges.iter();
        // Where the sharing is not known, the value is not known either.
        let sharing = ranges.filter_map(|range| memory.sharing(*range).ok()?).next();
        if let Some(sharing) = sharing {
            let here = || thread.position(index).to_string();
            let position = sharing.since.unwrap_or_else(here);
            self.breakpoints.passes_unseen(position, UnseenCause::Shared);
        }
        match watch.is_canceled() {
            true => Err(Error::Canceled),
            false => Ok(()),
        }
    }

    /// Returns the values around an instruction of the current thread, and finds the memory of the
    /// watchpoint on its other side.
    fn memory_change(
        &mut self,
        number: u32,
        watchpoint: &Watchpoint,
        at: u64,
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<WatchedChange> {
        let thread = self.session.thread(self.current)?;
        let value = |index| watched::evaluate(self, watchpoint, (thread, index), watch);
        let (old, before) = value(at)?;
        let (new, after) = value(at + 1)?;
        let (is_known, mut ranges) = match direction {
            Direction::Forward => (new.bytes.is_some(), after),
            Direction::Backward => (old.bytes.is_some(), before),
        };
        // Where a pointer is unknown, the memory is perhaps still the same.
        if !is_known {
            let known = watchpoint.ranges.iter().copied();
            let others: Vec<_> = known.filter(|range| !ranges.contains(range)).collect();
            ranges.extend(others);
        }
        if let Some(watchpoint) = &mut self.breakpoints.get_mut(number)?.watchpoint {
            watchpoint.ranges = ranges;
        }
        Ok(WatchedChange { at, old, new })
    }

    /// Returns the change by a system call whose effects are not known otherwise. Without one,
    /// notes the place if the value may have changed there.
    fn unseen_hit(
        &mut self,
        number: u32,
        watchpoint: &Watchpoint,
        place: UnseenPlace,
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<Option<WatchHit>> {
        let thread = self.session.thread(self.current)?;
        if !self.is_in_scope(watchpoint, thread, place.index)? {
            return Ok(None);
        }
        let position = thread.position(place.position).to_string();
        let change = self.memory_change(number, watchpoint, place.index, direction, watch)?;
        let cause = match (place.is_gap, change.has_changed()) {
            (false, Some(false)) => return Ok(None),
            (false, Some(true)) => return self.hit(watchpoint, change).map(Some),
            (false, None) => UnseenCause::Kernel,
            // Several writes may be unseen in a gap, also where the value is the same after it.
            (true, _) => UnseenCause::Gap,
        };
        self.breakpoints.passes_unseen(position, cause);
        Ok(None)
    }

    /// Returns whether the variables of a watchpoint exist when another thread is before an
    /// instruction, as far as the time stamps determine.
    fn is_in_scope(&self, watchpoint: &Watchpoint, thread: &Thread, index: u64) -> Result<bool> {
        let Some(scope) = watchpoint.scope.as_ref().filter(|scope| scope.tid != thread.tid) else {
            return Ok(true);
        };
        let owner = self.session.thread(scope.tid)?;
        let instructions = &scope.instructions;
        Ok(match thread_at_time(&self.session, thread, index, owner)? {
            ThreadAtTime::Between(from, until) => until > instructions.start && from < instructions.end,
            ThreadAtTime::NotBegun => false,
            ThreadAtTime::Unknown => true,
        })
    }

    /// Returns the event of a watchpoint at a position, and the place there at which accesses may
    /// be unseen.
    fn events_at(
        &self,
        watchpoint: &Watchpoint,
        thread: &Thread,
        index: u64,
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<(Option<WatchStop>, Option<UnseenPlace>)> {
        let at = match direction {
            Direction::Forward => index.saturating_sub(1),
            Direction::Backward => index,
        };
        let range = SearchRange {
            start: index,
            end: index + 1,
            direction,
        };
        let is_edge = scope_edge(watchpoint.scope.as_ref(), thread, range).is_some();
        let edge = is_edge.then_some(WatchStop::ScopeEdge);
        if watchpoint.is_in_registers {
            return Ok((edge.or(Some(WatchStop::Access(at))), None));
        }
        let (Some(replay), Some(path)) = (self.session.replay(thread), ThreadPath::of(&self.session, thread))
        else {
            return Ok((edge, None));
        };
        let search = |ranges: &[MemoryRange]| {
            replay
                .next_access(&path, (ranges, watchpoint.kind.filter()), (at, at + 1), watch)
                .map_err(|_| Error::Canceled)
        };
        let access = search(&watchpoint.ranges)?.found.map(|_| WatchStop::Access(at));
        let is_log_start = direction == Direction::Backward && replay.start() == Some(index);
        let log_start = is_log_start.then_some(WatchStop::LogStart);
        Ok((access.or(edge).or(log_start), search(&[])?.unseen))
    }
}

/// Returns the instruction of the access or unseen place that a search found.
fn nearest_event(search: &AccessSearch) -> Option<u64> {
    let found = search.found.map(|found| found.index);
    search.unseen.map(|unseen| unseen.index).or(found)
}

/// Returns the position in a range at which the call of a watchpoint ends, in the direction of the
/// search.
fn scope_edge(scope: Option<&WatchScope>, thread: &Thread, range: SearchRange) -> Option<u64> {
    let scope = scope.filter(|scope| scope.tid == thread.tid)?;
    let edge = match range.direction {
        Direction::Forward => scope.instructions.end,
        Direction::Backward if scope.has_start => scope.instructions.start,
        Direction::Backward => return None,
    };
    let is_inner = edge < thread.history.len() && edge > 0;
    (is_inner && (range.start..range.end).contains(&edge)).then_some(edge)
}

/// A row of the writes of an expression.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum HistoryRow {
    /// A write.
    Write(WriteView),
    /// Places between two writes at which others may be unseen, the newest one named.
    Unseen {
        /// The places.
        unseen: UnseenAccesses,
    },
}

/// A write of an expression.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WriteView {
    /// The write.
    #[serde(flatten)]
    pub hit: WatchHit,
    /// The thread.
    pub thread: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The place in the program.
    #[serde(flatten)]
    pub place: WritePlace,
}

/// Returns the place of an instruction in the program.
pub(crate) fn write_place(session: &Session, thread: &Thread, index: u64) -> WritePlace {
    let symbols = session.symbols_at(thread, index).zip(thread.history.pc(index));
    let frame = symbols.and_then(|(symbols, pc)| symbols.frames_at(pc).into_iter().next());
    frame.map_or_else(WritePlace::default, |frame| WritePlace {
        function: Some(frame.function.to_string()),
        file: frame.location.as_ref().map(|at| at.file.to_string()),
        line: frame.location.as_ref().map(|at| at.line),
    })
}

/// The place of a write in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WritePlace {
    /// The function.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}
