//! Comparisons of texts in vector registers: `pcmpistri` and its relatives (SDM, volume 2, section
//! 4.1).

use super::machine::{Done, Machine};
use super::vector::lanes::{lane, set_lane};
use crate::memory::{Memory, Stop};
use crate::operand::Operand;
use crate::state::{State, flag};

/// The numbers of RAX, RCX and RDX.
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
/// The size of a text in bytes.
const TEXT: usize = 16;

/// A comparison of two texts. The operands are the first text and the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextCompare {
    /// The constant in the instruction.
    pub constant: u8,
    /// The size of the lengths in RAX and RDX in bytes. `None`: a zero element ends a text.
    pub length: Option<u8>,
    /// Whether the result is an index in ECX. Otherwise, it is a mask in XMM0.
    pub is_index: bool,
    /// Whether the bytes of the vector register above the mask are kept.
    pub keeps_upper: bool,
}

/// The two texts, as numbers in order.
struct Texts {
    first: [i32; TEXT],
    second: [i32; TEXT],
    /// The number of valid elements.
    lengths: [usize; 2],
    /// The number of elements that fit.
    count: usize,
}

impl TextCompare {
    /// Applies the operation.
    pub fn execute<M: Memory>(self, operands: &[Operand; 4], machine: &mut Machine<'_, M>) -> Done<M> {
        let [first, second, ..] = *operands;
        let texts = self.texts(&read(first, machine)?, &read(second, machine)?, machine.state);
        let all = u32::MAX >> (32 - texts.count);
        let found = self.negated(self.compared(&texts), &texts) & all;
        let state = &mut *machine.state;
        if self.is_index {
            let index = match found {
                0 => texts.count as u64,
                _ if self.constant & 0x40 == 0 => found.trailing_zeros().into(),
                _ => found.ilog2().into(),
            };
            state.general[RCX] = index;
        } else {
            self.write_mask(found, texts.count, state);
        }
        let mut flags = 0;
        for (is_set, flag) in [
            (found != 0, flag::CARRY),
            (texts.lengths[1] < texts.count, flag::ZERO),
            (texts.lengths[0] < texts.count, flag::SIGN),
            (found & 1 != 0, flag::OVERFLOW),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        state.set_flags(flag::STATUS, flags);
        Ok(())
    }

    /// Returns the size of an element in bytes.
    const fn size(self) -> u8 {
        1 + (self.constant & 1)
    }

    fn texts(self, first: &[u8; 64], second: &[u8; 64], state: &State) -> Texts {
        let size = self.size();
        let count = TEXT / usize::from(size);
        let elements = |text: &[u8; 64]| {
            std::array::from_fn(|at| {
                if at >= count {
                    return 0;
                }
                let value = lane(text, at, size) as u16;
                match self.constant & 3 {
                    2 => i32::from(value as u8 as i8),
                    3 => i32::from(value as i16),
                    _ => i32::from(value),
                }
            })
        };
        let (first, second): ([i32; TEXT], [i32; TEXT]) = (elements(first), elements(second));
        let explicit = |register: usize, size: u8| {
            let value = state.general[register];
            let length = match size {
                4 => u64::from((value as i32).unsigned_abs()),
                _ => (value as i64).unsigned_abs(),
            };
            length.min(count as u64) as usize
        };
        let implicit = |text: &[i32; TEXT]| text[..count].iter().take_while(|&&one| one != 0).count();
        let lengths = match self.length {
            Some(size) => [explicit(RAX, size), explicit(RDX, size)],
            None => [implicit(&first), implicit(&second)],
        };
        Texts {
            first,
            second,
            lengths,
            count,
        }
    }

    /// Returns a bit for each element of the second text.
    fn compared(self, texts: &Texts) -> u32 {
        let Texts {
            first,
            second,
            lengths: [first_length, second_length],
            count,
        } = texts;
        let (set, text) = (&first[..*first_length], &second[..*second_length]);
        let has = |at: usize| match self.constant >> 2 & 3 {
            0 => text.get(at).is_some_and(|one| set.contains(one)),
            1 => text.get(at).is_some_and(|one| {
                let pairs = set.chunks_exact(2);
                pairs.into_iter().any(|pair| (pair[0]..=pair[1]).contains(one))
            }),
            2 => set.get(at) == text.get(at),
            _ => {
                let places = (at..*count).zip(set);
                places.into_iter().all(|(at, one)| text.get(at) == Some(one))
            }
        };
        (0..*count).fold(0, |bits, at| bits | u32::from(has(at)) << at)
    }

    /// Negates the bits that the constant names: none, all, or those of valid elements.
    const fn negated(self, bits: u32, texts: &Texts) -> u32 {
        match self.constant >> 4 & 3 {
            1 => !bits,
            3 => bits ^ ((1_u32 << texts.lengths[1]) - 1),
            _ => bits,
        }
    }

    fn write_mask(self, found: u32, count: usize, state: &mut State) {
        let target = &mut state.vectors[0];
        let cleared = if self.keeps_upper { TEXT } else { target.len() };
        target[..cleared].fill(0);
        if self.constant & 0x40 == 0 {
            target[..4].copy_from_slice(&found.to_le_bytes());
        } else {
            for at in (0..count).filter(|at| found >> at & 1 != 0) {
                set_lane(target, at, self.size(), u64::MAX);
            }
        }
    }
}

/// Returns the 16 bytes of an operand.
fn read<M: Memory>(operand: Operand, machine: &mut Machine<'_, M>) -> Done<M, [u8; 64]> {
    let mut text = [0; 64];
    match operand {
        Operand::Vector(number) => {
            text[..TEXT].copy_from_slice(&machine.state.vectors[usize::from(number & 31)][..TEXT]);
        }
        Operand::Memory { address, .. } => machine
            .memory
            .load(address.linear(machine.state), &mut text[..TEXT])
            .map_err(Stop::Memory)?,
        _ => {}
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::memory::NoMemory;
    use iced_x86::{Decoder, DecoderOptions};
    use proptest::prelude::*;
    use std::arch::x86_64 as native;

    /// The results of the processor: the index of `pcmpestri`, its flags, and the mask of
    /// `pcmpestrm`.
    type Results = (u64, u64, [u8; TEXT]);

    #[target_feature(enable = "sse4.2")]
    fn of_processor<const CONSTANT: i32>(texts: [[u8; TEXT]; 2], lengths: [i32; 2]) -> Results {
        let [first, second] = texts.map(|text| {
            // SAFETY: any bits are a valid vector.
            unsafe { std::mem::transmute::<[u8; TEXT], native::__m128i>(text) }
        });
        let [la, lb] = lengths;
        let index = native::_mm_cmpestri::<CONSTANT>(first, la, second, lb);
        let flags = [
            (
                native::_mm_cmpestrc::<CONSTANT>(first, la, second, lb),
                flag::CARRY,
            ),
            (
                native::_mm_cmpestrz::<CONSTANT>(first, la, second, lb),
                flag::ZERO,
            ),
            (
                native::_mm_cmpestrs::<CONSTANT>(first, la, second, lb),
                flag::SIGN,
            ),
            (
                native::_mm_cmpestro::<CONSTANT>(first, la, second, lb),
                flag::OVERFLOW,
            ),
        ];
        let flags = flags.iter().map(|(is_set, flag)| *is_set as u64 * flag).sum();
        let mask = native::_mm_cmpestrm::<CONSTANT>(first, la, second, lb);
        // SAFETY: any bits are valid bytes.
        let mask = unsafe { std::mem::transmute::<native::__m128i, [u8; TEXT]>(mask) };
        (index as u64, flags, mask)
    }

    fn of_model(constant: u8, texts: [[u8; TEXT]; 2], lengths: [i32; 2]) -> Results {
        let mut state = State::default();
        for (vector, text) in state.vectors[1..].iter_mut().zip(texts) {
            vector[..TEXT].copy_from_slice(&text);
        }
        (state.general[RAX], state.general[RDX]) = (lengths[0] as u64, lengths[1] as u64);
        // pcmpestri and pcmpestrm xmm1, xmm2
        for opcode in [0x61, 0x60] {
            let code = [0x66, 0x0f, 0x3a, opcode, 0xca, constant];
            let instruction = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE).decode();
            let model = Model::of(&instruction).unwrap();
            model.execute(&mut state, &mut NoMemory).unwrap();
        }
        let mask = std::array::from_fn(|at| state.vectors[0][at]);
        (state.general[RCX], state.flags & flag::STATUS, mask)
    }

    macro_rules! compare {
        ($texts:expr, $lengths:expr, $($constant:literal)*) => {
            $(
                // SAFETY: the caller has checked that the processor has SSE4.2.
                let expected = unsafe { of_processor::<$constant>($texts, $lengths) };
                prop_assert_eq!(of_model($constant, $texts, $lengths), expected, "{:#x}", $constant);
            )*
        };
    }

    /// Few different elements, so that many are equal.
    fn text() -> impl Strategy<Value = [u8; TEXT]> {
        proptest::array::uniform16(prop_oneof![0_u8..4, 0xfe_u8..=0xff])
    }

    proptest! {
        #[test]
        fn comparisons_are_those_of_the_processor(
            first in text(), second in text(), lengths in proptest::array::uniform2(-18_i32..19)
        ) {
            if !is_x86_feature_detected!("sse4.2") {
                return Ok(());
            }
            let texts = [first, second];
            compare!(texts, lengths, 0x00 0x01 0x02 0x03 0x04 0x05 0x06 0x07 0x08 0x09 0x0a 0x0b 0x0c
                0x0d 0x0e 0x0f 0x10 0x11 0x14 0x16 0x17 0x18 0x1c 0x1d 0x24 0x30 0x31 0x34 0x37 0x38
                0x3a 0x3c 0x3d 0x40 0x44 0x45 0x47 0x48 0x4c 0x50 0x54 0x5c 0x70 0x71 0x75 0x7c 0x7f);
        }
    }
}
