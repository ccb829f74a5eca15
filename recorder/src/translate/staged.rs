//! The values of a block that are not in the log yet.
//!
//! Translated code stores each value in a word of its own, on the stage of its thread
//! ([`layout::STAGE`]). Where the block ends, it copies them to the log. All places are known when
//! the block is translated.

use super::layout;
use iced_x86::Register;

/// The most values that wait on the stage.
pub(super) const MOST_STAGED: u32 = 24;

/// The sizes of the values on the stage, in order: powers of two up to eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Staged {
    count: u32,
    /// Two bits for each: the exponent of its size.
    sizes: u64,
}

impl Staged {
    /// Returns the number of values.
    pub(super) const fn count(self) -> u32 {
        self.count
    }

    /// Returns whether the stage is empty.
    pub(super) const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Returns the slot of the next value.
    pub(super) fn next_slot(self) -> u32 {
        slot(self.count)
    }

    /// Adds a value of `size` bytes, and returns its slot.
    pub(super) fn push(&mut self, size: u32) -> u32 {
        let slot = slot(self.count);
        self.sizes |= u64::from(size.ilog2()) << (2 * self.count);
        self.count += 1;
        slot
    }

    /// Returns the slot and the size of each value, in order.
    pub(super) fn values(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.count).map(move |number| (slot(number), 1 << (self.sizes >> (2 * number) & 3)))
    }
}

/// Returns the slot of the value with this number.
fn slot(number: u32) -> u32 {
    layout::STAGE as u32 + 8 * number
}

/// The values of an executed instruction that are not on the stage yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unstaged {
    /// None.
    #[default]
    Nothing,
    /// The low `size` bytes of each of these registers.
    Registers { registers: [Register; 2], size: u32 },
    /// The results of a system call.
    SystemCall,
    /// Values that cannot be had any more, or a log that is ahead of a repeated instruction.
    Lost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_order_and_sizes() {
        let mut staged = Staged::default();
        let sizes = [1, 8, 2, 4, 8];
        let slots = sizes.map(|size| staged.push(size));
        assert_eq!(slots[1] - slots[0], 8);
        let values: Vec<_> = staged.values().collect();
        assert_eq!(values, slots.into_iter().zip(sizes).collect::<Vec<_>>());
        let full = (0..MOST_STAGED).fold(Staged::default(), |mut staged, _| {
            staged.push(8);
            staged
        });
        assert!(full.values().all(|(_, size)| size == 8) && full.count() == MOST_STAGED);
    }
}
