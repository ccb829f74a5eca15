//! Instruction length and change of flow by opcode tables, for walking all code of a process.
//!
//! The tables decode no operands and validate nothing. Invalid instructions have the length that
//! the rules of their opcode map give, as in libipt. [`crate::cofi`] decodes single instructions
//! completely. On valid instructions both agree.
//!
//! Source: SDM volume 2, chapter 2 "Instruction Format" and appendix A "Opcode Map"; volume 3,
//! "Change of Flow Instruction (COFI) Tracing".

mod sizes;
mod tables;
#[cfg(test)]
mod tests;

use crate::{Avma, Cofi};
use sizes::{Attributes, SIB_MAY_ADD};
use tables::{Flow, Imm, ModRm, Opcode, OpcodeByte};

/// The mode of the code segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// 64-bit code (CS.L).
    #[default]
    Bits64,
    /// 32-bit code (CS.D).
    Bits32,
    /// 16-bit code.
    Bits16,
}

/// An effect of an instruction, beside its change of flow, that trace packets may bind to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// None.
    Plain,
    /// PTWRITE: produces PTW.
    Ptwrite,
    /// MOV to CR3: produces PIP.
    WritesCr3,
    /// VMPTRLD: produces VMCS.
    LoadsVmcs,
    /// VMLAUNCH, VMRESUME.
    EntersVm,
    /// IRET, SYSRET, SYSEXIT, ERETS, ERETU.
    ReturnsFromInterrupt,
    /// UIRET.
    ReturnsFromUserInterrupt,
}

/// The length and flow of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The length in bytes, 1–15.
    pub len: u8,
    /// The change of flow. Direct targets wrap as instruction pointers do: at 2^64, in 32-bit code
    /// at 2^32, and with 16-bit operands at 2^16.
    pub cofi: Cofi,
    /// Other effects that are visible in a trace.
    pub role: Role,
}

/// The reason that bytes are not an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The instruction is incomplete: more bytes may complete it.
    #[error("the bytes end within the instruction")]
    Truncated,
    /// No instruction begins with these bytes, or it is too long.
    #[error("the bytes are not an instruction")]
    Invalid,
}

/// The maximum length of an instruction.
const MAX_LEN: usize = 15;

/// The input of [`read`]: an instruction and one more byte, so that indexes need no bounds check.
type Window = [u8; 16];

/// Decodes the first instruction of `code`, which is at address `at`.
///
/// # Errors
///
/// [`DecodeError::Truncated`] if `code` ends within it, [`DecodeError::Invalid`] if it is not an
/// instruction.
#[inline]
pub fn decode(code: &[u8], at: Avma, mode: Mode) -> Result<Instruction, DecodeError> {
    match code.first_chunk() {
        Some(window) => read(window, MAX_LEN, at, mode),
        None => decode_short(code, at, mode),
    }
}

/// Decodes as [`decode`] does, for fewer bytes than a window.
#[cold]
fn decode_short(code: &[u8], at: Avma, mode: Mode) -> Result<Instruction, DecodeError> {
    let mut window: Window = [0; 16];
    for (to, from) in window.iter_mut().zip(code) {
        *to = *from;
    }
    read(&window, code.len(), at, mode)
}

/// Not an instruction, which this number of bytes proves.
struct InvalidAfter(usize);

impl InvalidAfter {
    /// Returns the error if `known` bytes of the window are code.
    #[cold]
    fn error(self, known: usize) -> DecodeError {
        if self.0 <= known {
            DecodeError::Invalid
        } else {
            DecodeError::Truncated
        }
    }
}

/// The prefixes and the opcode, as far as the rest depends on them.
#[derive(Clone, Copy)]
struct Head {
    attributes: Attributes,
    rex_r: bool,
    /// Whether there is an F3 prefix.
    rep: bool,
    /// Whether F2 is the last of the F2 and F3 prefixes.
    repne_last: bool,
    opcode: Opcode,
    /// The offset after the opcode.
    end: usize,
    /// The two bytes after the opcode: ModRM and SIB, if it has them.
    modrm: u8,
    sib: u8,
}

#[inline]
fn byte(window: &Window, at: usize) -> u8 {
    window[at % window.len()]
}

/// Decodes the instruction at the start of a window, of which `known` bytes are code and the rest
/// is zero.
#[inline]
fn read(window: &Window, known: usize, at: Avma, mode: Mode) -> Result<Instruction, DecodeError> {
    let head = match read_plain_head(window, mode) {
        Some(head) => head,
        None => match read_head(window, mode) {
            Ok(head) => head,
            Err(invalid) => return Err(invalid.error(known)),
        },
    };
    // Branch-free, because the branch would be unpredictable.
    let mut address_len = head.attributes.address_len(head.modrm) & head.opcode.modrm as u8;
    if address_len & SIB_MAY_ADD != 0 {
        address_len = if head.sib & 7 == 0b101 { 6 } else { 2 };
    }
    if head.opcode.modrm == ModRm::Registers {
        address_len = 1;
    }
    let mut imm = head.opcode.imm;
    if imm.needs_modrm() {
        imm = by_modrm(&head, address_len);
    }
    let end = head.end + usize::from(address_len);
    let imm_len = head.attributes.len_of(imm);
    let len = end + imm_len;
    if len > known.min(MAX_LEN) {
        return Err(if len > MAX_LEN {
            head.too_long().error(known)
        } else {
            DecodeError::Truncated
        });
    }
    let (cofi, role) = if head.opcode.flow == Flow::Next {
        (Cofi::Sequential, Role::Plain)
    } else {
        let target = at + len as u64 + displacement(window, end, imm_len);
        flow(&head, mode, head.attributes.wrapped(mode, at, target))
    };
    let len = len as u8;
    Ok(Instruction { len, cofi, role })
}

/// Decodes an opcode of one or two bytes without prefixes other than REX, which most instructions
/// have.
#[inline]
fn read_plain_head(window: &Window, mode: Mode) -> Option<Head> {
    let [b0, b1, b2, b3, ..] = *window;
    let mut next = u32::from_le_bytes([b0, b1, b2, b3]);
    // Branch-free, because about half of all instructions have REX.
    let is_rex = b0 & 0xf0 == 0x40 && mode == Mode::Bits64;
    let rex = if is_rex { b0 } else { 0 };
    next >>= u32::from(is_rex) * 8;
    let mut opcode = tables::ONE_BYTE[usize::from(next as u8)];
    let mut end = 1 + usize::from(is_rex);
    next >>= 8;
    if opcode.kind == OpcodeByte::Escape {
        opcode = tables::TWO_BYTE[usize::from(next as u8)];
        end += 1;
        next = u32::from_le_bytes([byte(window, end), byte(window, end + 1), 0, 0]);
    }
    let mut attributes = Attributes::new(mode);
    attributes.set_rex(rex);
    (opcode.kind == OpcodeByte::Opcode).then_some(Head {
        attributes,
        rex_r: rex & 4 != 0,
        rep: false,
        repne_last: false,
        opcode,
        end,
        modrm: next as u8,
        sib: (next >> 8) as u8,
    })
}

/// Decodes any prefixes and opcode.
#[inline(never)]
fn read_head(window: &Window, mode: Mode) -> Result<Head, InvalidAfter> {
    let mut attributes = Attributes::new(mode);
    let (mut rep, mut repne_last) = (false, false);
    let mut rex = 0;
    let mut end = 0;
    let opcode = loop {
        if end >= MAX_LEN {
            return Err(InvalidAfter(end));
        }
        let first = byte(window, end);
        let opcode = tables::ONE_BYTE[usize::from(first)];
        end += 1;
        match opcode.kind {
            OpcodeByte::Opcode => break opcode,
            OpcodeByte::Rex if mode == Mode::Bits64 => {
                rex = first;
                continue;
            }
            OpcodeByte::Rex => break opcode,
            OpcodeByte::Escape => break escaped(window, &mut end)?,
            OpcodeByte::Rex2 if mode == Mode::Bits64 => break rex2(window, &mut end, &mut rex)?,
            OpcodeByte::Rex2 => break opcode,
            OpcodeByte::Vex2 | OpcodeByte::Vex3 | OpcodeByte::Evex => {
                // Otherwise this is LES, LDS or BOUND, whose ModRM byte specifies memory.
                if mode == Mode::Bits64 || byte(window, end) >= 0xc0 {
                    rex = 0;
                    break vector(window, opcode.kind, &mut end, &mut attributes)?;
                }
                break opcode;
            }
            OpcodeByte::OperandSize => attributes.set(Attributes::OPERAND_SIZE),
            OpcodeByte::AddressSize => attributes.set(Attributes::ADDRESS_SIZE),
            OpcodeByte::Repne => repne_last = true,
            OpcodeByte::Rep => (rep, repne_last) = (true, false),
            OpcodeByte::Ignored | OpcodeByte::Escape38 | OpcodeByte::Escape3A | OpcodeByte::Invalid => {}
        }
        // REX is only valid directly before the opcode.
        rex = 0;
    };
    attributes.set_rex(rex);
    Ok(Head {
        attributes,
        rex_r: rex & 4 != 0,
        rep,
        repne_last,
        opcode,
        end,
        modrm: byte(window, end),
        sib: byte(window, end + 1),
    })
}

/// Decodes the rest of a REX2 prefix and the opcode. `end` is after the first byte of the prefix.
/// Sets `rex` to the REX prefix with the same W, and with R if any high bit of the register is set.
fn rex2(window: &Window, end: &mut usize, rex: &mut u8) -> Result<Opcode, InvalidAfter> {
    let payload = byte(window, *end);
    let at = *end + 1;
    if at >= MAX_LEN {
        return Err(InvalidAfter(*end));
    }
    *rex = payload & 8 | u8::from(payload & 0x44 != 0) << 2;
    *end = at + 1;
    Ok(tables::rex2(payload >> 7, byte(window, at)))
}

/// Decodes the opcode after 0F, at `end`.
fn escaped(window: &Window, end: &mut usize) -> Result<Opcode, InvalidAfter> {
    let opcode = tables::TWO_BYTE[usize::from(byte(window, *end))];
    *end += 1;
    match opcode.kind {
        OpcodeByte::Escape38 => {
            *end += 1;
            Ok(tables::THREE_BYTE_38)
        }
        OpcodeByte::Escape3A => {
            *end += 1;
            Ok(tables::THREE_BYTE_3A)
        }
        OpcodeByte::Invalid => Err(InvalidAfter(*end)),
        _ => Ok(opcode),
    }
}

/// Decodes the rest of a VEX or EVEX prefix and the opcode. `end` is after the first byte of the
/// prefix.
fn vector(
    window: &Window,
    kind: OpcodeByte,
    end: &mut usize,
    attributes: &mut Attributes,
) -> Result<Opcode, InvalidAfter> {
    let payload = byte(window, *end);
    // The byte with the W bit and the implied prefix, and the offset of the opcode.
    let (last, at) = match kind {
        OpcodeByte::Vex2 => (payload & 0x7f, *end + 1),
        OpcodeByte::Vex3 => (byte(window, *end + 1), *end + 2),
        _ => (byte(window, *end + 1), *end + 3),
    };
    if at >= MAX_LEN {
        return Err(InvalidAfter(*end));
    }
    if last & 0x80 != 0 {
        attributes.set(Attributes::WIDE);
    }
    if last & 3 == 1 {
        attributes.set(Attributes::OPERAND_SIZE);
    }
    let opcode = byte(window, at);
    let seen = *end + 1;
    *end = at + 1;
    match kind {
        OpcodeByte::Vex2 => tables::vex(1, opcode),
        OpcodeByte::Vex3 => tables::vex(payload & 0x1f, opcode),
        _ => tables::evex(payload & 7, opcode),
    }
    .ok_or(InvalidAfter(seen))
}

/// Returns the immediate of an opcode whose ModRM byte determines it. ModRM, SIB and displacement
/// have `address_len` bytes.
#[inline]
fn by_modrm(head: &Head, address_len: u8) -> Imm {
    let modrm = head.modrm;
    let reg = reg(modrm);
    // XBEGIN is C7 F8. If there is a memory displacement, libipt takes it for the branch
    // displacement.
    let no_displacement = modrm >= 0xc0 || modrm < 0x40 && address_len <= 2;
    match head.opcode.imm {
        Imm::Test8 if reg < 2 => Imm::Byte,
        Imm::TestZ if reg < 2 => Imm::Z,
        Imm::MovZ if reg == 0 || reg == 7 && no_displacement => Imm::Z,
        Imm::Vmread if head.repne_last || head.attributes.has(Attributes::OPERAND_SIZE) => Imm::Word,
        _ => Imm::None,
    }
}

fn reg(modrm: u8) -> u8 {
    modrm >> 3 & 7
}

/// Reads a branch displacement of `len` bytes at `from`, sign extended.
#[inline]
fn displacement(window: &Window, from: usize, len: usize) -> u64 {
    let byte = |at| byte(window, from + at);
    let value = match len {
        1 => i64::from(byte(0) as i8),
        2 => i64::from(i16::from_le_bytes([byte(0), byte(1)])),
        _ => i64::from(i32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])),
    };
    value.cast_unsigned()
}

/// Returns the flow and role of an opcode that is not [`Flow::Next`]. `target` is that of a direct
/// branch.
#[inline]
fn flow(head: &Head, mode: Mode, target: Avma) -> (Cofi, Role) {
    let (far, modrm) = (Cofi::FarTransfer, head.modrm);
    let plain = |cofi| (cofi, Role::Plain);
    let only = |role| (Cofi::Sequential, role);
    match (head.opcode.flow, reg(modrm)) {
        (Flow::Conditional, _) => plain(Cofi::Conditional { target }),
        (Flow::Jump, _) => plain(Cofi::Jump { target }),
        (Flow::Call, _) => plain(Cofi::Call { target }),
        (Flow::Return, _) => plain(Cofi::Return),
        (Flow::Group5, 2) => plain(Cofi::IndirectCall),
        (Flow::Group5, 4) => plain(Cofi::IndirectJump),
        // JMPABS has its target in the code, and yet produces a TIP.
        (Flow::JumpAbsolute, _) if !head.has_other_size() => plain(Cofi::IndirectJump),
        (Flow::Far, _) | (Flow::Group5, 3 | 5) => plain(far),
        (Flow::FarLegacy, _) if mode != Mode::Bits64 => plain(far),
        (Flow::InterruptReturn, _) => (far, Role::ReturnsFromInterrupt),
        (Flow::Group7, _) => match modrm {
            0xc1 => plain(far),
            0xc2 | 0xc3 => (far, Role::EntersVm),
            0xec => (far, Role::ReturnsFromUserInterrupt),
            // ERETS with F2 and ERETU with F3; without a prefix it is CLAC.
            0xca if head.repne_last || head.rep => (far, Role::ReturnsFromInterrupt),
            _ => plain(Cofi::Sequential),
        },
        // With a 66 or F3 prefix it is VMCLEAR or VMXON, which load no VMCS.
        (Flow::Group9, 6) if modrm < 0xc0 && !head.rep && !head.has_operand_size() => only(Role::LoadsVmcs),
        (Flow::Group15, 4) if head.rep && !head.has_operand_size() => only(Role::Ptwrite),
        (Flow::MovToCr, 3) if !head.rex_r => only(Role::WritesCr3),
        _ => plain(Cofi::Sequential),
    }
}

impl Head {
    fn has_operand_size(&self) -> bool {
        self.attributes.has(Attributes::OPERAND_SIZE)
    }

    /// Returns whether the operand or the address has another size than by default.
    fn has_other_size(&self) -> bool {
        let attributes = [
            Attributes::OPERAND_SIZE,
            Attributes::ADDRESS_SIZE,
            Attributes::WIDE,
        ];
        attributes.iter().any(|&attribute| self.attributes.has(attribute))
    }

    /// Handles an instruction that exceeds the maximum length: the bytes up to ModRM and SIB were
    /// examined.
    #[cold]
    fn too_long(self) -> InvalidAfter {
        let looked_at = match self.opcode.modrm {
            ModRm::None => 0,
            ModRm::Full if self.modrm & 0xc7 == 0b100 && !self.attributes.short_addresses() => 2,
            ModRm::Full | ModRm::Registers => 1,
        };
        InvalidAfter(MAX_LEN.min(self.end + looked_at))
    }
}
