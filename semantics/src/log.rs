//! The log of values that a replay cannot compute, in the order of execution.
//!
//! An instruction with a model has the bytes that it loads. Another one has the bytes that it
//! stores, and then the registers that it writes: general ones, flags, vectors and masks, each by
//! number. A system call has the bases of FS and GS after them. The area to which `xsavec` and
//! `fxsave` save registers has its size in two bytes before it.

use crate::registers::RegisterSet;
use crate::state::{State, flag};

/// The flags that the log has.
const FLAGS: u64 = flag::STATUS | flag::DIRECTION;

/// A log in the making.
#[derive(Clone, Debug, Default)]
pub struct LogWriter {
    bytes: Vec<u8>,
}

impl LogWriter {
    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether nothing is logged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the log, and begins another one.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes of registers that were pushed last.
    pub(crate) fn tail(&self, written: RegisterSet) -> &[u8] {
        let start = self.bytes.len().saturating_sub(size(written));
        &self.bytes[start..]
    }

    pub(crate) fn push_registers(&mut self, written: RegisterSet, state: &State) {
        for number in numbers(written.general.into()) {
            self.push(&state.general[number].to_le_bytes());
        }
        if written.flags != 0 {
            // All bits are in the low two bytes.
            self.push(&(state.flags as u16).to_le_bytes());
        }
        for number in numbers(written.vectors.into()) {
            self.push(&state.vectors[number]);
        }
        for number in numbers(written.masks.into()) {
            self.push(&state.masks[number].to_le_bytes());
        }
    }
}

/// Returns the size of logged registers in bytes.
fn size(written: RegisterSet) -> usize {
    let count = |bits: u64| bits.count_ones() as usize;
    8 * count(written.general.into())
        + if written.flags == 0 { 0 } else { 2 }
        + 64 * count(written.vectors.into())
        + 8 * count(written.masks.into())
}

/// Returns the numbers of the bits that are set.
fn numbers(bits: u64) -> impl Iterator<Item = usize> {
    (0..32).filter(move |number| bits >> number & 1 != 0)
}

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log ends here")]
pub struct LogEnd;

/// Reads a log from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct LogReader<'a> {
    rest: &'a [u8],
}

impl<'a> LogReader<'a> {
    /// Returns a reader of a log.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of unread bytes.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn bytes(&mut self, out: &mut [u8]) -> Result<(), LogEnd> {
        let (bytes, rest) = self.rest.split_at_checked(out.len()).ok_or(LogEnd)?;
        out.copy_from_slice(bytes);
        self.rest = rest;
        Ok(())
    }

    fn number(&mut self) -> Result<u64, LogEnd> {
        let mut bytes = [0; 8];
        self.bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn registers(&mut self, written: RegisterSet, state: &mut State) -> Result<(), LogEnd> {
        if self.rest.len() < size(written) {
            return Err(LogEnd);
        }
        for number in numbers(written.general.into()) {
            state.general[number] = self.number()?;
        }
        if written.flags != 0 {
            let mut bytes = [0; 2];
            self.bytes(&mut bytes)?;
            state.set_flags(FLAGS, u16::from_le_bytes(bytes).into());
        }
        for number in numbers(written.vectors.into()) {
            self.bytes(&mut state.vectors[number])?;
        }
        for number in numbers(written.masks.into()) {
            state.masks[number] = self.number()?;
        }
        Ok(())
    }
}
