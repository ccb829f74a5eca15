//! Lists the blocks: what a history keeps of each execution, as far as the analyzer tells it.

use iptr_edge_analyzer::{ControlFlowTransitionKind, HandleControlFlow};
use std::convert::Infallible;

/// The blocks in order. Those of a sequence that the analyzer caches are kept once, and its number each time.
pub struct List {
    /// Numbers of sequences; for a block by itself [`Self::BLOCK`], and then its address, the low half first.
    executed: Vec<u32>,
    /// Room for so many.
    room: usize,
    /// The blocks of the sequences, by address.
    blocks: Vec<u64>,
    /// Where each has its blocks, the first and the one behind the last.
    sequences: Vec<(usize, usize)>,
    /// Those of the sequence in the making.
    making: Vec<u64>,
}

impl List {
    const BLOCK: u32 = u32::MAX;
    /// Bytes of packets for each entry, about.
    const BYTES_EACH: usize = 4;

    /// Of a trace of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            executed: Vec::new(),
            room: bytes / Self::BYTES_EACH,
            blocks: Vec::new(),
            sequences: Vec::new(),
            making: Vec::new(),
        }
    }

    fn blocks(&self, sequence: u32) -> &[u64] {
        let known = self.sequences.get(sequence as usize);
        known
            .and_then(|&(first, end)| self.blocks.get(first..end))
            .unwrap_or(&[])
    }

    /// How many blocks were executed.
    pub fn count(&self) -> u64 {
        let mut count = 0;
        let mut entries = self.executed.iter();
        while let Some(&entry) = entries.next() {
            if entry == Self::BLOCK {
                entries.nth(1);
                count += 1;
            } else {
                count += self.blocks(entry).len() as u64;
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
        self.making.clear();
        Ok(())
    }

    #[inline]
    fn on_new_block(
        &mut self,
        block: u64,
        _kind: ControlFlowTransitionKind,
        cache: bool,
    ) -> Result<(), Infallible> {
        self.executed
            .extend([Self::BLOCK, block as u32, (block >> 32) as u32]);
        if cache {
            self.making.push(block);
        }
        Ok(())
    }

    fn cache_prev_cached_key(&mut self, key: u32) -> Result<(), Infallible> {
        let mut making = std::mem::take(&mut self.making);
        making.extend_from_slice(self.blocks(key));
        self.making = making;
        Ok(())
    }

    fn take_cache(&mut self) -> Result<Option<u32>, Infallible> {
        let first = self.blocks.len();
        self.blocks.append(&mut self.making);
        let number = self.sequences.len() as u32;
        self.sequences.push((first, self.blocks.len()));
        Ok(Some(number))
    }

    fn clear_current_cache(&mut self) -> Result<(), Infallible> {
        self.making.clear();
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
