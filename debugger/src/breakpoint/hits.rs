//! Addresses at which breakpoints hit, and the search for hits.

use super::scan::Scan;
use crate::error::Result;
use crate::lines::LineStarts;
use backtrail_decoder::PcSet;
use backtrail_pt::Avma;

/// The addresses in a thread's history at which a location hits.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// Instructions that hit whenever they are reached.
    pub addresses: PcSet,
    /// Code of a line, which hits where a line start is.
    pub line: PcSet,
    /// Inlined copies of a function, which hit where a call comes into one from its other code.
    pub copies: Vec<PcSet>,
}

/// The condition under which an address of a set hits.
#[derive(Clone, Copy)]
enum HitRule {
    Always,
    LineStart,
    Entry,
}

impl Hits {
    /// The first hit after `from` and before `limit`.
    ///
    /// # Errors
    /// When canceled.
    pub fn next(&self, lines: &LineStarts<'_>, from: u64, limit: u64) -> Result<Option<u64>> {
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
    pub fn previous(&self, lines: &LineStarts<'_>, from: u64, limit: u64) -> Result<Option<u64>> {
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
            if pcs.contains(pc) && rule.holds(lines, pcs, index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the number of hits in the whole history.
    ///
    /// # Errors
    ///
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
