//! Reading numbers and texts of a chunk. Every read is within the bytes.

use std::borrow::Cow;

/// The encoding of whole numbers in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integers {
    /// Seven bits a byte, the lowest first.
    Compressed,
    /// The size of their type, the highest byte first.
    Fixed,
}

/// The type of a value without fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    /// `boolean` and `byte`.
    Byte,
    /// `char` and `short`.
    Short,
    /// `int`.
    Int,
    /// `long`.
    Long,
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// `java.lang.String`.
    Text,
}

impl Primitive {
    /// Returns the primitive type of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "boolean" | "byte" => Self::Byte,
            "char" | "short" => Self::Short,
            "int" => Self::Int,
            "long" => Self::Long,
            "float" => Self::Float,
            "double" => Self::Double,
            "java.lang.String" => Self::Text,
            _ => return None,
        })
    }
}

/// A text of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Text<'a> {
    /// No text.
    Null,
    /// The text of a constant with this key.
    Constant(i64),
    /// The text itself.
    Inline(Cow<'a, str>),
}

/// A position in the bytes of a chunk. A method returns `None` if the bytes end too early, or
/// cannot be of the type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    integers: Integers,
}

impl<'a> Cursor<'a> {
    /// Returns the start of some bytes.
    pub(super) fn new(bytes: &'a [u8], integers: Integers) -> Self {
        Self {
            bytes,
            at: 0,
            integers,
        }
    }

    /// Returns another position in the same bytes.
    pub(super) fn moved_to(self, at: usize) -> Option<Self> {
        (at <= self.bytes.len()).then_some(Self { at, ..self })
    }

    /// Returns the same position, in bytes that end at `end`.
    pub(super) fn ending_at(self, end: usize) -> Option<Self> {
        let bytes = self.bytes.get(..end)?;
        (self.at <= end).then_some(Self { bytes, ..self })
    }

    /// Returns the position.
    pub(super) fn position(self) -> usize {
        self.at
    }

    /// Returns the number of bytes that follow.
    pub(super) fn remaining(self) -> usize {
        self.bytes.len() - self.at
    }

    /// Reads some bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    /// Reads a byte.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Reads a compressed number. The ninth byte has eight bits.
    fn compressed(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        for shift in (0..56).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value.cast_signed());
            }
        }
        let last = self.byte()?;
        Some((value | u64::from(last) << 56).cast_signed())
    }

    /// Reads a `short` or `char`.
    pub(super) fn short(&mut self) -> Option<i64> {
        match self.integers {
            Integers::Compressed => self.compressed().map(|number| i64::from(number as i16)),
            Integers::Fixed => self.array().map(i16::from_be_bytes).map(i64::from),
        }
    }

    /// Reads an `int`. A negative one is compressed without a sign, in five bytes.
    pub(super) fn int(&mut self) -> Option<i64> {
        match self.integers {
            Integers::Compressed => self.compressed().map(|number| i64::from(number as i32)),
            Integers::Fixed => self.array().map(i32::from_be_bytes).map(i64::from),
        }
    }

    /// Reads a `long`.
    pub(super) fn long(&mut self) -> Option<i64> {
        match self.integers {
            Integers::Compressed => self.compressed(),
            Integers::Fixed => self.array().map(i64::from_be_bytes),
        }
    }

    /// Reads the number of elements that follow, of at least one byte each.
    pub(super) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.int()?).ok()?;
        (count <= self.remaining()).then_some(count)
    }

    /// Reads a primitive value, as a number if it is a whole one.
    pub(super) fn primitive(&mut self, primitive: Primitive) -> Option<i64> {
        match primitive {
            Primitive::Byte => self.byte().map(i64::from),
            Primitive::Short => self.short(),
            Primitive::Int => self.int(),
            Primitive::Long => self.long(),
            Primitive::Float => self.take(4).map(|_| 0),
            Primitive::Double => self.take(8).map(|_| 0),
            Primitive::Text => self.skip_text().map(|()| 0),
        }
    }

    fn skip_text(&mut self) -> Option<()> {
        match self.byte()? {
            0 | 1 => {}
            2 => {
                self.long()?;
            }
            3 | 5 => {
                let length = self.count()?;
                self.take(length)?;
            }
            4 => {
                for _ in 0..self.count()? {
                    self.short()?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads a `java.lang.String`.
    pub(super) fn text(&mut self) -> Option<Text<'a>> {
        let text = match self.byte()? {
            0 => return Some(Text::Null),
            1 => Cow::Borrowed(""),
            2 => return Some(Text::Constant(self.long()?)),
            3 => {
                let length = self.count()?;
                String::from_utf8_lossy(self.take(length)?)
            }
            4 => {
                let mut units = Vec::new();
                for _ in 0..self.count()? {
                    units.push(self.short()? as u16);
                }
                Cow::Owned(String::from_utf16_lossy(&units))
            }
            5 => {
                let length = self.count()?;
                Cow::Owned(self.take(length)?.iter().map(|byte| char::from(*byte)).collect())
            }
            _ => return None,
        };
        Some(Text::Inline(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_numbers_have_up_to_nine_bytes() {
        let read = |bytes: &[u8]| {
            let mut cursor = Cursor::new(bytes, Integers::Compressed);
            let value = cursor.long();
            (value, cursor.remaining())
        };
        assert_eq!(read(&[0x7f]), (Some(127), 0));
        assert_eq!(read(&[0x80, 0x01, 0x55]), (Some(128), 1));
        // A size that is written later has padding.
        assert_eq!(read(&[0x85, 0x80, 0x80, 0x80, 0x00]), (Some(5), 0));
        assert_eq!(read(&[0xff; 9]), (Some(-1), 0));
        assert_eq!(
            read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]),
            (Some(i64::MIN), 0)
        );
        assert_eq!(read(&[0xff; 8]).0, None);
    }

    #[test]
    fn negative_ints_have_32_bits() {
        let mut cursor = Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f], Integers::Compressed);
        assert_eq!((cursor.int(), cursor.remaining()), (Some(-1), 0));
    }

    #[test]
    fn every_encoding_of_a_text_is_read() {
        let cases: [(&[u8], Text<'_>); 6] = [
            (&[0], Text::Null),
            (&[1], Text::Inline("".into())),
            (&[2, 9], Text::Constant(9)),
            (&[3, 3, b'a', 0xc3, 0xa9], Text::Inline("aé".into())),
            (&[4, 2, b'a', 0xe9, 0x01], Text::Inline("aé".into())),
            (&[5, 2, b'a', 0xe9], Text::Inline("aé".into())),
        ];
        for (bytes, expected) in cases {
            let mut cursor = Cursor::new(bytes, Integers::Compressed);
            let mut skipped = cursor;
            assert_eq!(cursor.text(), Some(expected));
            skipped.primitive(Primitive::Text).unwrap();
            assert_eq!((cursor.remaining(), skipped.remaining()), (0, 0));
        }
    }

    #[test]
    fn length_beyond_the_bytes_is_refused() {
        for kind in [3, 4, 5] {
            let bytes = [kind, 0xff, 0xff, 0xff, 0x7f, b'a'];
            assert_eq!(Cursor::new(&bytes, Integers::Compressed).text(), None);
        }
    }
}
