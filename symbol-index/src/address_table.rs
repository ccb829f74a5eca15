//! The tables of a GSYM of version 1: the addresses of its functions, and where their records are.

use crate::error::Error;
use gsym::{Endian, Gsym, GsymVersion};
use std::ops::Range;

/// The length of the header, at whose end the table of addresses begins.
const HEADER_LEN: usize = 48;

/// The positions and the form of both tables.
#[derive(Debug)]
pub struct AddressTable {
    addresses: Range<usize>,
    width: usize,
    base: u64,
    /// The positions of the records, 4 bytes each.
    records: Range<usize>,
}

impl AddressTable {
    /// Finds the tables of a GSYM as the builder writes it.
    pub fn of<D: AsRef<[u8]>>(gsym: &Gsym<D>) -> Result<Self, Error> {
        let header = gsym.header();
        if header.version != GsymVersion::V1 || header.endian != Endian::Little {
            return Err(Error::Damaged("the GSYM has another version or byte order"));
        }
        let width = usize::from(header.address_offset_size);
        if !matches!(width, 1 | 2 | 4 | 8) {
            return Err(Error::Damaged("the GSYM's addresses have an unknown width"));
        }
        let count = header.address_count as usize;
        let table = |start: usize, width: usize| {
            let end = start.checked_add(count.checked_mul(width)?)?;
            (end <= gsym.as_ref().len()).then_some(start..end)
        };
        let tables = || {
            let addresses = table(HEADER_LEN, width)?;
            let records = table(addresses.end.checked_next_multiple_of(4)?, 4)?;
            Some((addresses, records))
        };
        let (addresses, records) = tables().ok_or(Error::Damaged("the GSYM's table of addresses is cut"))?;
        Ok(Self {
            addresses,
            width,
            base: header.base_address,
            records,
        })
    }

    /// Returns the index of the last function that starts at or before an address.
    pub fn find(&self, gsym: &[u8], address: u64) -> Option<usize> {
        let wanted = address.checked_sub(self.base)?;
        let table = gsym.get(self.addresses.clone())?;
        let after = match self.width {
            1 => count_until(table, |entry: [u8; 1]| u64::from(entry[0]) <= wanted),
            2 => count_until(table, |entry| u64::from(u16::from_le_bytes(entry)) <= wanted),
            4 => count_until(table, |entry| u64::from(u32::from_le_bytes(entry)) <= wanted),
            _ => count_until(table, |entry| u64::from_le_bytes(entry) <= wanted),
        };
        after.checked_sub(1)
    }

    /// Returns the bytes from the record of a function to the end of the file.
    pub fn record<'a>(&self, gsym: &'a [u8], number: usize) -> Option<&'a [u8]> {
        let (positions, _) = gsym.get(self.records.clone())?.as_chunks::<4>();
        let position = u32::from_le_bytes(*positions.get(number)?);
        gsym.get(position as usize..)
    }
}

/// Returns the number of entries before the first one that is not `before`.
fn count_until<const WIDTH: usize>(table: &[u8], before: impl Fn([u8; WIDTH]) -> bool) -> usize {
    let (entries, _) = table.as_chunks::<WIDTH>();
    entries.partition_point(|entry| before(*entry))
}
