//! A shadow of memory, to find changes that no access of a thread explains.
//!
//! A debugger shows the last access of a byte. If a later load finds another value there, the byte
//! changed unseen in between. The kernel or another process may have done that.

use super::kernel::KernelWrites;
use super::run::AccessSink;
use super::sharing::MapChange;
use backtrail_semantics::Observer;
use rustc_hash::FxHashMap;

/// The bytes in a word.
const WORD: u64 = 8;
/// The most words that are kept.
const MAX_WORDS: usize = 1 << 23;
/// The most changes that are kept.
const MAX_CHANGES: usize = 1000;

/// Memory that changed unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnseenChange {
    /// The instruction that loaded it.
    pub index: u64,
    /// The first address whose byte is another one.
    pub address: u64,
}

/// A word: its bytes, and which of them are known.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    bytes: [u8; 8],
    known: u8,
}

/// The memory that a thread has accessed.
#[derive(Debug, Default)]
pub struct Shadow {
    words: FxHashMap<u64, Word>,
    /// The changes that were found.
    pub changes: Vec<UnseenChange>,
}

impl Shadow {
    /// Forgets all memory.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    fn forget(&mut self, address: u64, size: u64) {
        if size == 0 {
            return;
        }
        let (first, last) = (address / WORD, address.saturating_add(size - 1) / WORD);
        if last - first < self.words.len() as u64 {
            for word in first..=last {
                self.words.remove(&word);
            }
        } else {
            self.words.retain(|word, _| !(first..=last).contains(word));
        }
    }

    fn set(&mut self, address: u64, bytes: &[u8], index: Option<u64>) {
        if self.words.len() > MAX_WORDS {
            self.clear();
        }
        for (at, &byte) in (address..).zip(bytes) {
            let word = self.words.entry(at / WORD).or_default();
            let place = (at % WORD) as usize;
            let Some(slot) = word.bytes.get_mut(place) else {
                continue;
            };
            let was_known = word.known >> place & 1 != 0;
            if let Some(index) = index
                && was_known
                && *slot != byte
                && self.changes.len() < MAX_CHANGES
                && self.changes.last().is_none_or(|last| last.index != index)
            {
                self.changes.push(UnseenChange { index, address: at });
            }
            *slot = byte;
            word.known |= 1 << place;
        }
    }
}

impl AccessSink for Shadow {
    type Observer<'a> = InstructionShadow<'a>;

    fn of(&mut self, index: u64) -> InstructionShadow<'_> {
        InstructionShadow { shadow: self, index }
    }

    fn kernel(&mut self, _index: u64, writes: KernelWrites) {
        match writes {
            KernelWrites::Ranges(ranges) => {
                for (address, size) in ranges {
                    self.forget(address, size);
                }
            }
            KernelWrites::Clone { .. } | KernelWrites::Anywhere => self.clear(),
        }
    }

    fn maps(&mut self, _index: u64, change: MapChange) {
        if let MapChange::Shared(range) | MapChange::Private(range) = change {
            self.forget(range.address, range.size);
        }
    }
}

/// The receiver of the accesses of one instruction.
pub struct InstructionShadow<'a> {
    shadow: &'a mut Shadow,
    index: u64,
}

impl Observer for InstructionShadow<'_> {
    fn loaded(&mut self, address: u64, bytes: &[u8]) {
        self.shadow.set(address, bytes, Some(self.index));
    }

    fn stored(&mut self, address: u64, bytes: &[u8]) {
        self.shadow.set(address, bytes, None);
    }

    fn stored_unknown(&mut self) {
        self.shadow.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_other_bytes_are_changes() {
        let mut shadow = Shadow::default();
        shadow.of(1).stored(0x1006, &[1, 2, 3, 4]);
        shadow.of(2).loaded(0x1006, &[1, 2, 3, 4]);
        shadow.of(3).loaded(0x1008, &[3, 5, 9]);
        let change = UnseenChange {
            index: 3,
            address: 0x1009,
        };
        assert_eq!(shadow.changes, [change]);
    }

    #[test]
    fn writes_of_the_kernel_explain_changes() {
        let mut shadow = Shadow::default();
        shadow.of(1).stored(0x1000, &[1; 16]);
        shadow.kernel(2, KernelWrites::Ranges(vec![(0x1004, 4)]));
        shadow.of(3).loaded(0x1004, &[7; 4]);
        assert_eq!(shadow.changes, []);
        shadow.of(4).loaded(0x1008, &[7; 4]);
        assert_eq!(shadow.changes.len(), 1);
        shadow.kernel(5, KernelWrites::Anywhere);
        shadow.of(6).loaded(0x1008, &[8; 4]);
        assert_eq!(shadow.changes.len(), 1);
    }
}
