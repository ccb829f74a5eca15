//! Lists the blocks: what a history keeps of each execution, as far as the analyzer tells it.

use iptr_edge_analyzer::{ControlFlowTransitionKind, HandleControlFlow};
use std::convert::Infallible;

/// The blocks in order. Those of a sequence that the analyzer caches are kept once, and its number each time.
pub struct List {
    /// Numbers of sequences; for a block by itself [`Self::BLOCK`], and then the low half of its address, and before that
    /// [`Self::HIGH`] and the high half where it is another than that of the block by itself before.
    executed: Vec<u32>,
    high: u32,
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
    const HIGH: u32 = u32::MAX - 1;
    /// Bytes of packets for each entry, at least: what is not used of the room is not touched.
    const BYTES_EACH: usize = 2;

    /// Of a trace of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            executed: Vec::new(),
            high: 0,
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
        let high = (block >> 32) as u32;
        if high != self.high {
            self.high = high;
            self.executed.extend([Self::HIGH, high]);
        }
        self.executed.extend([Self::BLOCK, block as u32]);
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
