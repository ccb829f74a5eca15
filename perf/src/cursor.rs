//! Reads little-endian numbers from a byte slice, with bounds checks.

use crate::Error;

/// A position in a slice. Every read advances it, or fails with the name of the structure.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
    offset: u64,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which contain the structure `what` and start at `offset` of the input.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str, offset: u64) -> Self {
        Self {
            rest: bytes,
            what,
            offset,
        }
    }

    /// Returns the next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(Error::Truncated {
            what: self.what,
            offset: self.offset,
        })?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns the remaining bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Builds the error that a field of this structure is invalid.
    pub(crate) fn invalid(&self, problem: impl Into<String>) -> Error {
        Error::Invalid {
            what: self.what,
            offset: self.offset,
            problem: problem.into(),
        }
    }
}
