//! Lists the blocks in execution order, as a history does.

use iptr_edge_analyzer::{ControlFlowTransitionKind, HandleControlFlow};
use std::convert::Infallible;

/// The blocks in order. The blocks of a cached sequence are stored once, and its index each time.
pub struct List {
    /// Indexes of sequences, and single blocks. A single block is [`Self::BLOCK`] and the low half
    /// of its address. [`Self::HIGH`] and the high half precede it if that half has changed.
    executed: Vec<u32>,
    high: u32,
    /// The preallocated number of entries.
    room: usize,
    /// The block addresses of all sequences.
    blocks: Vec<u64>,
    /// The range of each sequence in `blocks`: its first index, and the index after the last.
    sequences: Vec<(usize, usize)>,
    /// The blocks of the current sequence.
    current: Vec<u64>,
}

impl List {
    const BLOCK: u32 = u32::MAX;
    const HIGH: u32 = u32::MAX - 1;
    /// The least number of packet bytes for each entry. Unused preallocated memory is not touched.
    const BYTES_EACH: usize = 2;

    /// Preallocates for a trace of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self {
            executed: Vec::new(),
            high: 0,
            room: bytes / Self::BYTES_EACH,
            blocks: Vec::new(),
            sequences: Vec::new(),
            current: Vec::new(),
        }
    }

    fn blocks(&self, sequence: u32) -> &[u64] {
        let known = self.sequences.get(sequence as usize);
        known
            .and_then(|&(first, end)| self.blocks.get(first..end))
            .unwrap_or(&[])
    }

    /// Returns the number of executed blocks.
    pub fn count(&self) -> u64 {
        let mut count = 0;
        let mut entries = self.executed.iter();
        while let Some(&entry) = entries.next() {
            match entry {
                Self::HIGH => _ = entries.next(),
                Self::BLOCK => {
                    entries.next();
                    count += 1;
                }
                sequence => count += self.blocks(sequence).len() as u64,
            }
        }
        count
    }
}

impl HandleControlFlow for List {
    type Error = Infallible;
    type CachedKey = u32;

    fn at_decode_begin(&mut self) -> Result<(), Infallible> {
        self.executed = Vec::with_capacity(self.room);
        self.high = 0;
        self.current.clear();
        Ok(())
    }

    #[inline]
    fn on_new_block(
        &mut self,
        block: u64,
        _kind: ControlFlowTransitionKind,
        cache: bool,
    ) -> Result<(), Infallible> {
        let high = (block >> 32) as u32;
        if high != self.high {
            self.high = high;
            self.executed.extend([Self::HIGH, high]);
        }
        self.executed.extend([Self::BLOCK, block as u32]);
        if cache {
            self.current.push(block);
        }
        Ok(())
    }

    fn cache_prev_cached_key(&mut self, key: u32) -> Result<(), Infallible> {
        let mut current = std::mem::take(&mut self.current);
        current.extend_from_slice(self.blocks(key));
        self.current = current;
        Ok(())
    }

    fn take_cache(&mut self) -> Result<Option<u32>, Infallible> {
        let first = self.blocks.len();
        self.blocks.append(&mut self.current);
        let number = self.sequences.len() as u32;
        self.sequences.push((first, self.blocks.len()));
        Ok(Some(number))
    }

    fn clear_current_cache(&mut self) -> Result<(), Infallible> {
        self.current.clear();
        Ok(())
    }

    #[inline]
    fn on_reused_cache(&mut self, key: &u32, _next: u64) -> Result<(), Infallible> {
        self.executed.push(*key);
        Ok(())
    }

    fn should_clear_all_cache(&mut self) -> Result<bool, Infallible> {
        Ok(false)
    }
}
