//! The fields of translated code that depend on the address of the program or of the code.

/// A field of machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressField {
    /// Eight bytes: an address of the program.
    Word,
    /// Four bytes with the upper half of an address of the program. The lower half follows seven
    /// bytes later.
    Halves,
    /// Eight bytes: the two's complement of an address of the program.
    Negated,
    /// Four bytes: the distance from an instruction to an address of the program.
    Distance,
}

/// The distance between the fields of [`AddressField::Halves`].
const LOWER_HALF: usize = 7;

impl AddressField {
    /// All kinds, in the order of their numbers in files.
    pub(super) const ALL: [Self; 4] = [Self::Word, Self::Halves, Self::Negated, Self::Distance];

    /// Adapts the field at offset `at` of `code`: the program has moved by `program` bytes, and the
    /// code by `moved`. Returns `None` if the field is out of bounds, or if the distance exceeds
    /// its field.
    pub(super) fn shift(self, code: &mut [u8], at: usize, program: u64, moved: u64) -> Option<()> {
        match self {
            Self::Word => add(code, at, program),
            Self::Negated => add(code, at, program.wrapping_neg()),
            Self::Halves => {
                let (upper, lower) = (half(code, at)?, half(code, at + LOWER_HALF)?);
                let word = (u64::from(upper) << 32 | u64::from(lower)).wrapping_add(program);
                put(code, at, (word >> 32) as u32)?;
                put(code, at + LOWER_HALF, word as u32)
            }
            Self::Distance => {
                let distance = i64::from(half(code, at)?.cast_signed());
                let distance = distance.wrapping_add(program.wrapping_sub(moved).cast_signed());
                put(code, at, i32::try_from(distance).ok()?.cast_unsigned())
            }
        }
    }
}

fn add(code: &mut [u8], at: usize, number: u64) -> Option<()> {
    let field: &mut [u8; 8] = code.get_mut(at..)?.first_chunk_mut()?;
    *field = u64::from_le_bytes(*field).wrapping_add(number).to_le_bytes();
    Some(())
}

fn half(code: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*code.get(at..)?.first_chunk()?))
}

fn put(code: &mut [u8], at: usize, half: u32) -> Option<()> {
    *code.get_mut(at..)?.first_chunk_mut()? = half.to_le_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::assembler::{Assembler, Scratch};

    /// Code with all fields, for a program address and a cache address.
    fn code(program: u64, cache: u64) -> Assembler {
        let mut code = Assembler::default();
        code.set_address(Scratch::Rax, program + 5);
        code.set_negated(Scratch::Rcx, program);
        code.log_word(2, program + 0xffff_fffe);
        let at = code.reserve_rel32();
        let distance = (program + 64).wrapping_sub(cache + code.len() as u64) as u32;
        put(&mut code.code, at, distance).unwrap();
        code.note_field(at, AddressField::Distance);
        code
    }

    #[test]
    fn moved_code_is_that_of_the_other_place() {
        let (program, cache) = (0x5555_5555_4000, 0x5555_7000_0000);
        let Assembler {
            code: mut moved,
            fields,
        } = code(program, cache);
        let kinds: Vec<_> = fields.iter().map(|(_, field)| *field).collect();
        assert_eq!(kinds.len(), AddressField::ALL.len());
        let (to, to_cache) = (0x7fff_f7c0_0000, 0x7fff_e000_0010);
        for (at, field) in &fields {
            field
                .shift(&mut moved, *at as usize, to - program, to_cache - cache)
                .unwrap();
        }
        assert_eq!(moved, code(to, to_cache).code);
    }

    #[test]
    fn distance_out_of_reach_is_refused() {
        let mut code = [0; 4];
        let shift = |code: &mut [u8], program| AddressField::Distance.shift(code, 0, program, 0);
        assert_eq!(shift(&mut code, i32::MAX as u64), Some(()));
        assert_eq!(shift(&mut code, 1), None);
        assert_eq!(AddressField::Word.shift(&mut code, 0, 1, 0), None);
    }
}
