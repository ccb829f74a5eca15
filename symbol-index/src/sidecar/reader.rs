//! Reads the sidecar of a GSYM. Opening reads the header; a block is read when it is needed.

use super::block::TypesBlock;
use super::format::{
    BLOCK_LEN, CHECKED_FROM, FIXED_LEN, MAGIC, MAX_BLOCK, MAX_FUNCTIONS, MAX_SEGMENTS, SEGMENT_LEN,
    SidecarHeader, VERSION, detail_of,
};
use crate::error::Error;
use backtrail_symbolizer::{FileBytes, Segment};
use std::ops::Range;

/// An open sidecar.
pub struct Sidecar {
    bytes: FileBytes,
    /// The facts about the whole file.
    pub header: SidecarHeader,
    /// The length of the GSYM.
    pub gsym_len: u64,
    /// The checksum of the GSYM.
    pub gsym_sum: u32,
    directory: Range<usize>,
    /// The number of blocks.
    pub blocks: usize,
}

impl Sidecar {
    /// Reads the header.
    pub fn open(bytes: FileBytes) -> Result<Self, Error> {
        let all: &[u8] = (*bytes).as_ref();
        if all.get(..MAGIC.len()) != Some(&MAGIC) {
            return Err(Error::Damaged("the sidecar does not begin as one"));
        }
        if u32_at(all, 8) != Some(VERSION) {
            return Err(Error::Damaged("the sidecar has another version"));
        }
        let header = || {
            let count = |at: usize| Some(u32_at(all, at)? as usize);
            let id = count(32)?;
            let segments = count(36).filter(|count| *count <= MAX_SEGMENTS)?;
            let blocks = count(40)?;
            let id_end = FIXED_LEN.checked_add(id)?;
            let segments_end = id_end.checked_add(segments.checked_mul(SEGMENT_LEN)?)?;
            let end = segments_end.checked_add(blocks.checked_mul(BLOCK_LEN)?)?;
            let segments = all.get(id_end..segments_end)?.chunks_exact(SEGMENT_LEN);
            let segment = |bytes: &[u8]| {
                Some(Segment {
                    offset: u64_at(bytes, 0)?,
                    size: u64_at(bytes, 8)?,
                    address: u64_at(bytes, 16)?,
                })
            };
            all.get(segments_end..end)?;
            Some((
                SidecarHeader {
                    build_id: all.get(FIXED_LEN..id_end)?.to_vec(),
                    detail: detail_of(u32_at(all, 28)?)?,
                    segments: segments.filter_map(segment).collect(),
                },
                segments_end..end,
                blocks,
            ))
        };
        let (header, directory, blocks) = header().ok_or(Error::Damaged("the sidecar's header is cut"))?;
        let gsym_len = u64_at(all, 16).ok_or(Error::Damaged("the sidecar's header is cut"))?;
        let gsym_sum = u32_at(all, 24).ok_or(Error::Damaged("the sidecar's header is cut"))?;
        Ok(Self {
            header,
            gsym_len,
            gsym_sum,
            directory,
            blocks,
            bytes,
        })
    }

    fn all(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// Returns whether the checksum is that of the bytes.
    pub fn is_intact(&self) -> bool {
        let sum = u32_at(self.all(), CHECKED_FROM - 4);
        let checked = self.all().get(CHECKED_FROM..).unwrap_or_default();
        sum == Some(crc32fast::hash(checked))
    }

    fn entry(&self, block: usize) -> Option<&[u8]> {
        let directory = self.all().get(self.directory.clone())?;
        let at = block.checked_mul(BLOCK_LEN)?;
        directory.get(at..at.checked_add(BLOCK_LEN)?)
    }

    /// Returns the number of the block with the function that starts at an address.
    pub fn block_of(&self, start: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            if u64_at(self.entry(middle)?, 0)? <= start {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Reads a block.
    pub fn block(&self, number: usize) -> Result<TypesBlock, Error> {
        self.read_block(number)
            .ok_or(Error::Damaged("a block of types cannot be read"))
    }

    fn read_block(&self, number: usize) -> Option<TypesBlock> {
        let entry = self.entry(number)?;
        let first = u64_at(entry, 0)?;
        let at = usize::try_from(u64_at(entry, 8)?).ok()?;
        let start = self.directory.end.checked_add(at)?;
        let packed = self
            .all()
            .get(start..start.checked_add(u32_at(entry, 16)? as usize)?)?;
        let inflated = u32_at(entry, 20)? as usize;
        let count = u32_at(entry, 24)? as usize;
        if inflated > MAX_BLOCK || count > MAX_FUNCTIONS {
            return None;
        }
        let block = zstd::bulk::decompress(packed, inflated).ok()?;
        if block.len() != inflated {
            return None;
        }
        TypesBlock::read(block, first, count)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::format::FunctionTypes;
    use super::super::writer::write_sidecar;
    use super::*;
    use backtrail_symbolizer::types::Language;
    use backtrail_symbolizer::{Signature, SymbolDetail};
    use std::sync::Arc;

    fn sample() -> (SidecarHeader, Vec<FunctionTypes>) {
        let header = SidecarHeader {
            build_id: vec![1, 2, 3],
            detail: SymbolDetail::DebugInformation,
            segments: vec![Segment {
                offset: 0x1000,
                size: 0x500,
                address: 0x40_1000,
            }],
        };
        let signature = Arc::new(Signature {
            this: Some("ns::Box<long>".into()),
            parameters: vec!["int".into(), "char const*".into()],
            result: None,
        });
        let functions = (0..1000)
            .map(|number| FunctionTypes {
                start: 0x40_1000 + number * 16,
                language: Some(Language::Cpp).filter(|_| number % 3 != 0),
                readable: (number % 5 == 0).then(|| "f".into()),
                signature: (number % 2 == 0).then(|| signature.clone()),
                inlined: vec![None, Some(signature.clone())],
            })
            .collect();
        (header, functions)
    }

    #[test]
    fn sidecar_returns_what_was_written() {
        let (header, functions) = sample();
        let bytes = write_sidecar(&header, b"gsym", &functions).unwrap();
        let sidecar = Sidecar::open(Arc::new(bytes)).unwrap();
        assert!(sidecar.is_intact());
        assert_eq!(sidecar.header, header);
        assert_eq!(
            (sidecar.gsym_len, sidecar.gsym_sum),
            (4, crc32fast::hash(b"gsym"))
        );
        for function in &functions {
            let block = sidecar.block_of(function.start).unwrap();
            let block = sidecar.block(block).unwrap();
            let read = block.function(function.start).unwrap();
            let types = FunctionTypes {
                start: function.start,
                language: read.language(),
                readable: read.readable(),
                signature: read.signature(),
                inlined: read.inlined().collect(),
            };
            assert_eq!(types, *function);
            assert_eq!(read.inlined_count(), function.inlined.len());
            assert!(block.function(function.start + 1).is_none());
        }
        assert_eq!(sidecar.block_of(0x40_0fff), None);
    }

    #[test]
    fn damaged_sidecars_are_refused_or_answer() {
        let (header, functions) = sample();
        let good = write_sidecar(&header, b"gsym", &functions).unwrap();
        let read = |bytes: Vec<u8>| {
            let Ok(sidecar) = Sidecar::open(Arc::new(bytes)) else {
                return 0;
            };
            (0..sidecar.blocks.min(16))
                .filter(|&number| sidecar.block(number).is_ok())
                .count()
        };
        for length in 0..good.len() {
            assert!(read(good[..length].to_vec()) < 16, "{length}");
        }
        let mut seed = 7u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bytes = good.clone();
            let at = (seed >> 33) as usize % bytes.len();
            bytes[at] ^= 1 << (seed & 7);
            if let Ok(sidecar) = Sidecar::open(Arc::new(bytes.clone())) {
                assert!(!sidecar.is_intact() || at < CHECKED_FROM, "{at}");
            }
            read(bytes);
        }
    }
}
