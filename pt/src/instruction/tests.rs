//! Compares the tables with iced-x86, which decodes all valid instructions, and tests special
//! cases.

use super::*;
use iced_x86::{Decoder, DecoderOptions, EncodingKind};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const AT: Avma = Avma(0x1000);
const MODES: [Mode; 3] = [Mode::Bits64, Mode::Bits32, Mode::Bits16];

fn read64(code: &[u8]) -> Instruction {
    decode(code, AT, Mode::Bits64).unwrap()
}

fn cofi(code: &[u8], mode: Mode) -> Cofi {
    let instruction = decode(code, AT, mode).unwrap();
    assert_eq!(usize::from(instruction.len), code.len(), "{code:02x?}");
    instruction.cofi
}

fn role(code: &[u8]) -> Role {
    read64(code).role
}

/// Returns how iced-x86 differs from the tables, for a valid instruction.
fn difference(code: &[u8], mode: Mode) -> Option<String> {
    let bits = match mode {
        Mode::Bits64 => 64,
        Mode::Bits32 => 32,
        Mode::Bits16 => 16,
    };
    let iced = Decoder::with_ip(bits, code, AT.0, DecoderOptions::NONE).decode();
    if iced.is_invalid() || is_foreign(&iced) {
        return None;
    }
    let expected = Cofi::of(&iced);
    let ours = decode(code, AT, mode);
    let same = ours.is_ok_and(|ours| usize::from(ours.len) == iced.len() && ours.cofi == expected);
    (!same).then(|| {
        format!(
            "{code:02x?} {mode:?}: {ours:?}, iced {:?} {} {expected:?}",
            iced.code(),
            iced.len()
        )
    })
}

/// Returns whether this is an instruction of another vendor, whose processors have no PT.
fn is_foreign(iced: &iced_x86::Instruction) -> bool {
    matches!(iced.encoding(), EncodingKind::XOP | EncodingKind::D3NOW)
}

/// Returns the concatenated `parts`, padded with 0x11 to the size of a window.
fn padded(parts: &[&[u8]]) -> Window {
    let mut window = [0x11; 16];
    let bytes = parts.iter().copied().flatten();
    window.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    window
}

fn compare(codes: impl Iterator<Item = Window>) {
    let differences: Vec<_> = codes
        .flat_map(|code| MODES.map(|mode| difference(&code, mode)))
        .flatten()
        .take(20)
        .collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn every_opcode_and_modrm_matches_iced() {
    let prefixes: [&[u8]; 10] = [
        &[],
        &[0x66],
        &[0x67],
        &[0xf0],
        &[0xf2],
        &[0xf3],
        &[0x48],
        &[0x66, 0x48],
        &[0x66, 0xf2],
        &[0x48, 0x66],
    ];
    let maps: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    compare(prefixes.iter().flat_map(|prefix| {
        maps.iter().flat_map(move |map| {
            (0..=0xffff_u16).map(move |pair| {
                let [opcode, modrm] = pair.to_be_bytes();
                // The base is a register, or a displacement if `mod` is 0.
                let sib = 0x24 | (opcode ^ modrm >> 3) & 1;
                padded(&[prefix, map, &[opcode, modrm, sib]])
            })
        })
    }));
}

#[test]
fn every_vector_opcode_matches_iced() {
    // The inverted R, X and B above the map. In 32-bit code they must be ones.
    let maps = (0x60..0x70).chain(0xe0..=0xff);
    let pairs = maps.flat_map(|map| (0..=0xff).map(move |opcode| (map, opcode)));
    compare(pairs.flat_map(|(map, opcode)| {
        [0x05, 0x44, 0x84, 0xc0, 0xd1, 0xf8]
            .into_iter()
            .flat_map(move |modrm| {
                (0..8).flat_map(move |last| {
                    let last = last & 3 | (last & 4) << 5;
                    [
                        padded(&[&[0xc5, map, opcode, modrm, 0x24]]),
                        padded(&[&[0xc4, map, 0x78 | last, opcode, modrm, 0x24]]),
                        padded(&[&[0x62, map, 0x7c | last, 0x08, opcode, modrm, 0x24]]),
                        padded(&[&[0x62, map, 0x7c | last, 0x49, opcode, modrm, 0x25]]),
                    ]
                })
            })
    }));
}

/// Generates prefixes, an opcode map and random bytes.
fn structured() -> impl Strategy<Value = Vec<u8>> {
    let prefix = select(vec![
        0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x40, 0x44, 0x48, 0x4f,
    ]);
    let maps: [&[u8]; 7] = [
        &[],
        &[0x0f],
        &[0x0f, 0x38],
        &[0x0f, 0x3a],
        &[0xc5],
        &[0xc4],
        &[0x62],
    ];
    let map = subsequence(maps.to_vec(), 1).prop_map(|one| one.concat());
    (vec(prefix, 0..5), map, vec(any::<u8>(), 16)).prop_map(|(prefixes, map, rest)| {
        let mut code = [prefixes, map, rest].concat();
        code.truncate(16);
        code
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_bytes_match_iced(code in vec(any::<u8>(), 16)) {
        for mode in MODES {
            prop_assert_eq!(difference(&code, mode), None);
        }
    }

    #[test]
    fn random_instructions_match_iced(code in structured()) {
        for mode in MODES {
            prop_assert_eq!(difference(&code, mode), None);
        }
    }

    #[test]
    fn shorter_input_decodes_equally_or_is_truncated(code in structured()) {
        for mode in MODES {
            let whole = decode(&code, AT, mode);
            prop_assert_ne!(whole, Err(DecodeError::Truncated));
            for len in 0..code.len() {
                let part = decode(&code[..len], AT, mode);
                let enough = whole.is_ok_and(|whole| usize::from(whole.len) <= len);
                if enough || part != Err(DecodeError::Truncated) {
                    prop_assert_eq!(part, whole);
                }
                prop_assert!(len < MAX_LEN || part == whole);
            }
        }
    }
}

#[test]
fn each_change_of_flow_is_recognized() {
    let long = Mode::Bits64;
    assert_eq!(cofi(&[0x90], long), Cofi::Sequential);
    assert_eq!(
        cofi(&[0x74, 0x10], long),
        Cofi::Conditional { target: Avma(0x1012) }
    );
    assert_eq!(
        cofi(&[0x0f, 0x85, 0xfa, 0xff, 0xff, 0xff], long),
        Cofi::Conditional { target: AT }
    );
    assert_eq!(cofi(&[0xe3, 0xfe], long), Cofi::Conditional { target: AT });
    assert_eq!(cofi(&[0xeb, 0x00], long), Cofi::Jump { target: Avma(0x1002) });
    let before = Avma(0x1005u64.wrapping_sub(0x2000));
    assert_eq!(
        cofi(&[0xe8, 0x00, 0xe0, 0xff, 0xff], long),
        Cofi::Call { target: before }
    );
    assert_eq!(cofi(&[0xe9, 0xfd, 0xff], Mode::Bits16), Cofi::Jump { target: AT });
    assert_eq!(cofi(&[0xff, 0x64, 0x24, 0x08], long), Cofi::IndirectJump);
    assert_eq!(cofi(&[0x41, 0xff, 0xd0], long), Cofi::IndirectCall);
    assert_eq!(cofi(&[0xff, 0x30], long), Cofi::Sequential);
    assert_eq!(cofi(&[0xf3, 0xc3], long), Cofi::Return);
    assert_eq!(cofi(&[0xc2, 8, 0], long), Cofi::Return);
    let far: [&[u8]; 8] = [
        &[0x0f, 0x05],
        &[0x0f, 0x34],
        &[0xcc],
        &[0xf1],
        &[0xcd, 0x80],
        &[0xcb],
        &[0xff, 0x28],
        &[0x0f, 0x01, 0xc1],
    ];
    for code in far {
        assert_eq!(cofi(code, long), Cofi::FarTransfer, "{code:02x?}");
    }
    let pointer = [0x9a, 0, 0, 0, 0, 0, 0];
    assert_eq!(cofi(&pointer, long), Cofi::Sequential);
    assert_eq!(cofi(&pointer, Mode::Bits32), Cofi::FarTransfer);
    assert_eq!(cofi(&pointer[..5], Mode::Bits16), Cofi::FarTransfer);
}

#[test]
fn each_role_is_recognized() {
    assert_eq!(role(&[0x90]), Role::Plain);
    assert_eq!(role(&[0xf3, 0x48, 0x0f, 0xae, 0xe0]), Role::Ptwrite);
    assert_eq!(role(&[0x0f, 0xae, 0x20]), Role::Plain, "XSAVE");
    assert_eq!(role(&[0x0f, 0x22, 0xd8]), Role::WritesCr3);
    assert_eq!(role(&[0x44, 0x0f, 0x22, 0xd8]), Role::Plain, "CR11");
    assert_eq!(role(&[0x0f, 0x22, 0xe0]), Role::Plain, "CR4");
    assert_eq!(role(&[0x0f, 0x01, 0xc2]), Role::EntersVm);
    assert_eq!(role(&[0x0f, 0x01, 0xc3]), Role::EntersVm);
    assert_eq!(role(&[0x48, 0xcf]), Role::ReturnsFromInterrupt);
    assert_eq!(role(&[0x48, 0x0f, 0x07]), Role::ReturnsFromInterrupt);
    assert_eq!(role(&[0x0f, 0x35]), Role::ReturnsFromInterrupt);
    assert_eq!(role(&[0xf3, 0x0f, 0x01, 0xec]), Role::ReturnsFromUserInterrupt);
    assert_eq!(
        role(&[0xf2, 0x0f, 0x01, 0xca]),
        Role::ReturnsFromInterrupt,
        "ERETS"
    );
    assert_eq!(
        role(&[0xf3, 0x0f, 0x01, 0xca]),
        Role::ReturnsFromInterrupt,
        "ERETU"
    );
    assert_eq!(role(&[0x0f, 0x01, 0xca]), Role::Plain, "CLAC");
    assert_eq!(role(&[0xd5, 0x80, 0x22, 0xd8]), Role::WritesCr3, "with REX2");
    assert_eq!(role(&[0xd5, 0xc0, 0x22, 0xd8]), Role::Plain, "CR19");
}

/// APX architecture specification, "REX2 prefix", "JMPABS", "Promoted legacy instructions".
#[test]
fn apx_prefixes_have_their_length_and_flow() {
    let long = Mode::Bits64;
    // MOV r16, [r17 + disp8]; MOV r16d, imm32; MOV r16, imm64; PUSH r16.
    for code in [
        &[0xd5, 0x58, 0x8b, 0x41, 0x08][..],
        &[0xd5, 0x10, 0xb8, 1, 2, 3, 4],
        &[0xd5, 0x18, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xd5, 0x10, 0x50],
        // MOVZX r16d, byte [rax]; the second map is in the prefix.
        &[0xd5, 0xc0, 0xb6, 0x00],
        // A relative branch is invalid with REX2.
        &[0xd5, 0x00, 0xe8, 0, 0, 0, 0],
        &[0xd5, 0x00, 0x74, 0],
        &[0xd5, 0x80, 0x85, 0, 0, 0, 0],
        // MOV AL, moffs64 and MOV RAX, moffs64 are not JMPABS.
        &[0xd5, 0x00, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xd5, 0x08, 0xa1, 1, 2, 3, 4, 5, 6, 7, 8],
        // ADD r16, r17, imm32; TEST r16, imm32; SHLD r16, r17, imm8 in map 4.
        &[0x62, 0xfc, 0x7c, 0x18, 0x81, 0xc1, 1, 2, 3, 4],
        &[0x62, 0xfc, 0x7c, 0x08, 0xf7, 0xc0, 1, 2, 3, 4],
        &[0x62, 0xfc, 0x7c, 0x18, 0x24, 0xc1, 7],
        // With 16-bit operands.
        &[0x62, 0xfc, 0x7d, 0x18, 0x81, 0xc1, 1, 2],
    ] {
        assert_eq!(cofi(code, long), Cofi::Sequential, "{code:02x?}");
    }
    let jump = [0xd5, 0x00, 0xa1, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(cofi(&jump, long), Cofi::IndirectJump);
    assert_eq!(cofi(&[0xd5, 0x11, 0xff, 0xd0], long), Cofi::IndirectCall);
    assert_eq!(cofi(&[0xd5, 0x11, 0xff, 0xe0], long), Cofi::IndirectJump);
    assert_eq!(cofi(&[0xd5, 0x00, 0xc3], long), Cofi::Return);
    // AAD in 32-bit code.
    assert_eq!(cofi(&[0xd5, 0x0a], Mode::Bits32), Cofi::Sequential);
    assert_eq!(
        decode(&[0xd5, 0x10, 0xb8, 1], AT, long),
        Err(DecodeError::Truncated)
    );
}

/// SDM volume 3, "VMX Instruction Reference": only VMPTRLD loads a VMCS. libipt treats all three as
/// VMPTRLD.
#[test]
fn only_vmptrld_loads_a_vmcs() {
    assert_eq!(role(&[0x0f, 0xc7, 0x30]), Role::LoadsVmcs);
    assert_eq!(role(&[0x66, 0x0f, 0xc7, 0x30]), Role::Plain, "VMCLEAR");
    assert_eq!(role(&[0xf3, 0x0f, 0xc7, 0x30]), Role::Plain, "VMXON");
    assert_eq!(role(&[0x0f, 0xc7, 0xf0]), Role::Plain, "RDRAND");
}

#[test]
fn invalid_code_has_the_length_of_libipt() {
    for (code, mode, len) in [
        (&[0x06][..], Mode::Bits64, 1),
        (&[0x0f, 0x04], Mode::Bits64, 2),
        (&[0x8f, 0xe8, 0x24], Mode::Bits64, 2),
        (&[0xd5, 0x10], Mode::Bits32, 2),
        (&[0xc4, 0x05, 0x78, 0x90], Mode::Bits64, 4),
        (&[0xc7, 0x38, 1, 2, 3, 4], Mode::Bits64, 6),
        (&[0xc7, 0x78, 1], Mode::Bits64, 3),
        (&[0x48, 0x66, 0xb8, 1, 2], Mode::Bits64, 5),
        (&[0x62, 0x30], Mode::Bits32, 2),
    ] {
        assert_eq!(decode(code, AT, mode).unwrap().len, len, "{code:02x?}");
    }
}

#[test]
fn code_without_length_is_invalid() {
    for code in [
        &[0x0f, 0x39][..],
        &[0xc4, 0xe0, 0x78],
        &[0xc4, 0xe8, 0x78],
        &[0x62, 0xf0, 0x7c],
        &[0x66; 15],
        &[0x66; 20],
        // Sixteen bytes, according to the opcode and ModRM byte.
        &[
            0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x81, 0x80,
        ],
    ] {
        assert_eq!(
            decode(code, AT, Mode::Bits64),
            Err(DecodeError::Invalid),
            "{code:02x?}"
        );
    }
    assert_eq!(decode(&[], AT, Mode::Bits64), Err(DecodeError::Truncated));
    assert_eq!(decode(&[0x66; 14], AT, Mode::Bits64), Err(DecodeError::Truncated));
}
