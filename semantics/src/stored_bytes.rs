//! Bytes that an instruction has stored, for its own later loads.

use std::collections::HashMap;

/// The bytes of a line.
const LINE: u64 = 64;

/// Stored bytes by address, in lines.
#[derive(Debug, Default)]
pub struct StoredBytes(HashMap<u64, Line>);

/// A line of memory. Bit `n` of `stored` says whether byte `n` was stored.
#[derive(Debug)]
struct Line {
    bytes: [u8; LINE as usize],
    stored: u64,
}

impl StoredBytes {
    /// Notes stored bytes.
    pub fn store(&mut self, address: u64, bytes: &[u8]) {
        let mut address = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (offset, len) = place(address, rest.len());
            let line = self.0.entry(address / LINE).or_insert(Line {
                bytes: [0; LINE as usize],
                stored: 0,
            });
            let (part, after) = rest.split_at(len);
            line.bytes[offset..offset + len].copy_from_slice(part);
            line.stored |= u64::MAX >> (LINE as usize - len) << offset;
            address = address.wrapping_add(len as u64);
            rest = after;
        }
    }

    /// Replaces bytes of memory by the stored ones.
    pub fn load(&self, address: u64, bytes: &mut [u8]) {
        let mut address = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (offset, len) = place(address, rest.len());
            let (part, after) = rest.split_at_mut(len);
            if let Some(line) = self.0.get(&(address / LINE)) {
                for (at, byte) in (offset..).zip(part) {
                    if line.stored >> at & 1 != 0 {
                        *byte = line.bytes[at];
                    }
                }
            }
            address = address.wrapping_add(len as u64);
            rest = after;
        }
    }
}

/// Returns the offset of an address in its line, and how many of `len` bytes are in the line.
fn place(address: u64, len: usize) -> (usize, usize) {
    let offset = (address % LINE) as usize;
    (offset, len.min(LINE as usize - offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_replace_loaded_ones() {
        let mut stored = StoredBytes::default();
        stored.store(60, &[1; 70]);
        stored.store(64, &[2, 3]);
        stored.store(u64::MAX, &[9, 8]);
        let mut bytes = [0; 80];
        stored.load(58, &mut bytes);
        let mut expected = [0; 80];
        expected[2..72].fill(1);
        expected[6..8].copy_from_slice(&[2, 3]);
        assert_eq!(bytes, expected);
        let mut end = [0; 3];
        stored.load(u64::MAX, &mut end);
        assert_eq!(end, [9, 8, 0]);
    }
}
