//! The memory on which the instructions work: a page between pages without access.

use backtrail_semantics::Memory;

/// The address of the page. It has less than 32 bits, so that short addresses reach it.
pub const START: u64 = 0x2000_0000;
/// The size of the page.
pub const SIZE: usize = 4096;

/// A copy of the page, for models.
pub struct Copy {
    pub bytes: Box<[u8; SIZE]>,
}

/// An access outside of the page.
#[derive(Debug, PartialEq, Eq)]
pub struct Outside;

/// Returns the place of a range in the page.
pub fn place(address: u64, length: usize) -> Option<std::ops::Range<usize>> {
    let offset = usize::try_from(address.checked_sub(START)?).ok()?;
    let end = offset.checked_add(length)?;
    (end <= SIZE).then_some(offset..end)
}

impl Memory for Copy {
    type Error = Outside;

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        let place = place(address, bytes.len()).ok_or(Outside)?;
        bytes.copy_from_slice(&self.bytes[place]);
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let place = place(address, bytes.len()).ok_or(Outside)?;
        self.bytes[place].copy_from_slice(bytes);
        Ok(())
    }
}
