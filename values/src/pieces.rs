//! Values whose parts are in different places (DWARF 5, section 2.6.1.2).

use super::context::EvalContext;
use super::types::Ty;
use super::value::{Bytes, Data, MAX_SIZE, Unavailable, Value};
use backtrail_symbolizer::{Piece, ValueLocation};
use std::sync::Arc;

impl EvalContext<'_> {
    /// A value of its pieces, in order; what they leave over is nowhere.
    pub(crate) fn assembled(&self, pieces: &[Piece], ty: Ty) -> Value {
        if let [
            Piece {
                bits: None,
                bit_offset: 0,
                location: place,
            },
        ] = pieces
        {
            return self.in_place(place, ty);
        }
        let Some(size) = ty.size().filter(|size| *size <= MAX_SIZE) else {
            return Value::unavailable(
                ty,
                Unavailable::Unknown("it is in pieces, and its size is unknown".into()),
            );
        };
        let mut bytes = Bytes {
            bytes: vec![0; size as usize],
            unavailable: Vec::new(),
        };
        let (mut start, all) = (0, size * 8);
        for piece in pieces {
            let bits = piece.bits.unwrap_or(all).min(all - start);
            match self.piece(piece, bits) {
                Ok(found) => copy_bits(&found, piece.bit_offset % 8, &mut bytes.bytes, start, bits),
                Err(cause) => bytes.unavailable.push((start..start + bits, cause)),
            }
            start += bits;
        }
        if start < all {
            bytes.unavailable.push((start..all, Unavailable::OptimizedOut));
        }
        Value {
            ty,
            data: Data::Bytes(Arc::new(bytes), 0..size as usize),
            bits: None,
        }
    }

    /// Returns the bytes that contain the bits of a piece, from the byte of its first bit on.
    fn piece(&self, piece: &Piece, bits: u64) -> Result<Vec<u8>, Unavailable> {
        let too_large = || Unavailable::Unknown("a piece is larger than its location".into());
        let skipped = piece.bit_offset / 8;
        let length = (piece.bit_offset % 8 + bits).div_ceil(8) as usize;
        let part = |bytes: &[u8]| {
            let skipped = usize::try_from(skipped).ok();
            let found = skipped.and_then(|skipped| bytes.get(skipped..)?.get(..length));
            found.map(<[u8]>::to_vec).ok_or_else(too_large)
        };
        match &piece.location {
            ValueLocation::OptimizedOut => Err(Unavailable::OptimizedOut),
            ValueLocation::Unknown(why) => Err(Unavailable::Unknown(why.clone())),
            ValueLocation::Register(register) => {
                let end = usize::try_from(skipped).unwrap_or(usize::MAX);
                part(&self.register_bytes(*register, end.saturating_add(length))?)
            }
            ValueLocation::Memory(address) => {
                let mut out = vec![0; length];
                self.source.memory(address.wrapping_add(skipped), &mut out)?;
                Ok(out)
            }
            ValueLocation::Value(bytes) => part(bytes),
            ValueLocation::Bytes(bytes) => part(bytes),
            ValueLocation::ImplicitPointer { entry, offset } => {
                Err(Unavailable::ImplicitPointer(*entry, *offset))
            }
        }
    }
}

/// Copies bits, the lowest of a byte first, into zeroed memory.
fn copy_bits(from: &[u8], first: u64, to: &mut [u8], start: u64, bits: u64) {
    if [first, start, bits].iter().all(|part| part.is_multiple_of(8)) {
        let (from, to) = (
            from.get((first / 8) as usize..),
            to.get_mut((start / 8) as usize..),
        );
        if let (Some(from), Some(to)) = (from, to) {
            let bytes = to.iter_mut().zip(from).take((bits / 8) as usize);
            bytes.for_each(|(to, from)| *to = *from);
        }
        return;
    }
    for bit in 0..bits {
        let (source, target) = (first + bit, start + bit);
        let set = from
            .get((source / 8) as usize)
            .is_some_and(|byte| byte >> (source % 8) & 1 == 1);
        if let Some(byte) = to.get_mut((target / 8) as usize).filter(|_| set) {
            *byte |= 1 << (target % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_where_they_belong() {
        let mut to = [0; 4];
        copy_bits(&[0b1110_1000], 3, &mut to, 6, 5);
        assert_eq!(to, [0b0100_0000, 0b0000_0111, 0, 0]);
        copy_bits(&[0xab, 0xcd], 0, &mut to, 16, 16);
        assert_eq!(to, [0b0100_0000, 0b0000_0111, 0xab, 0xcd]);
        // Missing bytes are left unchanged.
        copy_bits(&[0xff], 4, &mut to, 30, 40);
        assert_eq!(to, [0b0100_0000, 0b0000_0111, 0xab, 0xcd]);
    }
}
