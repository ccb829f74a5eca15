//! Lanes of vector registers: numbers of one size, side by side.

use crate::state::{Vector, sign_extend};

/// Returns the number in a lane of `size` bytes, at most eight.
pub fn lane(vector: &Vector, at: usize, size: u8) -> u64 {
    let mut bytes = [0; 8];
    let size = usize::from(size);
    bytes[..size].copy_from_slice(&vector[at * size..(at + 1) * size]);
    u64::from_le_bytes(bytes)
}

/// Returns the number in a lane with its sign.
pub fn signed_lane(vector: &Vector, at: usize, size: u8) -> i64 {
    sign_extend(lane(vector, at, size), size).cast_signed()
}

/// Writes the low `size` bytes of a number to a lane.
pub fn set_lane(vector: &mut Vector, at: usize, size: u8, value: u64) {
    let size = usize::from(size);
    vector[at * size..(at + 1) * size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Returns a vector whose lanes are computed by their number.
pub fn from_lanes(length: u8, size: u8, mut value: impl FnMut(usize) -> u64) -> Vector {
    let mut result = [0; 64];
    for at in 0..usize::from(length / size) {
        set_lane(&mut result, at, size, value(at));
    }
    result
}

/// Returns a number as a vector.
pub fn from_number(value: u64) -> Vector {
    let mut result = [0; 64];
    result[..8].copy_from_slice(&value.to_le_bytes());
    result
}
