//! The place of a value: a register or memory.

use crate::replay::MemoryRange;
use backtrail_semantics::State;
use std::fmt;

/// The names of general registers by their numbers in instructions.
const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// A register, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterSlice {
    /// The register.
    pub register: AnyRegister,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub size: u64,
}

/// A general or a vector register, by its number in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyRegister {
    /// `rax` to `r15`.
    General(u8),
    /// `zmm0` to `zmm31`, whose low parts are `xmm` and `ymm`.
    Vector(u8),
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueLocation {
    /// A register.
    Register(RegisterSlice),
    /// Memory.
    Memory(MemoryRange),
}

impl ValueLocation {
    /// Returns the number of bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        match self {
            Self::Register(slice) => slice.size,
            Self::Memory(range) => range.size,
        }
    }
}

impl RegisterSlice {
    /// Returns whether two slices have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.register == other.register
            && self.offset < other.offset + other.size
            && other.offset < self.offset + self.size
    }

    /// Returns the value as a number, if it has at most eight bytes.
    #[must_use]
    pub fn value(&self, state: &State) -> Option<u64> {
        let bytes: Vec<u8> = match self.register {
            AnyRegister::General(number) => state.general.get(usize::from(number))?.to_le_bytes().to_vec(),
            AnyRegister::Vector(number) => state.vectors.get(usize::from(number))?.to_vec(),
        };
        let start = usize::try_from(self.offset).ok()?;
        let end = start.checked_add(usize::try_from(self.size).ok()?)?;
        number(bytes.get(start..end)?)
    }
}

/// Returns the number of at most eight bytes.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<u64> {
    let mut all = [0; 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(all))
}

impl fmt::Display for RegisterSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.register {
            AnyRegister::General(number) => {
                f.write_str(NAMES.get(usize::from(number)).copied().unwrap_or("a register"))?;
            }
            AnyRegister::Vector(number) => write!(f, "xmm{number}")?,
        }
        match (self.register, self.offset, self.size) {
            (AnyRegister::General(_), 0, 8) | (AnyRegister::Vector(_), 0, 16) => Ok(()),
            (_, offset, size) => write!(f, "[{offset}..{}]", offset + size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_read_from_their_first_byte() {
        let mut state = State::default();
        state.general[3] = 0x1122_3344_5566_7788;
        state.vectors[2][9] = 7;
        let slice = |register, offset, size| RegisterSlice {
            register,
            offset,
            size,
        };
        assert_eq!(slice(AnyRegister::General(3), 1, 2).value(&state), Some(0x6677));
        assert_eq!(slice(AnyRegister::Vector(2), 8, 4).value(&state), Some(0x700));
        assert_eq!(slice(AnyRegister::Vector(2), 0, 16).value(&state), None);
        assert_eq!(slice(AnyRegister::General(0), 0, 8).to_string(), "rax");
        assert_eq!(slice(AnyRegister::General(7), 0, 4).to_string(), "rdi[0..4]");
    }
}
