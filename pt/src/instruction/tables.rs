//! The opcode maps: the parts after an opcode, and its effect on the flow (SDM volume 2, appendix
//! A).
//!
//! Unknown opcodes have the length that libipt's length decoder gives them, so that both walk
//! invalid code in the same steps.

/// An opcode, and the parts that follow it.
#[derive(Clone, Copy)]
pub(super) struct Opcode {
    pub modrm: ModRm,
    pub imm: Imm,
    pub flow: Flow,
    pub kind: OpcodeByte,
}

/// Whether a ModRM byte follows. The values mask the length of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ModRm {
    None = 0,
    /// ModRM with registers: `mod` is ignored.
    Registers = 1,
    /// ModRM with SIB byte and displacement.
    Full = 0xff,
}

/// The bytes at the end of an instruction: immediates, branch displacements, absolute addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Imm {
    None,
    Byte,
    Word,
    /// ENTER: two bytes and one byte.
    Enter,
    Dword,
    /// 2 or 4 bytes, by operand size ("z" in the SDM).
    Z,
    /// 2, 4 or 8 bytes, by operand size ("v").
    V,
    /// 2, 4 or 8 bytes, by address size (`moffs`).
    Offset,
    /// As [`Imm::Z`], but always 4 bytes in 64-bit code.
    Branch,
    /// A far pointer: an offset as [`Imm::Z`], and a selector.
    Far,
    /// Group 3: one byte for TEST only.
    Test8,
    /// Group 3: as [`Imm::Z`] for TEST only.
    TestZ,
    /// Group 11: an immediate for MOV, a displacement for XBEGIN.
    MovZ,
    /// None for VMREAD, two bytes for EXTRQ and INSERTQ (66 or F2 before the opcode).
    Vmread,
}

impl Imm {
    /// Returns whether the size depends on the ModRM byte or a prefix.
    pub fn needs_modrm(self) -> bool {
        matches!(self, Self::Test8 | Self::TestZ | Self::MovZ | Self::Vmread)
    }
}

/// The effect of an opcode on the control flow, or the group that determines it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Conditional,
    Jump,
    Call,
    Return,
    Far,
    /// A far transfer in 32-bit and 16-bit code, invalid in 64-bit code.
    FarLegacy,
    /// IRET, SYSRET, SYSEXIT.
    InterruptReturn,
    /// FF: includes indirect calls and jumps.
    Group5,
    /// 0F 01: includes VMCALL, VMLAUNCH, VMRESUME, UIRET, ERETS and ERETU.
    Group7,
    /// 0F C7: includes VMPTRLD.
    Group9,
    /// 0F AE: includes PTWRITE.
    Group15,
    /// 0F 22: includes MOV to CR3.
    MovToCr,
    /// REX2 A1: JMPABS, unless a prefix or W changes the operand size.
    JumpAbsolute,
}

/// The meaning of a byte at the position of an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpcodeByte {
    /// An opcode.
    Opcode,
    /// A prefix that affects neither length nor flow.
    Ignored,
    OperandSize,
    AddressSize,
    Repne,
    Rep,
    /// REX in 64-bit code, otherwise an opcode.
    Rex,
    Vex2,
    Vex3,
    Evex,
    /// REX2 in 64-bit code (APX), otherwise an opcode.
    Rex2,
    /// Escape to another opcode map.
    Escape,
    Escape38,
    Escape3A,
    /// Invalid.
    Invalid,
}

const PLAIN: Opcode = Opcode {
    modrm: ModRm::None,
    imm: Imm::None,
    flow: Flow::Next,
    kind: OpcodeByte::Opcode,
};
const FULL: Opcode = Opcode {
    modrm: ModRm::Full,
    ..PLAIN
};
const REGISTERS: Opcode = Opcode {
    modrm: ModRm::Registers,
    ..PLAIN
};

impl Opcode {
    const fn imm(self, imm: Imm) -> Self {
        Self { imm, ..self }
    }

    const fn flow(self, flow: Flow) -> Self {
        Self { flow, ..self }
    }
}

const fn of_kind(kind: OpcodeByte) -> Opcode {
    Opcode { kind, ..PLAIN }
}

type Map = [Opcode; 256];

/// Puts `opcode` at every index from `first` to `last`.
const fn fill(map: &mut Map, first: u8, last: u8, opcode: Opcode) {
    let mut at = first as usize;
    while at <= last as usize {
        map[at] = opcode;
        at += 1;
    }
}

/// Builds a map of `otherwise`, except for the rows of first opcode, last opcode and value. Later
/// rows take precedence.
const fn map(otherwise: Opcode, rows: &[(u8, u8, Opcode)]) -> Map {
    let mut map = [otherwise; 256];
    let mut row = 0;
    while row < rows.len() {
        let (first, last, opcode) = rows[row];
        fill(&mut map, first, last, opcode);
        row += 1;
    }
    map
}

/// One-byte opcodes (table A-2), including prefixes.
pub(super) static ONE_BYTE: Map = {
    let mut one = map(
        PLAIN,
        &[
            (0x40, 0x4f, of_kind(OpcodeByte::Rex)),
            (
                0x62,
                0x62,
                Opcode {
                    kind: OpcodeByte::Evex,
                    ..FULL
                },
            ),
            (0x63, 0x63, FULL),
            (0x64, 0x65, of_kind(OpcodeByte::Ignored)),
            (0x66, 0x66, of_kind(OpcodeByte::OperandSize)),
            (0x67, 0x67, of_kind(OpcodeByte::AddressSize)),
            (0x68, 0x68, PLAIN.imm(Imm::Z)),
            (0x69, 0x69, FULL.imm(Imm::Z)),
            (0x6a, 0x6a, PLAIN.imm(Imm::Byte)),
            (0x6b, 0x6b, FULL.imm(Imm::Byte)),
            (0x70, 0x7f, PLAIN.imm(Imm::Byte).flow(Flow::Conditional)),
            (0x80, 0x83, FULL.imm(Imm::Byte)),
            (0x81, 0x81, FULL.imm(Imm::Z)),
            (0x84, 0x8f, FULL),
            (0x9a, 0x9a, PLAIN.imm(Imm::Far).flow(Flow::FarLegacy)),
            (0xa0, 0xa3, PLAIN.imm(Imm::Offset)),
            (0xa8, 0xa8, PLAIN.imm(Imm::Byte)),
            (0xa9, 0xa9, PLAIN.imm(Imm::Z)),
            (0xb0, 0xb7, PLAIN.imm(Imm::Byte)),
            (0xb8, 0xbf, PLAIN.imm(Imm::V)),
            (0xc0, 0xc1, FULL.imm(Imm::Byte)),
            (0xc2, 0xc2, PLAIN.imm(Imm::Word).flow(Flow::Return)),
            (0xc3, 0xc3, PLAIN.flow(Flow::Return)),
            (
                0xc4,
                0xc4,
                Opcode {
                    kind: OpcodeByte::Vex3,
                    ..FULL
                },
            ),
            (
                0xc5,
                0xc5,
                Opcode {
                    kind: OpcodeByte::Vex2,
                    ..FULL
                },
            ),
            (0xc6, 0xc6, FULL.imm(Imm::Byte)),
            (0xc7, 0xc7, FULL.imm(Imm::MovZ)),
            (0xc8, 0xc8, PLAIN.imm(Imm::Enter)),
            (0xca, 0xca, PLAIN.imm(Imm::Word).flow(Flow::Far)),
            (0xcb, 0xcc, PLAIN.flow(Flow::Far)),
            (0xcd, 0xcd, PLAIN.imm(Imm::Byte).flow(Flow::Far)),
            (0xce, 0xce, PLAIN.flow(Flow::FarLegacy)),
            (0xcf, 0xcf, PLAIN.flow(Flow::InterruptReturn)),
            (0xd0, 0xd3, FULL),
            (0xd4, 0xd4, PLAIN.imm(Imm::Byte)),
            (
                0xd5,
                0xd5,
                Opcode {
                    kind: OpcodeByte::Rex2,
                    ..PLAIN.imm(Imm::Byte)
                },
            ),
            (0xd8, 0xdf, FULL),
            (0xe0, 0xe3, PLAIN.imm(Imm::Byte).flow(Flow::Conditional)),
            (0xe4, 0xe7, PLAIN.imm(Imm::Byte)),
            (0xe8, 0xe8, PLAIN.imm(Imm::Branch).flow(Flow::Call)),
            (0xe9, 0xe9, PLAIN.imm(Imm::Branch).flow(Flow::Jump)),
            (0xea, 0xea, PLAIN.imm(Imm::Far).flow(Flow::FarLegacy)),
            (0xeb, 0xeb, PLAIN.imm(Imm::Byte).flow(Flow::Jump)),
            (0xf0, 0xf0, of_kind(OpcodeByte::Ignored)),
            (0xf1, 0xf1, PLAIN.flow(Flow::Far)),
            (0xf2, 0xf2, of_kind(OpcodeByte::Repne)),
            (0xf3, 0xf3, of_kind(OpcodeByte::Rep)),
            (0xf6, 0xf6, FULL.imm(Imm::Test8)),
            (0xf7, 0xf7, FULL.imm(Imm::TestZ)),
            (0xfe, 0xfe, FULL),
            (0xff, 0xff, FULL.flow(Flow::Group5)),
        ],
    );
    // ADD, OR, ADC, SBB, AND, SUB, XOR and CMP have the same layout.
    let mut row = 0;
    while row < 0x40 {
        fill(&mut one, row, row + 3, FULL);
        fill(&mut one, row + 4, row + 4, PLAIN.imm(Imm::Byte));
        fill(&mut one, row + 5, row + 5, PLAIN.imm(Imm::Z));
        row += 8;
    }
    // Segment overrides.
    row = 0x26;
    while row < 0x40 {
        fill(&mut one, row, row, of_kind(OpcodeByte::Ignored));
        row += 8;
    }
    fill(&mut one, 0x0f, 0x0f, of_kind(OpcodeByte::Escape));
    one
};

/// Two-byte opcodes, after 0F (table A-3).
pub(super) static TWO_BYTE: Map = map(
    FULL,
    &[
        (0x01, 0x01, FULL.flow(Flow::Group7)),
        (0x04, 0x0c, PLAIN),
        (0x05, 0x05, PLAIN.flow(Flow::Far)),
        (0x07, 0x07, PLAIN.flow(Flow::InterruptReturn)),
        (0x0e, 0x0f, PLAIN),
        (0x20, 0x23, REGISTERS),
        (0x22, 0x22, REGISTERS.flow(Flow::MovToCr)),
        (0x24, 0x27, PLAIN),
        (0x30, 0x37, PLAIN),
        (0x34, 0x34, PLAIN.flow(Flow::Far)),
        (0x35, 0x35, PLAIN.flow(Flow::InterruptReturn)),
        (0x38, 0x3f, of_kind(OpcodeByte::Invalid)),
        (0x38, 0x38, of_kind(OpcodeByte::Escape38)),
        (0x3a, 0x3a, of_kind(OpcodeByte::Escape3A)),
        (0x70, 0x73, FULL.imm(Imm::Byte)),
        (0x77, 0x77, PLAIN),
        (0x78, 0x78, FULL.imm(Imm::Vmread)),
        (0x7a, 0x7b, PLAIN),
        (0x80, 0x8f, PLAIN.imm(Imm::Branch).flow(Flow::Conditional)),
        (0xa0, 0xa2, PLAIN),
        (0xa4, 0xa4, FULL.imm(Imm::Byte)),
        (0xa6, 0xa7, REGISTERS),
        (0xa8, 0xaa, PLAIN),
        (0xac, 0xac, FULL.imm(Imm::Byte)),
        (0xae, 0xae, FULL.flow(Flow::Group15)),
        (0xba, 0xba, FULL.imm(Imm::Byte)),
        (0xc2, 0xc2, FULL.imm(Imm::Byte)),
        (0xc4, 0xc6, FULL.imm(Imm::Byte)),
        (0xc7, 0xc7, FULL.flow(Flow::Group9)),
        (0xc8, 0xcf, PLAIN),
    ],
);

/// Opcodes after 0F 38 (table A-4).
pub(super) const THREE_BYTE_38: Opcode = FULL;
/// Opcodes after 0F 3A (table A-5).
pub(super) const THREE_BYTE_3A: Opcode = FULL.imm(Imm::Byte);

/// Map 1 in a VEX prefix.
static VEX_1: Map = map(
    FULL,
    &[
        (0x04, 0x0c, PLAIN),
        (0x0e, 0x0f, PLAIN),
        (0x20, 0x23, REGISTERS),
        (0x24, 0x27, PLAIN),
        (0x30, 0x3f, PLAIN),
        (0x70, 0x73, FULL.imm(Imm::Byte)),
        (0x77, 0x77, PLAIN),
        (0x7a, 0x7b, PLAIN),
        (0x80, 0x8f, PLAIN),
        (0xa0, 0xa2, PLAIN),
        (0xa6, 0xa7, REGISTERS),
        (0xa8, 0xaa, PLAIN),
        (0xc2, 0xc2, FULL.imm(Imm::Byte)),
        (0xc4, 0xc6, FULL.imm(Imm::Byte)),
        (0xc8, 0xcf, PLAIN),
    ],
);

/// Map 1 in an EVEX prefix.
static EVEX_1: Map = map(
    FULL,
    &[
        (0x70, 0x73, FULL.imm(Imm::Byte)),
        (0xc2, 0xc2, FULL.imm(Imm::Byte)),
        (0xc4, 0xc6, FULL.imm(Imm::Byte)),
    ],
);

/// Map 4 in an EVEX prefix: APX forms of older instructions.
static EVEX_4: Map = map(
    FULL,
    &[
        (0x24, 0x24, FULL.imm(Imm::Byte)),
        (0x2c, 0x2c, FULL.imm(Imm::Byte)),
        (0x69, 0x69, FULL.imm(Imm::Z)),
        (0x6b, 0x6b, FULL.imm(Imm::Byte)),
        (0x80, 0x80, FULL.imm(Imm::Byte)),
        (0x81, 0x81, FULL.imm(Imm::Z)),
        (0x83, 0x83, FULL.imm(Imm::Byte)),
        (0xc0, 0xc1, FULL.imm(Imm::Byte)),
        (0xd4, 0xd4, FULL.imm(Imm::Byte)),
        (0xf6, 0xf6, FULL.imm(Imm::Test8)),
        (0xf7, 0xf7, FULL.imm(Imm::TestZ)),
    ],
);

/// Returns the opcode after a REX2 prefix with `map` 0 or 1. Relative branches, SYSENTER and
/// SYSEXIT are invalid with this prefix (APX architecture specification, "REX2 prefix").
pub(super) fn rex2(map: u8, opcode: u8) -> Opcode {
    let of_map = if map == 0 { &ONE_BYTE } else { &TWO_BYTE };
    let found = of_map[usize::from(opcode)];
    let flow = match (map, opcode, found.flow) {
        (0, 0xa1, _) => Flow::JumpAbsolute,
        (1, 0x34 | 0x35, _) => Flow::Next,
        (_, _, Flow::Conditional | Flow::Jump | Flow::Call | Flow::FarLegacy) => Flow::Next,
        (_, _, flow) => flow,
    };
    found.flow(flow)
}

/// Returns the opcode after a VEX prefix with `map`, or `None` if there is no such map.
pub(super) fn vex(map: u8, opcode: u8) -> Option<Opcode> {
    match map {
        1 => Some(VEX_1[usize::from(opcode)]),
        2 => Some(THREE_BYTE_38),
        3 => Some(THREE_BYTE_3A),
        4..=6 => Some(PLAIN),
        7 => Some(FULL.imm(Imm::Dword)),
        _ => None,
    }
}

/// Returns the opcode after an EVEX prefix with `map`, or `None` if there is no such map.
pub(super) fn evex(map: u8, opcode: u8) -> Option<Opcode> {
    match map {
        1 => Some(EVEX_1[usize::from(opcode)]),
        2 => Some(THREE_BYTE_38),
        3 => Some(THREE_BYTE_3A),
        4 => Some(EVEX_4[usize::from(opcode)]),
        5 | 6 => Some(FULL),
        7 => Some(FULL.imm(Imm::Dword)),
        _ => None,
    }
}
