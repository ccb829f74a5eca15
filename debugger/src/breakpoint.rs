//! Breakpoints: where they hit, which hits count, and the table of them.

mod condition;
mod log;
mod scan;

pub use condition::{Condition, Truth};
pub use log::{Log, Logged, Message};

use crate::error::{Error, Result};
use crate::latency::Span;
use crate::lines::LineStarts;
use crate::step::Direction;
use backtrail_decoder::PcSet;
use backtrail_pt::{Avma, Pid};
use scan::Scan;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Where a location hits in a thread's history.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// Instructions that hit whenever they are reached.
    pub addresses: PcSet,
    /// Code of a line, which hits where a line start is.
    pub line: PcSet,
    /// Inlined copies of a function, which hit where a call comes into one from its other code.
    pub copies: Vec<PcSet>,
}

/// What of a set of addresses hits.
#[derive(Clone, Copy)]
enum HitRule {
    Always,
    LineStart,
    Entry,
}

type HitIndex = Result<Option<u64>>;

impl Hits {
    /// The first hit after `from` and before `limit`.
    ///
    /// # Errors
    /// When canceled.
    pub fn next(&self, lines: &LineStarts<'_>, from: u64, limit: u64) -> HitIndex {
        let limit = limit.min(lines.history.len());
        let mut nearest = None;
        for (pcs, rule) in self.sets() {
            let end = nearest.unwrap_or(limit);
            let mut scan = Scan::new(lines, pcs, from.saturating_add(1));
            while let Some(index) = scan.next(end)? {
                if rule.holds(lines, pcs, index)? {
                    nearest = Some(index);
                    break;
                }
            }
        }
        Ok(nearest)
    }

    /// The last hit before `from`, at `limit` or after.
    ///
    /// # Errors
    /// When canceled.
    pub fn previous(&self, lines: &LineStarts<'_>, from: u64, limit: u64) -> HitIndex {
        let mut nearest = None;
        for (pcs, rule) in self.sets() {
            let low = nearest.map_or(limit, |at: u64| at + 1);
            let mut scan = Scan::new(lines, pcs, from);
            while let Some(index) = scan.previous(low)? {
                if rule.holds(lines, pcs, index)? {
                    nearest = Some(index);
                    break;
                }
            }
        }
        Ok(nearest)
    }

    /// Whether `index` hits.
    ///
    /// # Errors
    /// When canceled.
    pub fn at(&self, lines: &LineStarts<'_>, index: u64) -> Result<bool> {
        let Some(pc) = lines.history.instruction(index).map(|found| found.pc) else {
            return Ok(false);
        };
        for (pcs, rule) in self.sets() {
            if pcs.contains(pc) && rule.holds(lines, pcs, index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many hits the whole history has.
    ///
    /// # Errors
    /// When canceled.
    pub fn count(&self, lines: &LineStarts<'_>) -> Result<u64> {
        let mut count = lines.history.count_at(0..lines.history.len(), &self.addresses);
        for (pcs, rule) in self.sets().skip(1) {
            let mut scan = Scan::new(lines, pcs, 0);
            while let Some(index) = scan.next(lines.history.len())? {
                count += u64::from(rule.holds(lines, pcs, index)?);
            }
        }
        Ok(count)
    }

    /// An address of it, to look names up at.
    #[must_use]
    pub fn address(&self) -> Option<Avma> {
        self.sets().find_map(|(pcs, _)| pcs.first())
    }

    /// The addresses first.
    fn sets(&self) -> impl Iterator<Item = (&PcSet, HitRule)> {
        let fixed = [
            (&self.addresses, HitRule::Always),
            (&self.line, HitRule::LineStart),
        ];
        fixed
            .into_iter()
            .chain(self.copies.iter().map(|copy| (copy, HitRule::Entry)))
    }
}

impl HitRule {
    fn holds(self, lines: &LineStarts<'_>, pcs: &PcSet, index: u64) -> Result<bool> {
        match self {
            Self::Always => Ok(true),
            Self::LineStart => lines.is_start(index),
            Self::Entry => {
                let Some(call) = lines.forest.call_at(index) else {
                    return Ok(true);
                };
                let before = lines
                    .own_before(call, index)
                    .and_then(|before| lines.history.pc(before));
                Ok(before.is_none_or(|pc| !pcs.contains(pc)))
            }
        }
    }
}

/// A breakpoint.
#[derive(Clone, Debug)]
pub struct Breakpoint {
    /// Its number, from 1.
    pub number: u32,
    /// The location as it was given.
    pub location: String,
    /// What it was found to be: `main at main.c:3`, a place a part.
    pub places: Vec<String>,
    /// Where it hits, by process.
    pub hits: BTreeMap<Pid, Hits>,
    /// Deleted at its first hit.
    pub temporary: bool,
    /// It stops moves at all.
    pub enabled: bool,
    /// Which hits count.
    pub condition: Option<Condition>,
    /// Which of the hits that count by the condition, by their number among those.
    pub among: Option<Condition>,
    /// How many of the next hits to pass.
    pub ignore: u64,
    /// How often it was hit, in both directions.
    pub count: u64,
    /// How often its condition held then.
    pub met: u64,
    /// The hits of which nobody can tell whether its condition holds; they were passed.
    pub undecided: Option<UndecidedHits>,
    /// What to do where it stops a move.
    pub commands: Vec<String>,
    /// It stops no move; instead its hits are logged so.
    pub message: Option<Message>,
}

/// Hits that were passed because nobody can tell whether a condition holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndecidedHits {
    /// The number of the breakpoint.
    pub breakpoint: u32,
    /// How many.
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
            "passed {} {hits} where it is unknown whether to stop: {}",
            self.hits, self.why
        )
    }
}

/// All breakpoints.
#[derive(Clone, Debug, Default)]
pub struct Breakpoints {
    all: Vec<Breakpoint>,
    last: u32,
    /// The commands of the one that stopped the last move, which are to be done now.
    pub due: Vec<String>,
    /// The one for which commands are being typed.
    pub taking_commands: Option<u32>,
    /// What the last move passed without knowing.
    undecided: Option<UndecidedHits>,
    /// What moves have logged.
    pub log: Log,
}

impl Breakpoints {
    /// Adds one and gives its number.
    pub fn add(
        &mut self,
        location: String,
        places: Vec<String>,
        hits: BTreeMap<Pid, Hits>,
        temporary: bool,
    ) -> u32 {
        self.last = self.last.saturating_add(1);
        self.all.push(Breakpoint {
            number: self.last,
            location,
            places,
            hits,
            temporary,
            enabled: true,
            condition: None,
            among: None,
            ignore: 0,
            count: 0,
            met: 0,
            undecided: None,
            commands: Vec::new(),
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

    /// Takes note of a hit that was passed because nobody can tell whether the condition holds.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn passes_untold(&mut self, number: u32, why: &str) -> Result<()> {
        UndecidedHits::add(&mut self.get_mut(number)?.undecided, number, why);
        UndecidedHits::add(&mut self.undecided, number, why);
        Ok(())
    }

    /// What was passed so since this was asked last; of several breakpoints the first is named.
    pub fn take_undecided(&mut self) -> Option<UndecidedHits> {
        self.undecided.take()
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

/// What a condition may ask of a hit.
#[derive(Clone, Debug)]
pub struct Hit<'a> {
    /// The thread.
    pub tid: u32,
    /// How often the breakpoint was hit, this time included.
    pub count: u64,
    /// The calling function, if it is asked for.
    pub caller: Option<&'a str>,
    /// How long the call that was hit took, in nanoseconds; `None`: it is unknown, or not asked for.
    pub duration: Option<Span>,
    /// How many instructions it executed; likewise.
    pub instructions: Option<Span>,
}

/// The hit nearest to `from` of all breakpoints, and its breakpoint.
///
/// # Errors
/// When canceled.
pub fn nearest(
    breakpoints: &[Breakpoint],
    process: Pid,
    lines: &LineStarts<'_>,
    direction: Direction,
    from: u64,
    limit: u64,
) -> Result<Option<(u64, u32)>> {
    let mut nearest: Option<(u64, u32)> = None;
    for breakpoint in breakpoints.iter().filter(|breakpoint| breakpoint.enabled) {
        let Some(hits) = breakpoint.hits.get(&process) else {
            continue;
        };
        // What is further than the nearest known hit need not be searched.
        let found = match direction {
            Direction::Forward => hits.next(lines, from, nearest.map_or(limit, |(at, _)| at))?,
            Direction::Backward => hits.previous(lines, from, nearest.map_or(limit, |(at, _)| at + 1))?,
        };
        if let Some(at) = found {
            nearest = Some((at, breakpoint.number));
        }
    }
    Ok(nearest)
}
