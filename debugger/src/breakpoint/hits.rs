//! Addresses at which breakpoints hit, and the search for hits.

use super::scan::Scan;
use crate::error::Result;
use crate::lines::{Begin, BeginEvents, CopyCode, Entrance, LastInstruction, LineStarts, scan_begins};
use backtrail_decoder::{PcSet, Version};
use backtrail_pt::Avma;

/// The addresses in a thread's history at which a location hits.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// Instructions that hit whenever they are reached.
    pub addresses: PcSet,
    /// Code of a line, which hits where a line start is.
    pub line: PcSet,
    /// Inlined copies of a function, which hit where an execution begins.
    pub copies: Vec<CopyCode>,
    /// If modules were replaced: the addresses of each period, by its first version of the code.
    /// In other periods, they belong to another module.
    pub epochs: Vec<(Version, Hits)>,
}

/// The number of hits in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCount {
    /// All hits.
    pub all: u64,
    /// Those in inlined copies.
    pub inlined: u64,
    /// Those in inlined copies that may continue an earlier execution.
    pub possible: u64,
}

/// The condition under which an address of a set hits.
#[derive(Clone, Copy)]
enum HitRule<'a> {
    Always,
    LineStart,
    Entry(&'a CopyCode),
}

impl Hits {
    /// Returns the hits of a location in each period in which the same modules were mapped, by its
    /// first version of the code.
    #[must_use]
    pub fn over_time(mut epochs: Vec<(Version, Self)>) -> Self {
        if epochs.len() < 2 {
            return epochs.pop().map(|(_, hits)| hits).unwrap_or_default();
        }
        let union = |set: fn(&Self) -> &PcSet| {
            let sets = epochs.iter().map(|(_, hits)| set(hits));
            PcSet::from_ranges(sets.flat_map(|set| set.ranges().iter().cloned()))
        };
        let mut copies: Vec<CopyCode> = Vec::new();
        for copy in epochs.iter().flat_map(|(_, hits)| &hits.copies) {
            if !copies.contains(copy) {
                copies.push(copy.clone());
            }
        }
        Self {
            addresses: union(|hits| &hits.addresses),
            line: union(|hits| &hits.line),
            copies,
            epochs,
        }
    }

    /// Returns whether there is no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets().all(|(pcs, _)| pcs.is_empty())
    }

    /// The first hit at `start` or after, and before `limit`.
    ///
    /// # Errors
    /// When canceled.
    pub fn next(&self, lines: &LineStarts<'_>, start: u64, limit: u64) -> Result<Option<u64>> {
        let limit = limit.min(lines.history.len());
        let mut nearest = None;
        for (pcs, rule) in self.sets() {
            let end = nearest.unwrap_or(limit);
            let mut scan = Scan::new(lines, pcs, start);
            while let Some(index) = scan.next(end)? {
                if self.is_meant(lines, index, rule) && rule.holds(lines, index)? {
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
    pub fn previous(&self, lines: &LineStarts<'_>, from: u64, limit: u64) -> Result<Option<u64>> {
        let mut nearest = None;
        for (pcs, rule) in self.sets() {
            let low = nearest.map_or(limit, |at: u64| at + 1);
            let mut scan = Scan::new(lines, pcs, from);
            while let Some(index) = scan.previous(low)? {
                if self.is_meant(lines, index, rule) && rule.holds(lines, index)? {
                    nearest = Some(index);
                    break;
                }
            }
        }
        Ok(nearest)
    }

    /// Returns whether instruction `index` is a hit.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn at(&self, lines: &LineStarts<'_>, index: u64) -> Result<bool> {
        let Some(pc) = lines.history.instruction(index).map(|found| found.pc) else {
            return Ok(false);
        };
        for (pcs, rule) in self.sets() {
            if pcs.contains(pc) && self.is_meant(lines, index, rule) && rule.holds(lines, index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Counts the hits in the whole history.
    ///
    /// # Errors
    ///
    /// If it depends on history that is not decoded yet; when canceled.
    pub fn count(&self, lines: &LineStarts<'_>) -> Result<HitCount> {
        // If all executions of the addresses are meant, none has to be visited.
        let (mut all, visited) = match self.epochs.is_empty() {
            true => (lines.history.count_at(0..lines.history.len(), &self.addresses), 1),
            false => (0, 0),
        };
        for (pcs, rule) in self.addresses_and_lines().into_iter().skip(visited) {
            let mut scan = Scan::new(lines, pcs, 0);
            while let Some(index) = scan.next(lines.history.len())? {
                all += u64::from(self.is_meant(lines, index, rule) && rule.holds(lines, index)?);
            }
        }
        let copies: Vec<&CopyCode> = self.copies.iter().collect();
        let mut inlined = InlinedCount {
            hits: self,
            lines,
            count: 0,
            possible: 0,
        };
        scan_begins(lines, &copies, &mut inlined)?;
        Ok(HitCount {
            all: all + inlined.count,
            inlined: inlined.count,
            possible: inlined.possible,
        })
    }

    /// Returns whether a set has the address of instruction `index` in its period.
    fn is_meant(&self, lines: &LineStarts<'_>, index: u64, rule: HitRule<'_>) -> bool {
        if self.epochs.is_empty() {
            return true;
        }
        let version = lines.history.version(index);
        let next = self.epochs.partition_point(|(from, _)| *from <= version);
        let epoch = next.checked_sub(1).and_then(|number| self.epochs.get(number));
        let Some(((_, epoch), pc)) = epoch.zip(lines.history.pc(index)) else {
            return false;
        };
        match rule {
            HitRule::Always => epoch.addresses.contains(pc),
            HitRule::LineStart => epoch.line.contains(pc),
            HitRule::Entry(copy) => epoch.copies.contains(copy),
        }
    }

    /// An address of it, to look names up at.
    #[must_use]
    pub fn address(&self) -> Option<Avma> {
        self.sets().find_map(|(pcs, _)| pcs.first())
    }

    /// The addresses first.
    fn sets(&self) -> impl Iterator<Item = (&PcSet, HitRule<'_>)> {
        let copies = self.copies.iter().map(|copy| (&copy.code, HitRule::Entry(copy)));
        self.addresses_and_lines().into_iter().chain(copies)
    }

    fn addresses_and_lines(&self) -> [(&PcSet, HitRule<'_>); 2] {
        [
            (&self.addresses, HitRule::Always),
            (&self.line, HitRule::LineStart),
        ]
    }
}

/// Counts the hits in inlined copies.
struct InlinedCount<'a> {
    hits: &'a Hits,
    lines: &'a LineStarts<'a>,
    count: u64,
    possible: u64,
}

impl BeginEvents for InlinedCount<'_> {
    fn begin(&mut self, begin: Begin) {
        let copy = self.hits.copies.get(begin.copy);
        let is_meant = |copy| self.hits.is_meant(self.lines, begin.first, HitRule::Entry(copy));
        if copy.is_some_and(is_meant) {
            self.count += 1;
            self.possible += u64::from(begin.entrance == Entrance::Possible);
        }
    }

    fn last(&mut self, _: LastInstruction) {}
}

impl HitRule<'_> {
    fn holds(self, lines: &LineStarts<'_>, index: u64) -> Result<bool> {
        match self {
            Self::Always => Ok(true),
            Self::LineStart => lines.is_start(index),
            Self::Entry(copy) => Ok(copy.entrance(lines, index)?.is_some()),
        }
    }
}
