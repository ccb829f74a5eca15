//! Rearrangements of lanes, and changes of their sizes.

use super::arithmetic::saturated;
use super::lanes::{from_lanes, lane, set_lane, signed_lane};
use crate::state::{Vector, ones, sign_extend};

/// A rearrangement. Sizes of lanes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// `pshufd`, `vpermilps` by a constant: four lanes of four bytes in each 16 bytes.
    Dwords,
    /// `vpermilpd` by a constant.
    Qwords,
    /// `pshuflw` and `pshufhw`, by the first byte of the shuffled half.
    Words(u8),
    /// `pshufb`.
    Bytes,
    /// `shufps`.
    SelectDwords,
    /// `shufpd`.
    SelectQwords,
    /// `punpckl…`, `unpcklp…`.
    InterleaveLow,
    /// `punpckh…`, `unpckhp…`.
    InterleaveHigh,
    /// `packss…`: lanes of half the size, as signed numbers.
    PackSigned,
    /// `packus…`: lanes of half the size, as unsigned numbers.
    PackUnsigned,
    /// `palignr`.
    Align,
    /// `valignd` and `valignq`: lanes of the whole vectors.
    AlignLanes,
    /// `pblendw`, `blendp…`, `vpblendd`: lanes of the second by the bits of a constant.
    Blend,
    /// `pblendvb`, `blendvp…`: lanes of the second by the signs of the third.
    BlendBySigns,
    /// `vpermq`, `vpermpd` by a constant.
    PermuteQwords,
    /// `vpermd`, `vpermps` and the like: lanes of the second by the first.
    Permute,
    /// `vpermilp…` by a vector: lanes of the first by the second, in each 16 bytes.
    PermuteInLane,
    /// `vperm2i128`, `vperm2f128`.
    PermuteHalves,
    /// `vinserti128` and the like: the size of the part.
    InsertPart(u8),
    /// `vextracti128` and the like: the size of the part.
    ExtractPart(u8),
    /// `vshufi32x4` and the like.
    SelectParts,
    /// A lane, or a part of several lanes, in all places.
    Broadcast,
    /// `pmovzx…`: from lanes of this size.
    ExtendZero(u8),
    /// `pmovsx…`: from lanes of this size.
    ExtendSign(u8),
    /// `vpmov…`: to lanes of this size.
    Truncate(u8),
    /// `pslldq` by a constant.
    ShiftBytesLeft,
    /// `psrldq` by a constant.
    ShiftBytesRight,
    /// `pinsr…`.
    Insert,
    /// `pextr…`.
    Extract,
    /// `insertps`.
    InsertFloat,
    /// `movddup`, `movsldup`: even lanes twice.
    DuplicateEven,
    /// `movshdup`: odd lanes twice.
    DuplicateOdd,
}

/// The inputs of a rearrangement.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The first source.
    pub first: &'a Vector,
    /// The second source.
    pub second: &'a Vector,
    /// The third source.
    pub third: &'a Vector,
    /// The constant.
    pub constant: u8,
    /// The size of lanes in bytes.
    pub size: u8,
    /// The size of the result in bytes.
    pub length: u8,
}

impl Shuffle {
    /// Applies the rearrangement.
    pub fn apply(self, inputs: Inputs<'_>) -> Vector {
        let Inputs { size, length, .. } = inputs;
        match self {
            Self::ExtendZero(from) => from_lanes(length, size, |at| lane(inputs.second, at, from)),
            Self::ExtendSign(from) => from_lanes(length, size, |at| {
                sign_extend(lane(inputs.second, at, from), from)
            }),
            Self::Truncate(to) => {
                let count = usize::from(length / size);
                let mut result = [0; 64];
                for at in 0..count {
                    set_lane(&mut result, at, to, lane(inputs.second, at, size));
                }
                result
            }
            Self::Broadcast => {
                let size = usize::from(size);
                let mut result = [0; 64];
                for part in result[..usize::from(length)].chunks_mut(size) {
                    part.copy_from_slice(&inputs.second[..size]);
                }
                result
            }
            Self::Dwords | Self::Qwords | Self::Words(_) | Self::Bytes | Self::PermuteInLane => {
                self.within_parts(inputs)
            }
            Self::SelectDwords
            | Self::SelectQwords
            | Self::InterleaveLow
            | Self::InterleaveHigh
            | Self::PackSigned
            | Self::PackUnsigned
            | Self::Align
            | Self::ShiftBytesLeft
            | Self::ShiftBytesRight => self.of_two_parts(inputs),
            Self::Blend | Self::BlendBySigns | Self::DuplicateEven | Self::DuplicateOdd => {
                self.choose(inputs)
            }
            Self::Insert | Self::Extract | Self::InsertFloat => self.insert(inputs),
            _ => self.across(inputs),
        }
    }

    /// Rearranges lanes of one source within each 16 bytes.
    fn within_parts(self, inputs: Inputs<'_>) -> Vector {
        let Inputs {
            first,
            second,
            constant,
            size,
            length,
            ..
        } = inputs;
        let count = usize::from(16 / size);
        from_lanes(length, size, |at| {
            let (part, place) = (at - at % count, at % count);
            match self {
                Self::Dwords => lane(second, part + usize::from(constant >> (2 * place) & 3), size),
                Self::Qwords => lane(second, part + usize::from(constant >> (at % 8) & 1), size),
                Self::Words(start) => {
                    let start = usize::from(start / 2);
                    let chosen = match place.checked_sub(start) {
                        Some(order @ 0..4) => start + usize::from(constant >> (2 * order) & 3),
                        _ => place,
                    };
                    lane(second, part + chosen, size)
                }
                Self::Bytes => match lane(second, at, 1) {
                    index if index & 0x80 != 0 => 0,
                    index => lane(first, part + (index & 15) as usize, 1),
                },
                _ => {
                    let index = lane(second, at, size);
                    let index = if size == 8 { index >> 1 & 1 } else { index & 3 };
                    lane(first, part + index as usize, size)
                }
            }
        })
    }

    /// Makes each 16 bytes of the same 16 bytes of both sources.
    fn of_two_parts(self, inputs: Inputs<'_>) -> Vector {
        let Inputs {
            first,
            second,
            constant,
            size,
            length,
            ..
        } = inputs;
        let count = usize::from(16 / size);
        let shift = usize::from(constant);
        from_lanes(length, size, |at| {
            let (part, place) = (at - at % count, at % count);
            let byte = |offset: usize| match offset {
                0..16 => u64::from(second[part + offset]),
                16..32 => u64::from(first[part + offset - 16]),
                _ => 0,
            };
            match self {
                Self::SelectDwords => {
                    let index = part + usize::from(constant >> (2 * place) & 3);
                    lane(if place < 2 { first } else { second }, index, size)
                }
                Self::SelectQwords => {
                    let index = part + usize::from(constant >> (at % 8) & 1);
                    lane(if place == 0 { first } else { second }, index, size)
                }
                Self::InterleaveLow | Self::InterleaveHigh => {
                    let start = if matches!(self, Self::InterleaveLow) {
                        0
                    } else {
                        count / 2
                    };
                    let source = if place % 2 == 0 { first } else { second };
                    lane(source, part + start + place / 2, size)
                }
                Self::PackSigned | Self::PackUnsigned => {
                    let half = count / 2;
                    let source = if place < half { first } else { second };
                    let value = signed_lane(source, part / 2 + place % half, 2 * size);
                    if matches!(self, Self::PackSigned) {
                        saturated(value, size)
                    } else {
                        value.clamp(0, ones(size).cast_signed()).cast_unsigned()
                    }
                }
                Self::ShiftBytesLeft => match place.checked_sub(shift) {
                    Some(from) => u64::from(second[part + from]),
                    None => 0,
                },
                Self::ShiftBytesRight if place + shift < 16 => u64::from(second[part + place + shift]),
                Self::ShiftBytesRight => 0,
                _ => byte(place + shift),
            }
        })
    }

    /// Takes each lane from the same lane of a source, or from a neighbor.
    fn choose(self, inputs: Inputs<'_>) -> Vector {
        let Inputs {
            first,
            second,
            third,
            constant,
            size,
            length,
        } = inputs;
        from_lanes(length, size, |at| match self {
            Self::DuplicateEven => lane(second, at & !1, size),
            Self::DuplicateOdd => lane(second, at | 1, size),
            Self::Blend if constant >> (at % 8) & 1 != 0 => lane(second, at, size),
            Self::BlendBySigns if signed_lane(third, at, size) < 0 => lane(second, at, size),
            _ => lane(first, at, size),
        })
    }

    /// Takes lanes from all places.
    fn across(self, inputs: Inputs<'_>) -> Vector {
        let Inputs {
            first,
            second,
            constant,
            size,
            length,
            ..
        } = inputs;
        let count = usize::from(length / size);
        match self {
            Self::InsertPart(part) => {
                let mut result = [0; 64];
                let (length, part) = (usize::from(length), usize::from(part));
                result[..length].copy_from_slice(&first[..length]);
                let at = usize::from(constant) % (length / part) * part;
                result[at..at + part].copy_from_slice(&second[..part]);
                result
            }
            Self::ExtractPart(part) => {
                let mut result = [0; 64];
                let (length, part) = (usize::from(length), usize::from(part));
                let at = usize::from(constant) % (length / part) * part;
                result[..part].copy_from_slice(&second[at..at + part]);
                result
            }
            Self::PermuteHalves => {
                let mut result = [0; 64];
                for (half, bits) in [(0, constant), (1, constant >> 4)] {
                    if bits & 8 == 0 {
                        let source = if bits & 2 == 0 { first } else { second };
                        let at = 16 * usize::from(bits & 1);
                        result[16 * half..][..16].copy_from_slice(&source[at..at + 16]);
                    }
                }
                result
            }
            Self::SelectParts => {
                // Parts of 16 bytes: the lower half from the first, the upper from the second.
                let parts = usize::from(length / 16);
                let bits = if parts == 4 { 2 } else { 1 };
                let mut result = [0; 64];
                for part in 0..parts {
                    let chosen = usize::from(constant >> (bits * part)) % parts;
                    let source = if part < parts / 2 { first } else { second };
                    result[16 * part..][..16].copy_from_slice(&source[16 * chosen..][..16]);
                }
                result
            }
            _ => from_lanes(length, size, |at| match self {
                Self::AlignLanes => {
                    let from = at + usize::from(constant) % count;
                    match from.checked_sub(count) {
                        Some(from) => lane(first, from, size),
                        None => lane(second, from, size),
                    }
                }
                Self::PermuteQwords => {
                    let part = at & !3;
                    lane(second, part + usize::from(constant >> (2 * (at % 4)) & 3), size)
                }
                _ => {
                    let index = lane(first, at, size) as usize % count;
                    lane(second, index, size)
                }
            }),
        }
    }

    fn insert(self, inputs: Inputs<'_>) -> Vector {
        let Inputs {
            first,
            second,
            constant,
            size,
            ..
        } = inputs;
        let place = usize::from(constant) % usize::from(16 / size);
        if matches!(self, Self::Extract) {
            let mut result = [0; 64];
            set_lane(&mut result, 0, 8, lane(second, place, size));
            return result;
        }
        let mut result = [0; 64];
        result[..16].copy_from_slice(&first[..16]);
        if matches!(self, Self::Insert) {
            set_lane(&mut result, place, size, lane(second, 0, size));
            return result;
        }
        let value = lane(second, usize::from(constant >> 6), 4);
        set_lane(&mut result, usize::from(constant >> 4 & 3), 4, value);
        for at in 0..4 {
            if constant >> at & 1 != 0 {
                set_lane(&mut result, at, 4, 0);
            }
        }
        result
    }
}
