//! The sorted table of function addresses in a GSYM of version 1.

use crate::error::Error;
use gsym::{Endian, Gsym, GsymVersion};
use std::ops::Range;

/// The length of the header, at whose end the table begins.
const HEADER_LEN: usize = 48;

/// The position and the form of the table.
#[derive(Debug)]
pub struct AddressTable {
    bytes: Range<usize>,
    width: usize,
    base: u64,
}

impl AddressTable {
    /// Finds the table of a GSYM as the builder writes it.
    pub fn of<D: AsRef<[u8]>>(gsym: &Gsym<D>) -> Result<Self, Error> {
        let header = gsym.header();
        if header.version != GsymVersion::V1 || header.endian != Endian::Little {
            return Err(Error::Damaged("the GSYM has another version or byte order"));
        }
        let width = usize::from(header.address_offset_size);
        let length = (header.address_count as usize).checked_mul(width);
        let end = length.and_then(|length| HEADER_LEN.checked_add(length));
        let end = end.filter(|end| *end <= gsym.as_ref().len());
        let end = end.ok_or(Error::Damaged("the GSYM's table of addresses is cut"))?;
        if !matches!(width, 1 | 2 | 4 | 8) {
            return Err(Error::Damaged("the GSYM's addresses have an unknown width"));
        }
        Ok(Self {
            bytes: HEADER_LEN..end,
            width,
            base: header.base_address,
        })
    }

    /// Returns the index of the last function that starts at or before an address.
    pub fn find(&self, gsym: &[u8], address: u64) -> Option<usize> {
        let wanted = address.checked_sub(self.base)?;
        let table = gsym.get(self.bytes.clone())?;
        let after = match self.width {
            1 => count_until(table, |entry: [u8; 1]| u64::from(entry[0]) <= wanted),
            2 => count_until(table, |entry| u64::from(u16::from_le_bytes(entry)) <= wanted),
            4 => count_until(table, |entry| u64::from(u32::from_le_bytes(entry)) <= wanted),
            _ => count_until(table, |entry| u64::from_le_bytes(entry) <= wanted),
        };
        after.checked_sub(1)
    }
}

/// Returns the number of entries before the first one that is not `before`.
fn count_until<const WIDTH: usize>(table: &[u8], before: impl Fn([u8; WIDTH]) -> bool) -> usize {
    let (entries, _) = table.as_chunks::<WIDTH>();
    entries.partition_point(|entry| before(*entry))
}
