//! Invalidates blocks whose code has changed, and keeps the old code for decoders.

use super::indirect::hash;
use super::{Cache, CacheItem};
use crate::PAGE;
use crate::translate::block::SourceBytes;
use crate::translate::layout;
use backtrail_bundle::versions::Fragment;
use backtrail_pt::Avma;
use std::collections::BTreeSet;
use std::ops::Range;

/// The maximum number of old code fragments that are kept.
const MAX_OLD_FRAGMENTS: usize = 1 << 20;

impl Cache {
    /// Returns the blocks that were translated from code in `range`.
    pub(super) fn blocks_from(&self, range: &Range<u64>) -> Vec<u64> {
        let first = range.start / PAGE;
        let last = range.end.div_ceil(PAGE);
        let mut found: Vec<u64> = self
            .pages
            .range(first..last)
            .flat_map(|(_, ips)| ips)
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found.retain(|ip| {
            let item = self.blocks.get(ip).and_then(|at| self.items.get(at));
            let Some(CacheItem::Block { source, .. }) = item else {
                return false;
            };
            source
                .runs()
                .any(|(start, run)| start < range.end && range.start < start + run.len() as u64)
        });
        found
    }

    /// Returns the code and version of the block at `ip`, then of the block that it replaced.
    pub(super) fn sources_of(&self, ip: u64) -> impl Iterator<Item = (&SourceBytes, u32)> {
        let mut next = self.blocks.get(&ip).copied();
        std::iter::from_fn(move || match self.items.get(&next?)? {
            CacheItem::Block {
                source,
                version,
                before,
                ..
            } => {
                next = *before;
                Some((source, *version))
            }
            _ => None,
        })
    }

    /// Returns whether a block was translated from code in `range`.
    pub(in crate::translate) fn has_code_in(&self, range: Range<u64>) -> bool {
        self.placed.iter().any(|unit| unit.has_code_in(&range)) || !self.blocks_from(&range).is_empty()
    }

    /// Returns the number of code changes so far.
    pub(in crate::translate) fn version(&self) -> u32 {
        self.version
    }

    /// Returns the code of pages that have changed or for which `may_change` is true, ordered by
    /// version.
    pub(in crate::translate) fn fragments(&self, may_change: impl Fn(u64) -> bool) -> Vec<Fragment> {
        let mut all = self.old_code.clone();
        let changing = self.pages.iter().filter(|(page, _)| {
            let page = **page;
            self.changed.contains(&page) || may_change(page * PAGE)
        });
        let ips: BTreeSet<u64> = changing.flat_map(|(_, ips)| ips).copied().collect();
        for (source, version) in ips.iter().flat_map(|ip| self.sources_of(*ip)) {
            all.extend(fragments(source, version));
        }
        all.sort_by_key(|fragment| fragment.boundary);
        all
    }

    /// Stores the old code of blocks, and marks their pages as changed.
    fn keep_old_code(&mut self, invalid: &[u64]) {
        for ip in invalid {
            let pages: Vec<u64> = self
                .sources_of(*ip)
                .flat_map(|(source, _)| source.pages())
                .collect();
            self.changed.extend(pages);
            let room = MAX_OLD_FRAGMENTS.saturating_sub(self.old_code.len());
            let old_code: Vec<Fragment> = self
                .sources_of(*ip)
                .flat_map(|(source, version)| fragments(source, version))
                .take(room)
                .collect();
            self.old_code.extend(old_code);
        }
        if !invalid.is_empty() {
            self.version = self.version.saturating_add(1);
        }
    }

    /// Handles a change of the code in `range`: invalidates the blocks from it, and keeps their old
    /// code.
    pub(in crate::translate) fn code_changed(&mut self, range: Range<u64>) {
        if let Some(watched) = &mut self.watched {
            watched.code_changed(&range);
        }
        self.take_apart(&range);
        let invalid = self.blocks_from(&range);
        self.keep_old_code(&invalid);
        self.invalidate(range);
    }

    /// Marks the pages in `range` as changed: their code belongs to the current version, also where
    /// no code was executed before.
    pub(in crate::translate) fn mark_changed(&mut self, range: Range<u64>) {
        self.take_apart(&range);
        self.changed.extend(range.start / PAGE..range.end.div_ceil(PAGE));
    }

    /// Invalidates the blocks that were translated from code in `range`: unlinks all jumps to them.
    ///
    /// A thread in such a block continues to the end of the block.
    pub(in crate::translate) fn invalidate(&mut self, range: Range<u64>) {
        self.take_apart(&range);
        let invalid = self.blocks_from(&range);
        for ip in &invalid {
            self.blocks.remove(ip);
            for (site, exit) in self.exits_to(*ip) {
                self.patch_jump(site, exit);
            }
            if let Some(entry) = self.indirect_entries.remove(ip) {
                let slot = |table: u64| table - layout::TABLES + hash(*ip) * 8;
                if self.tables.load(slot(layout::FIRST)) == entry.first {
                    self.tables.store(slot(layout::FIRST), self.first_miss);
                }
                if self.tables.load(slot(layout::SECOND)) == entry.second {
                    self.tables.store(slot(layout::SECOND), self.second_miss);
                }
            }
        }
    }
}

/// Returns the code of a block as fragments of the code image.
fn fragments(source: &SourceBytes, version: u32) -> impl Iterator<Item = Fragment> {
    source.runs().map(move |(start, run)| Fragment {
        address: Avma(start),
        boundary: version,
        bytes: run.to_vec().into(),
    })
}
