//! How long what follows an opcode is: by ModRM and SIB (SDM volume 2, chapter 2), by the sizes of
//! operands and addresses (volume 1, "Operand-Size and Address-Size Attributes").

use super::Mode;
use super::tables::Imm;
use crate::Avma;

/// In a length that [`Attributes::address_len`] gives: a SIB byte follows, and may add four bytes of displacement.
pub(super) const SIB_MAY_ADD: u8 = 0x80;

/// Bytes of ModRM, SIB and displacement by the ModRM byte, with 32-bit and 64-bit addresses.
static ADDRESS_32: [u8; 256] = address(4, 0b101, true);

/// Bytes of ModRM and displacement by the ModRM byte, with 16-bit addresses.
static ADDRESS_16: [u8; 256] = address(2, 0b110, false);

/// How an address is written (tables 2-1 and 2-2). `wide`: the size of a displacement that is no byte.
/// `absolute`: the `rm` that with a `mod` of 0 is a displacement alone.
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

/// What decides the size of operands and addresses, a few bits.
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

    /// Takes W from a REX prefix; 0 is none.
    pub fn set_rex(&mut self, rex: u8) {
        self.0 |= (rex & 8) >> 1;
    }

    pub fn has(self, attribute: u8) -> bool {
        self.0 & attribute != 0
    }

    /// Bytes of ModRM, SIB and displacement, but for what [`SIB_MAY_ADD`] says.
    pub fn address_len(self, modrm: u8) -> u8 {
        let table = if self.short_addresses() {
            &ADDRESS_16
        } else {
            &ADDRESS_32
        };
        table[usize::from(modrm)]
    }

    /// Addresses have 16 bits.
    pub fn short_addresses(self) -> bool {
        const TOGETHER: u8 = Attributes::ADDRESS_SIZE | 0b11 << 3;
        const IN_32: u8 = Attributes::ADDRESS_SIZE | (Mode::Bits32 as u8) << 3;
        const IN_16: u8 = (Mode::Bits16 as u8) << 3;
        matches!(self.0 & TOGETHER, IN_32 | IN_16)
    }

    /// Where a direct branch at `at` goes, its target in 64 bits being known.
    ///
    /// 16-bit code above 64 KiB is at linear addresses, and where its segment begins is not known: there it
    /// wraps at 2^32. Above 4 GiB there is no code of these modes; where a broken trace says so, nothing wraps.
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

    /// Bytes of an immediate that does not depend on the ModRM byte.
    pub fn len_of(self, imm: Imm) -> usize {
        usize::from(LENGTHS[usize::from(self.0) % Self::COUNT][imm as usize % IMMS])
    }
}

const IMMS: usize = 16;

/// Bytes of each [`Imm`] under each set of [`Attributes`].
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
