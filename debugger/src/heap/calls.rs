//! The calls of allocator functions in the history of a thread.

use backtrail_bundle::heap::{AllocatorFunction, HeapWord};
use backtrail_decoder::{Forest, History, Ptwrite};
use backtrail_pt::Tid;

/// A call of an allocator function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapCall {
    /// The first instruction of the function.
    pub index: u64,
    /// The function.
    pub function: AllocatorFunction,
    /// The block that it frees or resizes, or else the size in bytes.
    pub argument: u64,
    /// The new size of a block that it resizes.
    pub size: Option<u64>,
    /// The return and the returned block, 0 after a failure. `None`: it returns none, or has not
    /// returned.
    pub result: Option<(u64, u64)>,
}

/// A call in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCall {
    /// The thread.
    pub tid: Tid,
    /// The call.
    pub call: HeapCall,
    /// The source of the call.
    pub source: CallSource,
}

/// The source of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSource {
    /// The trace. Indexes of the call are instructions of the thread's history.
    Trace,
    /// The collector's records. Indexes of the call are the number of its record. Times are those
    /// of the record.
    Record {
        /// The entry.
        began: u64,
        /// The return.
        ended: u64,
    },
}

/// A change of the heap by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapChange {
    /// A block begins to exist.
    Allocated {
        /// Its address.
        block: u64,
        /// Its size in bytes, as requested.
        size: u64,
    },
    /// A block ends.
    Freed {
        /// Its address.
        block: u64,
    },
}

impl HeapCall {
    /// Returns the block that the call has freed. A failed `realloc` frees none.
    #[must_use]
    pub fn freed(&self) -> Option<u64> {
        let block = self.argument;
        if !self.function.takes_block() || block == 0 {
            return None;
        }
        match (self.function, self.result, self.size) {
            (AllocatorFunction::Realloc, Some((_, 0)), size) => (size == Some(0)).then_some(block),
            (AllocatorFunction::Realloc, None, _) => None,
            _ => Some(block),
        }
    }

    /// Returns the block that the call frees or resizes, or else the one that it returns.
    #[must_use]
    pub fn block(&self) -> Option<u64> {
        match self.function.takes_block() {
            true => Some(self.argument),
            false => self.result.map(|(_, block)| block),
        }
    }

    /// Returns the size that the call requests.
    #[must_use]
    pub fn requested(&self) -> Option<u64> {
        match self.function.takes_block() {
            true => self.size,
            false => Some(self.argument),
        }
    }

    /// Returns the block that the call has allocated, and its size.
    #[must_use]
    pub fn allocated(&self) -> Option<(u64, u64)> {
        let (_, block) = self.result.filter(|&(_, block)| block != 0)?;
        let size = match self.function.takes_block() {
            true => self.size?,
            false => self.argument,
        };
        Some((block, size))
    }

    /// Returns its changes in order, each with the instruction before which it is known.
    pub fn changes(&self) -> impl Iterator<Item = (u64, HeapChange)> {
        let freed = self
            .freed()
            .map(|block| (self.index, HeapChange::Freed { block }));
        let allocated = self.allocated().zip(self.result);
        let allocated =
            allocated.map(|((block, size), (index, _))| (index, HeapChange::Allocated { block, size }));
        freed.into_iter().chain(allocated)
    }
}

/// Returns the calls of allocator functions from instruction `index` on, in order. Values that
/// belong to no call are passed.
pub fn calls(history: &History, index: u64) -> impl Iterator<Item = HeapCall> + '_ {
    parse(history.paused_values().from(index))
}

/// Returns the last call that began before instruction `index`, or at it.
#[must_use]
pub fn last_call(history: &History, index: u64) -> Option<HeapCall> {
    let values = history.paused_values();
    let is_call = |value: &Ptwrite| matches!(HeapWord::decode(value.value), Some(HeapWord::Call { .. }));
    let last = values.before(index.saturating_add(1)).find(is_call)?;
    // Two calls cannot begin at one instruction, unless a signal interrupted the first.
    calls(history, last.index)
        .take_while(|call| call.index == last.index)
        .last()
}

/// Returns the call that runs at instruction `index`.
#[must_use]
pub fn call_around(history: &History, forest: &Forest, index: u64) -> Option<HeapCall> {
    let call = last_call(history, index)?;
    // The call may begin in the procedure linkage table.
    let function = forest.call_at(call.index);
    let running = forest.call_at(index)?;
    let mut running = forest.ancestors(running);
    running.any(|open| Some(open) == function).then_some(call)
}

fn parse(values: impl Iterator<Item = Ptwrite>) -> impl Iterator<Item = HeapCall> {
    let mut values = values.filter_map(|value| Some((value.index, HeapWord::decode(value.value)?)));
    let mut begun: Option<HeapCall> = None;
    std::iter::from_fn(move || {
        loop {
            let Some((index, word)) = values.next() else {
                return begun.take();
            };
            match word {
                HeapWord::Call { function, argument } => {
                    let call = HeapCall {
                        index,
                        function,
                        argument,
                        size: None,
                        result: None,
                    };
                    // The call before has not returned, or returns nothing.
                    if let Some(before) = begun.replace(call) {
                        return Some(before);
                    }
                }
                HeapWord::Size(size) => {
                    if let Some(call) = &mut begun {
                        call.size = call.size.or(Some(size));
                    }
                }
                HeapWord::Result(block) => {
                    let ended = begun.take_if(|call| call.function.gives_block());
                    if let Some(call) = ended {
                        return Some(HeapCall {
                            result: Some((index, block)),
                            ..call
                        });
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[(u64, HeapWord)]) -> Vec<HeapCall> {
        let value = |&(index, word): &(u64, HeapWord)| Ptwrite {
            index,
            value: word.encode(),
        };
        parse(words.iter().map(value)).collect()
    }

    fn call(function: AllocatorFunction, argument: u64) -> HeapWord {
        HeapWord::Call { function, argument }
    }

    #[test]
    fn results_belong_to_the_call_before() {
        let found = words(&[
            (1, HeapWord::Result(7)),
            (2, call(AllocatorFunction::Malloc, 24)),
            (3, HeapWord::Result(0x100)),
            (4, call(AllocatorFunction::Realloc, 0x100)),
            (4, HeapWord::Size(48)),
            (5, HeapWord::Result(0x200)),
            (6, call(AllocatorFunction::Free, 0x200)),
            (7, call(AllocatorFunction::New, 8)),
        ]);
        let changes: Vec<_> = found.iter().flat_map(HeapCall::changes).collect();
        let allocated = |block, size| HeapChange::Allocated { block, size };
        let freed = |block| HeapChange::Freed { block };
        assert_eq!(
            changes,
            [
                (3, allocated(0x100, 24)),
                (4, freed(0x100)),
                (5, allocated(0x200, 48)),
                (6, freed(0x200)),
            ]
        );
        assert_eq!(
            found.last().map(|call| (call.index, call.result)),
            Some((7, None))
        );
    }

    #[test]
    fn failed_calls_change_nothing() {
        let found = words(&[
            (1, call(AllocatorFunction::Malloc, 1 << 50)),
            (2, HeapWord::Result(0)),
            (3, call(AllocatorFunction::Realloc, 0x100)),
            (3, HeapWord::Size(1 << 50)),
            (4, HeapWord::Result(0)),
            (5, call(AllocatorFunction::Free, 0)),
        ]);
        assert_eq!(found.iter().flat_map(HeapCall::changes).count(), 0);
        let to_nothing = words(&[
            (3, call(AllocatorFunction::Realloc, 0x100)),
            (3, HeapWord::Size(0)),
            (4, HeapWord::Result(0)),
        ]);
        let freed: Vec<_> = to_nothing.iter().filter_map(HeapCall::freed).collect();
        assert_eq!(freed, [0x100]);
    }

    proptest! {
        #[test]
        fn arbitrary_values_are_read(values in prop::collection::vec((0..9_u64, any::<u64>()), 0..200)) {
            let given = values.iter().map(|&(index, value)| Ptwrite { index, value });
            let found: Vec<_> = parse(given).collect();
            prop_assert!(found.len() <= values.len());
            for call in &found {
                prop_assert!(call.changes().count() <= 2);
            }
        }
    }
}
