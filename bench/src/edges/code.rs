//! The code that the analyzer reads.

use crate::code::{self, CodeRange};
use backtrail_decoder::Image;
use iptr_edge_analyzer::ReadMemory;

/// The code of a process.
pub struct Code {
    ranges: Vec<CodeRange>,
    last: usize,
}

impl Code {
    /// Builds the code of an image.
    pub fn new(image: &Image) -> Self {
        Self {
            ranges: code::ranges(image),
            last: 0,
        }
    }
}

/// The error for an address without code.
#[derive(Debug, thiserror::Error)]
#[error("there is no code at {0:#x}")]
pub struct CodeMissing(u64);

impl ReadMemory for Code {
    type Error = CodeMissing;

    fn at_decode_begin(&mut self) -> Result<(), CodeMissing> {
        Ok(())
    }

    fn read_memory<T>(
        &mut self,
        address: u64,
        size: usize,
        callback: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, CodeMissing> {
        let holds = |range: &CodeRange| {
            let skip = address.checked_sub(range.start);
            skip.is_some_and(|skip| skip < range.bytes.len() as u64)
        };
        if !self.ranges.get(self.last).is_some_and(holds) {
            self.last = self.ranges.iter().position(holds).ok_or(CodeMissing(address))?;
        }
        let range = self.ranges.get(self.last).ok_or(CodeMissing(address))?;
        let skip = (address - range.start) as usize;
        let rest = range.bytes.get(skip..).unwrap_or_default();
        Ok(callback(rest.get(..size).unwrap_or(rest)))
    }
}
