//! Caches of the decoder that stay valid from one trace to the next.

use super::branch_cache::BranchCache;
use super::code::CodeCache;
use super::packet_cache::PacketCache;
use super::straight_line::StraightLineCache;
use crate::Config;
use backtrail_pt::Avma;

/// The blocks of the code and the cached paths through them. They are valid for traces of the same
/// code that were recorded with the same settings.
pub(crate) struct DecodeCache {
    pub(super) code: CodeCache,
    pub(super) branches: BranchCache,
    pub(super) packets: PacketCache,
    pub(super) straight_line: StraightLineCache,
}

impl DecodeCache {
    /// Returns empty caches.
    pub fn new() -> Self {
        Self {
            code: CodeCache::default(),
            branches: BranchCache::new(),
            packets: PacketCache::new(),
            straight_line: StraightLineCache::default(),
        }
    }

    /// Returns the number of cached paths.
    pub fn paths(&self) -> usize {
        self.code.paths().paths.len()
    }

    /// Starts a trace of `bytes` bytes.
    pub(super) fn begin_trace(&mut self, bytes: usize, config: &Config) {
        self.branches.begin_trace(config.uncompressed_returns);
        self.packets.begin_trace(bytes);
    }

    /// Drops what depends on these (first, last) inclusive ranges of changed bytes. Returns whether
    /// code was there.
    pub(super) fn forget(&mut self, changed: &[(Avma, Avma)]) -> bool {
        let forgot = self.code.forget(changed);
        if forgot {
            self.branches.clear();
            self.packets.clear();
            self.straight_line.clear();
        }
        forgot
    }
}
