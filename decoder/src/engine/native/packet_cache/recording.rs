//! Records a path for the packet cache.

use super::{BlockEpoch, CacheEntry, CacheKey, CachedPath, IpChange, PacketEffects, PathTarget};
use crate::engine::native::code::{BlockIdx, CodeCache};
use crate::engine::native::packets::{BranchPackets, IpBytes};
use crate::{BlockId, PathIdx};

#[derive(Default)]
pub(super) struct Recording {
    /// The start of the path; `None`: nothing is recorded.
    start: Option<RecordingStart>,
    /// The bits of the last IP that the first target replaced; `None`: no target was read.
    replaced: Option<IpBytes>,
    max_depth: usize,
    paths: Vec<PathIdx>,
    /// The calls left open, the innermost last; and the calls returned from, the innermost first.
    opened: Vec<BlockIdx>,
    returned: Vec<BlockIdx>,
    blocks: Vec<BlockId>,
}

struct RecordingStart {
    block_epoch: BlockEpoch,
    offset: usize,
    ip: u64,
}

impl Recording {
    /// The most blocks of a cached path.
    const MAX_BLOCKS: usize = 1 << 10;

    #[inline]
    pub fn is_on(&self) -> bool {
        self.start.is_some()
    }

    /// Starts recording before a block.
    pub fn start(&mut self, block_epoch: BlockEpoch, packets: &BranchPackets<'_>) {
        self.start = Some(RecordingStart {
            block_epoch,
            offset: packets.offset,
            ip: packets.ip(),
        });
        (self.replaced, self.max_depth) = (None, 0);
        self.paths.clear();
        self.opened.clear();
        self.returned.clear();
    }

    #[inline]
    pub fn abandon(&mut self) {
        self.start = None;
    }

    #[inline]
    pub fn record_step(&mut self, path: PathIdx, opened: &[BlockIdx], max_depth: u8) {
        if self.is_on() {
            self.paths.push(path);
            self.deepen(max_depth);
            self.opened.extend_from_slice(opened);
        }
    }

    /// Updates the depth: `more` further calls were open.
    #[inline]
    fn deepen(&mut self, more: u8) {
        let open = (self.opened.len() + usize::from(more)).saturating_sub(self.returned.len());
        self.max_depth = self.max_depth.max(open);
    }

    #[inline]
    pub fn record_return(&mut self, call: BlockIdx) {
        if self.is_on() && self.opened.pop().is_none() {
            self.returned.push(call);
        }
    }

    #[inline]
    pub fn record_target(&mut self, replaced: IpBytes) {
        self.replaced.get_or_insert(replaced);
    }

    /// Records a cached path that was applied.
    pub fn record_path(&mut self, path: &CachedPath, effects: &PacketEffects) {
        let Some(effect) = effects.get(path.effect).filter(|_| self.is_on()) else {
            return;
        };
        self.paths.push(path.target.path);
        self.deepen(path.max_depth);
        if effect.ip_changes {
            self.record_target(effect.replaced);
        }
        for &call in effects.returned(effect).iter().rev() {
            self.record_return(call);
        }
        self.opened.extend_from_slice(effects.opened(effect));
    }

    /// Returns the number of packet bytes read since the start.
    #[inline]
    pub fn len(&self, packets: &BranchPackets<'_>) -> usize {
        let start = self.start.as_ref();
        start.map_or(0, |start| packets.offset - start.offset)
    }

    /// Ends the recording before the block `next`. `None`: the path is not worth an entry.
    pub fn end<const WINDOW: usize>(
        &mut self,
        packets: &BranchPackets<'_>,
        next: BlockIdx,
        code: &mut CodeCache,
        effects: &mut PacketEffects,
    ) -> Option<CacheEntry<WINDOW>> {
        let start = self.start.take()?;
        if self.paths.len() < 2 {
            return None;
        }
        self.blocks.clear();
        let table = code.paths();
        for &path in &self.paths {
            self.blocks.extend_from_slice(table.paths.blocks(path));
        }
        if self.blocks.len() > Self::MAX_BLOCKS {
            return None;
        }
        self.returned.reverse();
        let ip = self.replaced.map(|replaced| IpChange {
            above: replaced.above(start.ip),
            replaced,
            after: packets.ip(),
        });
        let effect = effects.push(ip, &self.returned, &self.opened)?;
        Some(CacheEntry {
            start: CacheKey {
                window: *packets.window_at(start.offset)?,
                block_epoch: start.block_epoch,
            },
            path: CachedPath {
                target: PathTarget {
                    path: code.path_of_codes(&self.blocks)?,
                    next,
                },
                effect,
                max_depth: u8::try_from(self.max_depth).ok()?,
                len: u8::try_from(packets.offset - start.offset).ok()?,
            },
        })
    }
}
