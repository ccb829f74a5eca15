//! The length of the parts after an opcode, by ModRM, SIB, and operand and address sizes.
//!
//! Source: SDM volume 2, chapter 2; volume 1, "Operand-Size and Address-Size Attributes".

use super::Mode;
use super::tables::Imm;
use crate::Avma;

/// A flag in the result of [`Attributes::address_len`]: a SIB byte follows, and may add a
/// displacement of four bytes.
pub(super) const SIB_MAY_ADD: u8 = 0x80;

/// The size of ModRM, SIB and displacement by ModRM byte, for 32-bit and 64-bit addresses.
static ADDRESS_32: [u8; 256] = address(4, 0b101, true);

/// The size of ModRM and displacement by ModRM byte, for 16-bit addresses.
static ADDRESS_16: [u8; 256] = address(2, 0b110, false);

/// Builds a table of address lengths (tables 2-1 and 2-2). `wide` is the size of a full
/// displacement. `absolute` is the `rm` that means only a displacement if `mod` is 0.
const fn address(wide: u8, absolute: u8, sib: bool) -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let (mode, rm) = (at >> 6, at as u8 & 7);
        let has_sib = sib && rm == 0b100 && mode != 3;
        let displacement = match mode {
            0 if rm == absolute => wide,
            0 if has_sib => SIB_MAY_ADD,
            1 => 1,
            2 => wide,
            _ => 0,
        };
        table[at] = 1 + has_sib as u8 + displacement;
        at += 1;
    }
    table
}

/// The attributes that determine operand and address sizes, as bits.
#[derive(Clone, Copy)]
pub(super) struct Attributes(u8);

impl Attributes {
    /// An operand-size prefix.
    pub const OPERAND_SIZE: u8 = 1;
    /// An address-size prefix.
    pub const ADDRESS_SIZE: u8 = 2;
    /// REX.W, or W of VEX or EVEX.
    pub const WIDE: u8 = 4;

    const COUNT: usize = 32;

    pub fn new(mode: Mode) -> Self {
        Self((mode as u8) << 3)
    }

    pub fn set(&mut self, attribute: u8) {
        self.0 |= attribute;
    }

    /// Sets W from a REX prefix; 0 means no prefix.
    pub fn set_rex(&mut self, rex: u8) {
        self.0 |= (rex & 8) >> 1;
    }

    pub fn has(self, attribute: u8) -> bool {
        self.0 & attribute != 0
    }

    /// Returns the size of ModRM, SIB and displacement, without the part that [`SIB_MAY_ADD`]
    /// represents.
    pub fn address_len(self, modrm: u8) -> u8 {
        let table = if self.short_addresses() {
            &ADDRESS_16
        } else {
            &ADDRESS_32
        };
        table[usize::from(modrm)]
    }

    /// Returns whether addresses have 16 bits.
    pub fn short_addresses(self) -> bool {
        const TOGETHER: u8 = Attributes::ADDRESS_SIZE | 0b11 << 3;
        const IN_32: u8 = Attributes::ADDRESS_SIZE | (Mode::Bits32 as u8) << 3;
        const IN_16: u8 = (Mode::Bits16 as u8) << 3;
        matches!(self.0 & TOGETHER, IN_32 | IN_16)
    }

    /// Returns the target of a direct branch at `at`, given its 64-bit target.
    ///
    /// 16-bit code above 64 KiB uses linear addresses with an unknown segment base, so targets wrap
    /// at 2^32. Above 4 GiB there is no code in these modes. If a broken trace says so, nothing
    /// wraps.
    #[inline]
    pub fn wrapped(self, mode: Mode, at: Avma, target: Avma) -> Avma {
        let other_operand = self.has(Self::OPERAND_SIZE);
        let narrow = match mode {
            Mode::Bits64 => return target,
            _ if at.0 > 0xffff_ffff => return target,
            Mode::Bits32 => other_operand,
            Mode::Bits16 => !other_operand && at.0 <= 0xffff,
        };
        Avma(target.0 & if narrow { 0xffff } else { 0xffff_ffff })
    }

    /// Returns the size of an immediate that does not depend on the ModRM byte.
    pub fn len_of(self, imm: Imm) -> usize {
        usize::from(LENGTHS[usize::from(self.0) % Self::COUNT][imm as usize % IMMS])
    }
}

const IMMS: usize = 16;

/// The size of each [`Imm`] for each set of [`Attributes`].
static LENGTHS: [[u8; IMMS]; Attributes::COUNT] = {
    let mut table = [[0; IMMS]; Attributes::COUNT];
    let mut at = 0;
    while at < Attributes::COUNT {
        table[at] = lengths(at as u8);
        at += 1;
    }
    table
};

const fn lengths(attributes: u8) -> [u8; IMMS] {
    let mode = attributes >> 3;
    let long = mode == Mode::Bits64 as u8;
    let narrow = mode == Mode::Bits16 as u8;
    let other_operand = attributes & Attributes::OPERAND_SIZE != 0;
    let other_address = attributes & Attributes::ADDRESS_SIZE != 0;
    let wide = long && attributes & Attributes::WIDE != 0;
    let z = if !wide && narrow != other_operand { 2 } else { 4 };
    let mut table = [0; IMMS];
    table[Imm::Byte as usize] = 1;
    table[Imm::Word as usize] = 2;
    table[Imm::Enter as usize] = 3;
    table[Imm::Dword as usize] = 4;
    table[Imm::Z as usize] = z;
    table[Imm::V as usize] = if wide { 8 } else { z };
    table[Imm::Offset as usize] = match (long, narrow != other_address) {
        (true, false) => 8,
        (true, true) | (false, false) => 4,
        (false, true) => 2,
    };
    table[Imm::Branch as usize] = if long { 4 } else { z };
    table[Imm::Far as usize] = z + 2;
    table
}
