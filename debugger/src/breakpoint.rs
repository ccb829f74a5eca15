//! Breakpoints: where they hit, which hits count, and the table of them.

mod condition;
mod hits;
mod log;
mod scan;

pub use condition::{Condition, HeapBlock, HeapHit, Hit, Truth};
pub use hits::{HitCount, Hits};
pub use log::{Log, Logged, Message};
pub(crate) use scan::Scan;

use crate::error::{Error, Result};
use crate::lines::LineStarts;
use crate::location::AskedFrame;
use crate::step::Direction;
use crate::stop::StopReason;
use crate::watchpoint::{UnseenAccesses, UnseenCause, Watchpoint};
use backtrail_pt::{Pid, Tid};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A breakpoint.
#[derive(Clone, Debug)]
pub struct Breakpoint {
    /// Its number, from 1.
    pub number: u32,
    /// The location as it was given.
    pub location: String,
    /// The resolved locations, one for each place: `main at main.c:3`.
    pub places: Vec<String>,
    /// The frame that its location asks for.
    pub asked: AskedFrame,
    /// The addresses at which it hits, by process.
    pub hits: BTreeMap<Pid, Hits>,
    /// The only thread in which it hits; `None`: all threads.
    pub thread: Option<Tid>,
    /// Deleted at its first hit.
    pub temporary: bool,
    /// Whether it stops moves.
    pub enabled: bool,
    /// Which hits count.
    pub condition: Option<Condition>,
    /// Which of the hits that count by the condition, by their number among those.
    pub among: Option<Condition>,
    /// The number of hits to ignore.
    pub ignore: u64,
    /// The number of hits, in both directions.
    pub count: u64,
    /// The number of hits at which the condition was true.
    pub met: u64,
    /// The passed hits at which the condition was unknown.
    pub undecided: Option<UndecidedHits>,
    /// The commands that run when it stops a move.
    pub commands: Vec<String>,
    /// The watched expression. A watchpoint hits at accesses, and not at code.
    pub watchpoint: Option<Watchpoint>,
    /// The message of a log point, which logs its hits and stops no move.
    pub message: Option<Message>,
}

/// Hits that were passed because their condition was unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndecidedHits {
    /// The number of the breakpoint.
    pub breakpoint: u32,
    /// The count.
    pub hits: u64,
    /// Why, the first time.
    pub why: String,
}

impl UndecidedHits {
    /// One more in `all`.
    fn add(all: &mut Option<Self>, breakpoint: u32, why: &str) {
        let none = || Self {
            breakpoint,
            hits: 0,
            why: why.to_owned(),
        };
        let all = all.get_or_insert_with(none);
        all.hits = all.hits.saturating_add(1);
    }
}

impl fmt::Display for UndecidedHits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hits = if self.hits == 1 { "hit" } else { "hits" };
        write!(
            f,
            "passed {} {hits} because the condition is unknown: {}",
            self.hits, self.why
        )
    }
}

/// The code and places of a location, in all processes.
#[derive(Clone, Debug, Default)]
pub struct ResolvedLocation {
    /// The addresses at which it hits, by process.
    pub hits: BTreeMap<Pid, Hits>,
    /// The places: `main at main.c:3`.
    pub places: Vec<String>,
    /// The frame that it asks for.
    pub asked: AskedFrame,
}

/// All breakpoints.
#[derive(Clone, Debug, Default)]
pub struct Breakpoints {
    all: Vec<Breakpoint>,
    last: u32,
    /// The commands of the one that stopped the last move, which are to be done now.
    pub due: Vec<String>,
    /// The frame that the one asked for that stopped the last move.
    pub(crate) asked: AskedFrame,
    /// The reason of the stop, if a watchpoint stopped the last move.
    watch_stop: Option<StopReason>,
    /// The one for which commands are being typed.
    pub taking_commands: Option<u32>,
    /// The hits with unknown conditions that the last move passed.
    undecided: Option<UndecidedHits>,
    /// The places at which the last move may have passed accesses to watched memory.
    unseen: Option<UnseenAccesses>,
    /// The messages that moves logged.
    pub log: Log,
}

impl Breakpoints {
    /// Adds one and gives its number.
    pub fn add(&mut self, location: String, found: ResolvedLocation, temporary: bool) -> u32 {
        self.last = self.last.saturating_add(1);
        self.all.push(Breakpoint {
            number: self.last,
            location,
            places: found.places,
            asked: found.asked,
            hits: found.hits,
            thread: None,
            temporary,
            enabled: true,
            condition: None,
            among: None,
            ignore: 0,
            count: 0,
            met: 0,
            undecided: None,
            commands: Vec::new(),
            watchpoint: None,
            message: None,
        });
        self.last
    }

    /// All, by number.
    #[must_use]
    pub fn all(&self) -> &[Breakpoint] {
        &self.all
    }

    /// One of them.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn get_mut(&mut self, number: u32) -> Result<&mut Breakpoint> {
        let found = self.all.iter_mut().find(|breakpoint| breakpoint.number == number);
        found.ok_or(Error::NoBreakpoint(number))
    }

    /// Deletes one.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn delete(&mut self, number: u32) -> Result<()> {
        self.get_mut(number)?;
        self.all.retain(|breakpoint| breakpoint.number != number);
        Ok(())
    }

    /// Records a hit that was passed because its condition is unknown.
    ///
    /// # Errors
    ///
    /// If there is no breakpoint of this number.
    pub fn passes_untold(&mut self, number: u32, why: &str) -> Result<()> {
        UndecidedHits::add(&mut self.get_mut(number)?.undecided, number, why);
        UndecidedHits::add(&mut self.undecided, number, why);
        Ok(())
    }

    /// Notes the reason for which a watchpoint stops the move.
    pub(crate) fn stops_watching(&mut self, reason: StopReason) {
        self.watch_stop = Some(reason);
    }

    /// Returns the reason of a stop at a hit of a number.
    pub(crate) fn stop_reason(&mut self, number: u32) -> StopReason {
        let reason = self.watch_stop.take();
        reason.unwrap_or(StopReason::Breakpoint { number })
    }

    /// Takes the hits with unknown conditions since the last call; of several breakpoints, those of
    /// the first.
    pub fn take_undecided(&mut self) -> Option<UndecidedHits> {
        self.undecided.take()
    }

    /// Notes a place at which accesses to watched memory may have gone unseen.
    pub(crate) fn passes_unseen(&mut self, position: String, cause: UnseenCause) {
        UnseenAccesses::add(&mut self.unseen, position, cause);
    }

    /// Takes the places at which accesses may have gone unseen since the last call.
    pub(crate) fn take_unseen(&mut self) -> Option<UnseenAccesses> {
        self.unseen.take()
    }

    /// The number of the last one that was made.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.all.last().map(|breakpoint| breakpoint.number)
    }

    /// Deletes all.
    pub fn clear(&mut self) {
        self.all.clear();
    }
}

impl Breakpoint {
    /// Returns where it hits in a thread; `None`: nowhere, or it is disabled.
    #[must_use]
    pub fn hits_in(&self, process: Pid, tid: Tid) -> Option<&Hits> {
        let meant = self.enabled && self.thread.is_none_or(|only| only == tid);
        self.hits.get(&process).filter(|hits| meant && !hits.is_empty())
    }
}

/// A part of a thread's history in which hits are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchRange {
    /// The first index.
    pub start: u64,
    /// The index after the last.
    pub end: u64,
    /// The end at which the search begins.
    pub direction: Direction,
}

/// Returns the hit that a search in `range` meets first, of all breakpoints, and its breakpoint.
///
/// # Errors
/// When canceled.
pub fn nearest(
    breakpoints: &[Breakpoint],
    process: Pid,
    tid: Tid,
    lines: &LineStarts<'_>,
    range: SearchRange,
) -> Result<Option<(u64, u32)>> {
    let SearchRange {
        start,
        end,
        direction,
    } = range;
    let mut nearest: Option<(u64, u32)> = None;
    for breakpoint in breakpoints {
        let Some(hits) = breakpoint.hits_in(process, tid) else {
            continue;
        };
        // Hits beyond the nearest known one need no search.
        let found = match direction {
            Direction::Forward => hits.next(lines, start, nearest.map_or(end, |(at, _)| at))?,
            Direction::Backward => hits.previous(lines, end, nearest.map_or(start, |(at, _)| at + 1))?,
        };
        if let Some(at) = found {
            nearest = Some((at, breakpoint.number));
        }
    }
    Ok(nearest)
}
