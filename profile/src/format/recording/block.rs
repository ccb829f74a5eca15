//! A block: a header with a checksum, and a compressed payload.

use crate::{Error, Result};
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use std::io::Read;

/// The first bytes of a block.
pub(super) const MAGIC: [u8; 4] = *b"BtPb";
/// The size of a header: magic, segment, index, size of the payload, size when unpacked, CRC-32.
/// The checksum is that of the header before it and of the payload.
pub(super) const HEADER: usize = 24;
/// Times in a block are in microseconds.
pub(super) const TIME_UNIT: u64 = 1000;
/// The most bytes of a payload, and of an unpacked one.
const MAX_PAYLOAD: usize = 1 << 24;

/// A block whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// The number of the segment. Later segments have higher numbers.
    pub segment: u32,
    /// The position in the segment.
    pub index: u32,
    /// The size when unpacked.
    pub unpacked: usize,
    payload: &'a [u8],
}

impl<'a> Block<'a> {
    /// Packs a payload.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the payload exceeds the limit of a block.
    pub fn pack(segment: u32, index: u32, payload: &[u8]) -> Result<Vec<u8>> {
        let too_large = Error::TooLarge {
            limit: MAX_PAYLOAD as u64,
        };
        if payload.len() > MAX_PAYLOAD {
            return Err(too_large);
        }
        let mut block = vec![0; HEADER];
        DeflateEncoder::new(payload, Compression::default()).read_to_end(&mut block)?;
        let packed = block.len() - HEADER;
        if packed > MAX_PAYLOAD {
            return Err(too_large);
        }
        let numbers = [segment, index, packed as u32, payload.len() as u32];
        let header = MAGIC
            .into_iter()
            .chain(numbers.into_iter().flat_map(u32::to_le_bytes));
        for (to, byte) in block.iter_mut().zip(header) {
            *to = byte;
        }
        let (header, payload) = block.split_at(HEADER);
        let checksum = checksum(header, payload).to_le_bytes();
        for (to, byte) in block.iter_mut().skip(HEADER - 4).zip(checksum) {
            *to = byte;
        }
        Ok(block)
    }

    /// Returns the size of the block that begins with these bytes as its header says, or `None` if
    /// this is no header.
    pub fn size(bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(..HEADER)?;
        let (packed, unpacked) = (number(header, 12)? as usize, number(header, 16)? as usize);
        let is_block = header.starts_with(&MAGIC) && packed.max(unpacked) <= MAX_PAYLOAD;
        is_block.then_some(HEADER + packed)
    }

    /// Returns the block at the start of `bytes`, or `None` if its checksum is wrong.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.get(..Self::size(bytes)?)?.split_at(HEADER);
        let is_whole = number(header, 20)? == checksum(header, payload);
        Some(Self {
            segment: number(header, 4)?,
            index: number(header, 8)?,
            unpacked: number(header, 16)? as usize,
            payload,
        })
        .filter(|_| is_whole)
    }

    /// Returns the unpacked payload, or `None` if it does not have the size that the header says.
    pub fn unpack(&self) -> Option<Vec<u8>> {
        let mut payload = Vec::new();
        let limit = self.unpacked as u64 + 1;
        let packed = DeflateDecoder::new(self.payload);
        packed.take(limit).read_to_end(&mut payload).ok()?;
        (payload.len() == self.unpacked).then_some(payload)
    }
}

fn number(header: &[u8], at: usize) -> Option<u32> {
    let bytes = header.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes))
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header.get(..HEADER - 4).unwrap_or_default());
    hasher.update(payload);
    hasher.finalize()
}
