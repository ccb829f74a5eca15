//! Breakpoints: where they hit, which hits count, and the table of them.

mod condition;

pub use condition::Condition;

use crate::error::{Error, Result};
use crate::lines::LineStarts;
use crate::step::Direction;
use backtrail_decoder::{Canceled, PcSet};
use backtrail_pt::Pid;
use std::collections::BTreeMap;

/// Where a location hits in a thread's history.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// Instructions that hit whenever they are reached.
    pub addresses: PcSet,
    /// Code of a line, which hits where a line start is.
    pub line: PcSet,
}

impl Hits {
    /// The first hit after `from` and before `limit`.
    ///
    /// # Errors
    /// When canceled.
    pub fn next(
        &self,
        lines: &LineStarts<'_>,
        from: u64,
        limit: u64,
    ) -> std::result::Result<Option<u64>, Canceled> {
        let find = |pcs: &PcSet, from: u64| {
            let any = !pcs.is_empty() && lines.history.count_at(from..limit, pcs) > 0;
            if any {
                lines.history.next_at(from, pcs).filter(|&at| at < limit)
            } else {
                None
            }
        };
        let first = from.saturating_add(1);
        let plain = find(&self.addresses, first);
        let mut at = find(&self.line, first);
        while let Some(index) = at
            && !lines.is_start(index)?
        {
            at = find(&self.line, index + 1);
        }
        Ok(plain.into_iter().chain(at).min())
    }

    /// The last hit before `from`, at `limit` or after.
    ///
    /// # Errors
    /// When canceled.
    pub fn previous(
        &self,
        lines: &LineStarts<'_>,
        from: u64,
        limit: u64,
    ) -> std::result::Result<Option<u64>, Canceled> {
        let find = |pcs: &PcSet, before: u64| {
            let any = !pcs.is_empty() && lines.history.count_at(limit..before, pcs) > 0;
            if any {
                lines.history.prev_at(before, pcs).filter(|&at| at >= limit)
            } else {
                None
            }
        };
        let plain = find(&self.addresses, from);
        let mut at = find(&self.line, from);
        while let Some(index) = at
            && !lines.is_start(index)?
        {
            at = find(&self.line, index);
        }
        Ok(plain.into_iter().chain(at).max())
    }

    /// Whether `index` hits.
    ///
    /// # Errors
    /// When canceled.
    pub fn at(&self, lines: &LineStarts<'_>, index: u64) -> std::result::Result<bool, Canceled> {
        let Some(pc) = lines.history.instruction(index).map(|found| found.pc) else {
            return Ok(false);
        };
        Ok(self.addresses.contains(pc) || (self.line.contains(pc) && lines.is_start(index)?))
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
    /// Which hits count.
    pub condition: Option<Condition>,
    /// How many of the next hits to pass.
    pub ignore: u64,
    /// How often it was hit, in both directions.
    pub count: u64,
}

/// All breakpoints.
#[derive(Clone, Debug, Default)]
pub struct Breakpoints {
    all: Vec<Breakpoint>,
    last: u32,
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
            condition: None,
            ignore: 0,
            count: 0,
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
    /// The calling function.
    pub caller: Option<&'a str>,
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
    for breakpoint in breakpoints {
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
