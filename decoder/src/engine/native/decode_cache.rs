//! Caches of the decoder that stay valid from one trace to the next.

use super::branch_cache::BranchCache;
use super::code::CodeCache;
use super::packet_cache::PacketCache;
use super::straight_line::StraightLineCache;
use crate::Config;
use backtrail_pt::Avma;
use std::sync::atomic::{AtomicU64, Ordering};

/// The blocks of the code and the cached paths through them. They are valid for traces of the same
/// code that were recorded with the same settings.
#[derive(Clone)]
pub(crate) struct DecodeCache {
    pub(super) code: CodeCache,
    pub(super) branches: BranchCache,
    pub(super) packets: PacketCache,
    pub(super) straight_line: StraightLineCache,
    shared: SharedPaths,
}

/// The paths that copies of one cache have in common: the first `paths` of each. Copies have the
/// same `id`; 0 is not shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SharedPaths {
    id: u64,
    paths: usize,
}

impl DecodeCache {
    /// Returns empty caches.
    pub fn new() -> Self {
        Self {
            code: CodeCache::default(),
            branches: BranchCache::new(),
            packets: PacketCache::new(),
            straight_line: StraightLineCache::default(),
            shared: SharedPaths::default(),
        }
    }

    /// Returns the number of cached paths.
    pub fn paths(&self) -> usize {
        self.code.paths().paths.len()
    }

    /// Returns the caches for another decoder of the same trace. This is `other` if it was recently
    /// copied from these caches, or these from it; else a copy.
    pub fn share_with(&mut self, other: Self) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let paths = self.paths();
        if paths == 0 {
            return other;
        }
        if self.shared.paths < paths / 2 {
            self.shared = SharedPaths {
                id: 1 + NEXT_ID.fetch_add(1, Ordering::Relaxed),
                paths,
            };
        }
        match other.shared == self.shared {
            true => other,
            false => self.clone(),
        }
    }

    /// Returns how many paths all of these caches share by the same numbers.
    pub fn shared_paths(all: &[Self]) -> usize {
        match all {
            [first, rest @ ..] if rest.iter().all(|other| other.shared == first.shared) => first.shared.paths,
            _ => 0,
        }
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
