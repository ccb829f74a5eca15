//! Operands: registers, memory and constants.

use crate::memory::{Memory, Stop};
use crate::state::{Segment, State, ones};

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// There is none.
    None,
    /// A part of a general register.
    General {
        /// The number in instructions.
        number: u8,
        /// The lowest bit: 8 for `ah` and its like, else 0.
        shift: u8,
        /// The size in bytes.
        size: u8,
    },
    /// Memory.
    Memory {
        /// The address.
        address: Address,
        /// The size in bytes.
        size: u8,
    },
    /// A constant, its sign extended.
    Immediate(u64),
    /// A vector register.
    Vector(u8),
    /// A mask register.
    Mask(u8),
}

/// The address expression of an operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The number of the base register.
    pub base: Option<u8>,
    /// The number of the index register.
    pub index: Option<u8>,
    /// The factor of the index.
    pub scale: u8,
    /// The size of the address in bytes: 8 or 4.
    pub size: u8,
    /// The constant part. Relative to `rip`, it is the address.
    pub displacement: u64,
    /// The segment whose base is added.
    pub segment: Option<Segment>,
}

impl Address {
    /// Returns the address without the base of the segment, as `lea` does.
    #[must_use]
    pub fn offset(&self, state: &State) -> u64 {
        let register =
            |number: Option<u8>| number.map_or(0, |number| state.general[usize::from(number & 15)]);
        let index = register(self.index).wrapping_mul(u64::from(self.scale));
        let sum = register(self.base)
            .wrapping_add(index)
            .wrapping_add(self.displacement);
        sum & ones(self.size)
    }

    /// Returns the linear address.
    #[must_use]
    pub fn linear(&self, state: &State) -> u64 {
        let base = self.segment.map_or(0, |segment| state.base(segment));
        base.wrapping_add(self.offset(state))
    }
}

impl Operand {
    /// Returns the size in bytes. A constant has none.
    #[must_use]
    pub const fn size(&self) -> u8 {
        match self {
            Self::General { size, .. } | Self::Memory { size, .. } => *size,
            Self::None | Self::Immediate(_) => 0,
            Self::Vector(_) => 64,
            Self::Mask(_) => 8,
        }
    }

    /// Returns the value of an operand of at most eight bytes.
    ///
    /// # Errors
    /// Fails if the memory is unknown.
    pub fn read<M: Memory>(&self, state: &State, memory: &mut M) -> Result<u64, Stop<M::Error>> {
        Ok(match *self {
            Self::None => 0,
            Self::General { number, shift, size } => state.general_part(number, shift, size),
            Self::Memory { address, size } => load(memory, address.linear(state), size)?,
            Self::Immediate(value) => value,
            Self::Vector(number) => {
                let bytes = &state.vectors[usize::from(number & 31)];
                u64::from_le_bytes(std::array::from_fn(|at| bytes[at]))
            }
            Self::Mask(number) => state.masks[usize::from(number & 7)],
        })
    }

    /// Writes an operand of at most eight bytes: a general register or memory.
    ///
    /// # Errors
    /// Fails if the memory takes nothing.
    pub fn write<M: Memory>(
        &self,
        state: &mut State,
        memory: &mut M,
        value: u64,
    ) -> Result<(), Stop<M::Error>> {
        match *self {
            Self::General { number, shift, size } => state.set_general_part(number, shift, size, value),
            Self::Memory { address, size } => store(memory, address.linear(state), size, value)?,
            Self::Mask(number) => state.masks[usize::from(number & 7)] = value,
            Self::None | Self::Immediate(_) | Self::Vector(_) => {}
        }
        Ok(())
    }
}

/// Loads a number of `size` bytes, at most eight.
///
/// # Errors
/// Fails if the memory is unknown.
pub fn load<M: Memory>(memory: &mut M, address: u64, size: u8) -> Result<u64, Stop<M::Error>> {
    let mut bytes = [0; 8];
    let part = &mut bytes[..usize::from(size.min(8))];
    memory.load(address, part).map_err(Stop::Memory)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Stores the low `size` bytes of a number, at most eight.
///
/// # Errors
/// Fails if the memory takes nothing.
pub fn store<M: Memory>(memory: &mut M, address: u64, size: u8, value: u64) -> Result<(), Stop<M::Error>> {
    let bytes = value.to_le_bytes();
    memory
        .store(address, &bytes[..usize::from(size.min(8))])
        .map_err(Stop::Memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_wrap_at_their_size() {
        let mut address = Address {
            base: Some(0),
            index: Some(1),
            scale: 4,
            size: 8,
            displacement: u64::MAX,
            segment: Some(Segment::Fs),
        };
        let mut state = State::default();
        state.general[0] = 0xffff_ffff;
        state.general[1] = 1;
        state.bases[0] = 0x10;
        assert_eq!(address.offset(&state), 0x1_0000_0002);
        assert_eq!(address.linear(&state), 0x1_0000_0012);
        address.size = 4;
        assert_eq!(address.linear(&state), 0x12);
    }
}
