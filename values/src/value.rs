//! A value: its type, and its bytes or where they are.

use super::source::ValueSource;
use super::types::{Shape, Ty};
use backtrail_symbolizer::{EntryId, Unknown};
use std::ops::Range;
use std::sync::Arc;

/// A larger value is not read at once, as GDB's `max-value-size` has it.
pub const MAX_SIZE: u64 = 1 << 16;

/// A value.
#[derive(Clone)]
pub struct Value {
    /// Its type.
    pub ty: Ty,
    /// Its bytes.
    pub data: Data,
    /// The bits of it that are meant, of the bytes: those of a bit field.
    pub bits: Option<BitField>,
}

/// The place of a bit field in the bytes around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// From the first bit of the first byte.
    pub offset: u64,
    /// The count.
    pub size: u64,
}

/// The bytes of a value.
#[derive(Clone)]
pub enum Data {
    /// The bytes at an address, read on demand.
    Memory(u64),
    /// These, of which some may not be known.
    Bytes(Arc<Bytes>, Range<usize>),
    /// None of them is known.
    Unavailable(Unavailable),
}

/// Bytes out of registers and pieces.
#[derive(Default)]
pub struct Bytes {
    /// Zero where they are not known.
    pub bytes: Vec<u8>,
    /// Which bits are not known of them, and why.
    pub unavailable: Vec<(Range<u64>, Unavailable)>,
}

/// The reason why bytes are unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum Unavailable {
    /// They are nowhere.
    OptimizedOut,
    /// For this reason.
    Unknown(Unknown),
    /// They would be a pointer to a variable that is in no memory.
    ImplicitPointer(EntryId, i64),
}

impl Unavailable {
    /// As it is shown in the place of a value.
    pub fn text(&self) -> String {
        match self {
            Self::OptimizedOut => "<optimized out>".to_owned(),
            Self::Unknown(why) => format!("<unknown: {why}>"),
            Self::ImplicitPointer(..) => "<synthetic pointer>".to_owned(),
        }
    }
}

impl Unavailable {
    /// The reason why there is no value.
    pub fn reason(&self) -> String {
        match self {
            Self::OptimizedOut => "optimized out".to_owned(),
            Self::Unknown(why) => why.to_string(),
            Self::ImplicitPointer(..) => "it points to a variable that is not in memory".to_owned(),
        }
    }
}

impl From<Unknown> for Unavailable {
    fn from(why: Unknown) -> Self {
        Self::Unknown(why)
    }
}

impl Value {
    /// Returns a value of known bytes.
    pub fn new(ty: Ty, bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        let bytes = Bytes {
            bytes,
            unavailable: Vec::new(),
        };
        Self {
            ty,
            data: Data::Bytes(Arc::new(bytes), 0..length),
            bits: None,
        }
    }

    /// A number.
    pub fn number(ty: Ty, number: i128) -> Self {
        let size = ty.size().unwrap_or(8).min(16) as usize;
        let bytes = number.to_le_bytes();
        Self::new(ty, bytes.get(..size).unwrap_or_default().to_vec())
    }

    /// In memory.
    pub fn at(ty: Ty, address: u64) -> Self {
        Self {
            ty,
            data: Data::Memory(address),
            bits: None,
        }
    }

    /// Not known.
    pub fn unavailable(ty: Ty, cause: Unavailable) -> Self {
        Self {
            ty,
            data: Data::Unavailable(cause),
            bits: None,
        }
    }

    /// The address, if it is in memory.
    pub fn address(&self) -> Option<u64> {
        match self.data {
            Data::Memory(address) if self.bits.is_none() => Some(address),
            _ => None,
        }
    }

    /// The number of bits that count of its bytes, of which it has `size`.
    pub fn bit_count(&self, size: usize) -> u64 {
        match (self.bits, self.ty.shape()) {
            (Some(bits), _) => bits.size,
            (None, Shape::Base(base)) => base.bits,
            (None, _) => size as u64 * 8,
        }
    }

    /// A part of it, `offset` bytes from its start.
    pub fn part(&self, ty: Ty, offset: u64) -> Self {
        let data = match &self.data {
            Data::Memory(address) => Data::Memory(address.wrapping_add(offset)),
            Data::Bytes(bytes, range) => {
                let start = usize::try_from(offset)
                    .ok()
                    .and_then(|offset| range.start.checked_add(offset))
                    .map_or(range.end, |start| start.min(range.end));
                Data::Bytes(Arc::clone(bytes), start..range.end)
            }
            Data::Unavailable(cause) => Data::Unavailable(cause.clone()),
        };
        Self { ty, data, bits: None }
    }

    /// The same bytes as another type.
    pub fn with_type(&self, ty: Ty) -> Self {
        Self { ty, ..self.clone() }
    }

    /// Its first `size` bytes.
    pub fn read(&self, source: &dyn ValueSource, size: u64) -> Result<Vec<u8>, Unavailable> {
        self.read_for(source, size, 0..size.saturating_mul(8))
    }

    /// Its first `size` bytes, of which these bits are meant.
    fn read_for(
        &self,
        source: &dyn ValueSource,
        size: u64,
        meant: Range<u64>,
    ) -> Result<Vec<u8>, Unavailable> {
        if size > MAX_SIZE {
            return Err(Unavailable::Unknown(
                format!("it has {size} bytes, more than the limit for one value").into(),
            ));
        }
        let size = size as usize;
        match &self.data {
            Data::Memory(address) => {
                let mut out = vec![0; size];
                source.memory(*address, &mut out)?;
                Ok(out)
            }
            Data::Bytes(bytes, range) => {
                let wanted = range.start..range.start.saturating_add(size);
                let before = range.start as u64 * 8;
                let meant = before + meant.start..before + meant.end;
                let cause = bytes
                    .unavailable
                    .iter()
                    .find(|(bits, _)| bits.start < meant.end && meant.start < bits.end);
                if let Some((_, cause)) = cause {
                    return Err(cause.clone());
                }
                let found = bytes.bytes.get(wanted).filter(|_| range.len() >= size);
                found
                    .map(<[u8]>::to_vec)
                    .ok_or_else(|| Unavailable::Unknown("its location is smaller than its type".into()))
            }
            Data::Unavailable(cause) => Err(cause.clone()),
        }
    }

    /// Returns whether some of its bytes are known and in no memory.
    pub fn has_known_bytes(&self) -> bool {
        let (Data::Bytes(bytes, range), Some(size)) = (&self.data, self.ty.size()) else {
            return false;
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(range.len());
        (range.start..range.start.saturating_add(size)).any(|byte| {
            let first = byte as u64 * 8;
            let is_missing =
                |(bits, _): &(Range<u64>, Unavailable)| bits.start < first + 8 && first < bits.end;
            byte < bytes.bytes.len() && !bytes.unavailable.iter().any(is_missing)
        })
    }

    /// Its bytes as its type has them.
    pub fn bytes(&self, source: &dyn ValueSource) -> Result<Vec<u8>, Unavailable> {
        let size = self
            .ty
            .size()
            .ok_or_else(|| Unavailable::Unknown("the size of its type is not known".into()))?;
        match self.bits {
            None => self.read(source, size),
            Some(bits) => {
                let end = bits.offset.saturating_add(bits.size);
                let around = self.read_for(source, end.div_ceil(8), bits.offset..end)?;
                Ok(extracted(&around, bits, size))
            }
        }
    }
}

/// The bits of a field as a number of `size` bytes, not extended by its sign.
fn extracted(around: &[u8], bits: BitField, size: u64) -> Vec<u8> {
    let mut out = vec![0u8; usize::try_from(size).unwrap_or(0).min(16)];
    for bit in 0..bits.size.min(128) {
        let from = bits.offset.saturating_add(bit);
        let set = around
            .get((from / 8) as usize)
            .is_some_and(|byte| byte >> (from % 8) & 1 == 1);
        if let Some(byte) = out.get_mut((bit / 8) as usize).filter(|_| set) {
            *byte |= 1 << (bit % 8);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::NoSource;

    #[test]
    fn bits_are_taken_out() {
        let bits = BitField { offset: 3, size: 7 };
        assert_eq!(
            extracted(&[0b1010_1000, 0b0000_0010], bits, 4),
            [0b0101_0101, 0, 0, 0]
        );
    }

    #[test]
    fn a_gap_hides_what_it_covers_and_nothing_else() {
        let bytes = Bytes {
            bytes: vec![1, 2, 3, 4],
            unavailable: vec![(16..32, Unavailable::OptimizedOut)],
        };
        let value = Value {
            ty: Ty::int(),
            data: Data::Bytes(Arc::new(bytes), 0..4),
            bits: None,
        };
        let source = NoSource::because("nothing is known here");
        assert_eq!(value.bytes(&source), Err(Unavailable::OptimizedOut));
        assert_eq!(value.read(&source, 2), Ok(vec![1, 2]));
        assert!(value.has_known_bytes() && !value.part(Ty::char(), 2).has_known_bytes());
        assert_eq!(value.part(Ty::char(), 1).bytes(&source), Ok(vec![2]));
        assert!(value.part(Ty::char(), 9).bytes(&source).is_err());
        let field = |offset, size| Value {
            bits: Some(BitField { offset, size }),
            ..value.part(Ty::char(), 1)
        };
        assert_eq!(field(0, 8).bytes(&source), Ok(vec![2]));
        assert_eq!(field(0, 9).bytes(&source), Err(Unavailable::OptimizedOut));
    }

    #[test]
    fn a_field_is_known_beside_one_that_is_not() {
        let bytes = Bytes {
            bytes: vec![0b101],
            unavailable: vec![(3..8, Unavailable::OptimizedOut)],
        };
        let value = Value {
            ty: Ty::char(),
            data: Data::Bytes(Arc::new(bytes), 0..1),
            bits: Some(BitField { offset: 0, size: 3 }),
        };
        let source = NoSource::because("nothing is known here");
        assert_eq!(value.bytes(&source), Ok(vec![0b101]));
        let next = BitField { offset: 2, size: 2 };
        let next = Value {
            bits: Some(next),
            ..value
        };
        assert_eq!(next.bytes(&source), Err(Unavailable::OptimizedOut));
    }
}
