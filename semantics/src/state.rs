//! The registers and flags of a thread.

/// Bits of the flags register, by the SDM's numbers.
pub mod flag {
    /// CF.
    pub const CARRY: u64 = 1;
    /// PF.
    pub const PARITY: u64 = 1 << 2;
    /// AF.
    pub const ADJUST: u64 = 1 << 4;
    /// ZF.
    pub const ZERO: u64 = 1 << 6;
    /// SF.
    pub const SIGN: u64 = 1 << 7;
    /// DF.
    pub const DIRECTION: u64 = 1 << 10;
    /// OF.
    pub const OVERFLOW: u64 = 1 << 11;
    /// The six flags that arithmetic sets.
    pub const STATUS: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;
}

/// A vector register of 512 bits, in bytes from the lowest.
pub type Vector = [u8; 64];

/// The control bits of MXCSR after a reset: all exceptions masked, round to nearest, and no
/// denormal is zero.
pub const DEFAULT_MXCSR: u32 = 0x1f80;
/// The bits of MXCSR that control arithmetic. The others say what has happened.
const MXCSR_CONTROL: u32 = 0xffc0;

/// A segment register with a base in 64-bit mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// FS.
    Fs,
    /// GS.
    Gs,
}

/// The registers and flags that models read and write. `rip` is apart: a model returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The general registers by their numbers in instructions: rax, rcx, rdx, rbx, rsp, rbp, rsi,
    /// rdi, r8 to r15.
    pub general: [u64; 16],
    /// The status flags and the direction flag, as bits of `rflags`.
    pub flags: u64,
    /// The flags whose value the manual leaves undefined, as bits of `rflags`.
    pub undefined: u64,
    /// zmm0 to zmm31. The low halves are ymm, and their low halves xmm.
    pub vectors: [Vector; 32],
    /// k0 to k7.
    pub masks: [u64; 8],
    /// The bases of FS and GS.
    pub bases: [u64; 2],
    /// The control bits of MXCSR. Models do not keep its exception flags.
    pub mxcsr: u32,
}

impl Default for State {
    fn default() -> Self {
        Self {
            general: [0; 16],
            flags: 0,
            undefined: 0,
            vectors: [[0; 64]; 32],
            masks: [0; 8],
            bases: [0; 2],
            mxcsr: DEFAULT_MXCSR,
        }
    }
}

impl State {
    /// Returns the low `size` bytes of a general register, shifted right by `shift` bits.
    #[must_use]
    pub fn general_part(&self, number: u8, shift: u8, size: u8) -> u64 {
        self.general[usize::from(number & 15)] >> shift & ones(size)
    }

    /// Writes a part of a general register. A write of four bytes clears the upper four.
    pub fn set_general_part(&mut self, number: u8, shift: u8, size: u8, value: u64) {
        let register = &mut self.general[usize::from(number & 15)];
        *register = match size {
            8 => value,
            4 => value & ones(4),
            _ => {
                let mask = ones(size) << shift;
                *register & !mask | value << shift & mask
            }
        };
    }

    /// Writes the flags of `mask`. They are defined from now on.
    pub fn set_flags(&mut self, mask: u64, flags: u64) {
        self.flags = self.flags & !mask | flags & mask;
        self.undefined &= !mask;
    }

    /// Makes flags undefined. Their bits are zero.
    pub fn undefine_flags(&mut self, mask: u64) {
        self.flags &= !mask;
        self.undefined |= mask;
    }

    /// Returns a flag, or `None` if it is undefined.
    #[must_use]
    pub fn flag(&self, flag: u64) -> Option<bool> {
        (self.undefined & flag == 0).then_some(self.flags & flag != 0)
    }

    /// Returns whether two states have the same registers. Flags that are undefined in one of them
    /// may differ.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        let undefined = self.undefined | other.undefined;
        self.general == other.general
            && (self.flags ^ other.flags) & !undefined == 0
            && self.vectors == other.vectors
            && self.masks == other.masks
            && self.bases == other.bases
            && self.mxcsr == other.mxcsr
    }

    /// Returns the base of a segment.
    #[must_use]
    pub fn base(&self, segment: Segment) -> u64 {
        match segment {
            Segment::Fs => self.bases[0],
            Segment::Gs => self.bases[1],
        }
    }

    /// Returns whether floating-point arithmetic rounds to nearest and keeps denormals.
    #[must_use]
    pub fn rounds_to_nearest(&self) -> bool {
        self.mxcsr & MXCSR_CONTROL == DEFAULT_MXCSR
    }
}

/// The bytes of an encoded state.
pub const ENCODED: usize = 16 * 8 + 2 * 8 + 32 * 64 + 8 * 8 + 2 * 8 + 4;

impl State {
    /// Appends the state as bytes: the fields in their order, the lowest byte first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let numbers = |out: &mut Vec<u8>, numbers: &[u64]| {
            for number in numbers {
                out.extend_from_slice(&number.to_le_bytes());
            }
        };
        numbers(out, &self.general);
        numbers(out, &[self.flags, self.undefined]);
        for vector in &self.vectors {
            out.extend_from_slice(vector);
        }
        numbers(out, &self.masks);
        numbers(out, &self.bases);
        out.extend_from_slice(&self.mxcsr.to_le_bytes());
    }

    /// Returns the state of [`ENCODED`] bytes. `None`: there are fewer.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut state = Self::default();
        for register in &mut state.general {
            *register = take(&mut rest)?;
        }
        state.flags = take(&mut rest)?;
        state.undefined = take(&mut rest)?;
        for vector in &mut state.vectors {
            let (bytes, after) = rest.split_first_chunk()?;
            *vector = *bytes;
            rest = after;
        }
        for mask in &mut state.masks {
            *mask = take(&mut rest)?;
        }
        for base in &mut state.bases {
            *base = take(&mut rest)?;
        }
        state.mxcsr = u32::from_le_bytes(*rest.first_chunk()?);
        Some(state)
    }
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*bytes))
}

/// Returns a number whose low `size` bytes are all ones.
///
/// # Example
/// `ones(2)` is `0xffff`.
#[must_use]
pub const fn ones(size: u8) -> u64 {
    match size {
        0 => 0,
        8.. => u64::MAX,
        _ => (1 << (8 * size as u32)) - 1,
    }
}

/// Extends the sign of the low `size` bytes.
#[must_use]
pub const fn sign_extend(value: u64, size: u8) -> u64 {
    let unused = 64 - 8 * (if size > 8 { 8 } else { size }) as u32;
    if unused == 64 {
        return 0;
    }
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_four_bytes_clear_the_upper_half() {
        let mut state = State::default();
        state.general[3] = u64::MAX;
        state.set_general_part(3, 0, 2, 0x1234);
        assert_eq!(state.general[3], 0xffff_ffff_ffff_1234);
        state.set_general_part(3, 8, 1, 0xab);
        assert_eq!(state.general[3], 0xffff_ffff_ffff_ab34);
        assert_eq!(state.general_part(3, 8, 1), 0xab);
        state.set_general_part(3, 0, 4, 7);
        assert_eq!(state.general[3], 7);
    }

    #[test]
    fn undefined_flags_have_no_value() {
        let mut state = State::default();
        state.undefine_flags(flag::ADJUST);
        assert_eq!(state.flag(flag::ADJUST), None);
        state.set_flags(flag::ADJUST | flag::ZERO, flag::ZERO);
        assert_eq!(
            (state.flag(flag::ADJUST), state.flag(flag::ZERO)),
            (Some(false), Some(true))
        );
    }

    #[test]
    fn states_are_encoded_as_a_whole() {
        let mut state = State::default();
        state.general[15] = 7;
        state.vectors[31][63] = 9;
        state.masks[7] = 3;
        state.bases = [1, 2];
        state.undefine_flags(flag::ADJUST);
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        assert_eq!(bytes.len(), ENCODED);
        assert_eq!(State::decode(&bytes), Some(state));
        assert_eq!(State::decode(&bytes[..ENCODED - 1]), None);
    }

    #[test]
    fn signs_are_extended() {
        assert_eq!(sign_extend(0x80, 1), 0xffff_ffff_ffff_ff80);
        assert_eq!(sign_extend(0x7f, 1), 0x7f);
        assert_eq!(sign_extend(u64::MAX, 8), u64::MAX);
    }
}
