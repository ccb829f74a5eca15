//! Sums over neighboring lanes.

use super::arithmetic::saturated;
use super::lanes::{from_lanes, lane, signed_lane};
use crate::state::Vector;

/// A sum over neighboring lanes. The size of a lane is that of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// `pmaddwd`: products of two signed pairs.
    Products,
    /// `pmaddubsw`: products of two pairs, the first unsigned, the second signed.
    MixedProducts,
    /// `psadbw`: absolute differences of eight bytes.
    Differences,
    /// `phadd…`.
    Horizontal,
    /// `phsub…`.
    HorizontalDifference,
    /// `phaddsw`.
    HorizontalSigned,
    /// `phsubsw`.
    HorizontalDifferenceSigned,
}

impl Sum {
    /// Applies the operation.
    pub fn apply(self, first: &Vector, second: &Vector, size: u8, length: u8) -> Vector {
        let half = size / 2;
        match self {
            Self::Products => from_lanes(length, size, |at| {
                let product = |at| signed_lane(first, at, half) * signed_lane(second, at, half);
                (product(2 * at) + product(2 * at + 1)).cast_unsigned()
            }),
            Self::MixedProducts => from_lanes(length, size, |at| {
                let product = |at| lane(first, at, half).cast_signed() * signed_lane(second, at, half);
                saturated(product(2 * at) + product(2 * at + 1), size)
            }),
            Self::Differences => from_lanes(length, 8, |at| {
                let bytes = 8 * at..8 * (at + 1);
                let pairs = first[bytes.clone()].iter().zip(&second[bytes]);
                pairs.map(|(left, right)| u64::from(left.abs_diff(*right))).sum()
            }),
            _ => {
                let count = usize::from(16 / size);
                from_lanes(length, size, |at| {
                    let (part, place) = (at - at % count, at % count);
                    let source = if place < count / 2 { first } else { second };
                    let from = part + place * 2 % count;
                    let (left, right) = (
                        signed_lane(source, from, size),
                        signed_lane(source, from + 1, size),
                    );
                    match self {
                        Self::Horizontal => left.wrapping_add(right).cast_unsigned(),
                        Self::HorizontalDifference => left.wrapping_sub(right).cast_unsigned(),
                        Self::HorizontalSigned => saturated(left + right, size),
                        _ => saturated(left - right, size),
                    }
                })
            }
        }
    }
}
