//! The inlined calls of a function (package `runtime` of Go, type `inlinedCall`).

use super::bytes::u32_at;
use super::header::Format;

/// The call around an inlined one, and the place of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Before Go 1.20: the index of the inlined call around this one, the number of a file in the
    /// compilation unit, and a line.
    Stated {
        around: Option<u32>,
        file: u32,
        line: u32,
    },
    /// Since Go 1.20: the code at this offset from the function's entry has the place.
    SameAs(u32),
}

/// An inlined call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InlinedCall {
    /// The offset of the name of the function that was inlined.
    pub name: u32,
    /// The line of its declaration; 0 if unknown.
    pub declared_line: u32,
    pub caller: Caller,
}

impl InlinedCall {
    /// Reads a call, given the bytes from the first one on.
    pub fn read(format: Format, calls: &[u8], index: u32) -> Option<Self> {
        let size: usize = if format >= Format::Go120 { 16 } else { 20 };
        let bytes = calls.get(size.checked_mul(index as usize)?..)?;
        let word = |number: usize| u32_at(bytes, number * 4);
        if format >= Format::Go120 {
            return Some(Self {
                name: word(1)?,
                caller: Caller::SameAs(word(2)?),
                declared_line: word(3)?,
            });
        }
        // The low half of the first word is the index, or negative.
        let around = word(0)? as u16;
        Some(Self {
            name: word(3)?,
            declared_line: 0,
            caller: Caller::Stated {
                around: (around <= i16::MAX.cast_unsigned()).then_some(u32::from(around)),
                file: word(1)?,
                line: word(2)?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_both_formats_are_read() {
        let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
        let old = words(&[0xffff, 1, 7, 100, 3, 0x0002_0000, 2, 8, 200, 5]);
        let first = InlinedCall::read(Format::Go118, &old, 0).unwrap();
        let stated = |around, file, line| Caller::Stated { around, file, line };
        assert_eq!((first.name, first.caller), (100, stated(None, 1, 7)));
        let second = InlinedCall::read(Format::Go116, &old, 1).unwrap();
        assert_eq!((second.name, second.caller), (200, stated(Some(0), 2, 8)));
        let new = words(&[0, 100, 3, 7, 0, 200, 5, 8]);
        let second = InlinedCall::read(Format::Go120, &new, 1).unwrap();
        assert_eq!(
            (second.name, second.caller, second.declared_line),
            (200, Caller::SameAs(5), 8)
        );
        assert_eq!(InlinedCall::read(Format::Go120, &new, 2), None);
        assert_eq!(InlinedCall::read(Format::Go118, &old, u32::MAX), None);
    }
}
