//! Counts blocks, the cheapest use of the analyzer.

use iptr_edge_analyzer::{ControlFlowTransitionKind, HandleControlFlow};
use std::convert::Infallible;

/// The number of blocks. The analyzer caches the number for each sequence of branches.
#[derive(Default)]
pub struct Counter {
    pub blocks: u64,
    sequence: u64,
}

impl HandleControlFlow for Counter {
    type Error = Infallible;
    #[cfg(feature = "edges-cache")]
    type CachedKey = u64;

    fn at_decode_begin(&mut self) -> Result<(), Infallible> {
        *self = Self::default();
        Ok(())
    }

    #[inline]
    fn on_new_block(
        &mut self,
        _block: u64,
        _kind: ControlFlowTransitionKind,
        cache: bool,
    ) -> Result<(), Infallible> {
        self.blocks += 1;
        self.sequence += u64::from(cache);
        Ok(())
    }

    #[cfg(feature = "edges-cache")]
    fn cache_prev_cached_key(&mut self, key: u64) -> Result<(), Infallible> {
        self.sequence += key;
        Ok(())
    }

    #[cfg(feature = "edges-cache")]
    fn take_cache(&mut self) -> Result<Option<u64>, Infallible> {
        Ok(Some(std::mem::take(&mut self.sequence)))
    }

    #[cfg(feature = "edges-cache")]
    fn clear_current_cache(&mut self) -> Result<(), Infallible> {
        self.sequence = 0;
        Ok(())
    }

    #[cfg(feature = "edges-cache")]
    #[inline]
    fn on_reused_cache(&mut self, key: &u64, _next: u64) -> Result<(), Infallible> {
        self.blocks += key;
        Ok(())
    }

    #[cfg(feature = "edges-cache")]
    fn should_clear_all_cache(&mut self) -> Result<bool, Infallible> {
        Ok(false)
    }
}
