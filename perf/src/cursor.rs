//! Reading little-endian numbers from a byte slice without ever leaving it.

use crate::Error;

/// A position in a slice; every read moves it on, or fails and names the structure.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
    offset: u64,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which are the structure `what` and start at `offset` of the input.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str, offset: u64) -> Self {
        Self {
            rest: bytes,
            what,
            offset,
        }
    }

    /// The next `count` bytes.
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

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The error that this structure has an impossible field.
    pub(crate) fn invalid(&self, problem: impl Into<String>) -> Error {
        Error::Invalid {
            what: self.what,
            offset: self.offset,
            problem: problem.into(),
        }
    }
}
