//! Writes the sidecar of a GSYM.

use super::format::{
    CHECKED_FROM, FIXED_LEN, FunctionTypes, MAGIC, MAX_BLOCK, MAX_FUNCTIONS, MAX_SEGMENTS, SidecarHeader,
    VERSION, detail_number, language_number,
};
use crate::error::Error;
use crate::varint::write_number;
use backtrail_symbolizer::Signature;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The level of compression.
const LEVEL: i32 = 3;

/// Writes the sidecar of `gsym`. The functions are in address order.
pub fn write_sidecar(
    header: &SidecarHeader,
    gsym: &[u8],
    functions: &[FunctionTypes],
) -> Result<Vec<u8>, Error> {
    let segments = header.segments.get(..MAX_SEGMENTS).unwrap_or(&header.segments);
    let mut directory = Vec::new();
    let mut blocks: Vec<u8> = Vec::new();
    let mut compressor = zstd::bulk::Compressor::new(LEVEL).map_err(Error::Compression)?;
    let mut count = 0u32;
    for chunk in functions.chunks(MAX_FUNCTIONS) {
        let block = block(chunk);
        let first = chunk.first().map_or(0, |function| function.start);
        let too_many = || Error::TooManyTypes(functions.len());
        if block.len() > MAX_BLOCK {
            return Err(too_many());
        }
        let packed = compressor.compress(&block).map_err(Error::Compression)?;
        directory.extend(first.to_le_bytes());
        directory.extend((blocks.len() as u64).to_le_bytes());
        for length in [packed.len(), block.len(), chunk.len()] {
            directory.extend(u32::try_from(length).map_err(|_| too_many())?.to_le_bytes());
        }
        blocks.extend(packed);
        count = count.checked_add(1).ok_or_else(too_many)?;
    }
    let mut out = Vec::with_capacity(FIXED_LEN + directory.len() + blocks.len());
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 4]);
    out.extend((gsym.len() as u64).to_le_bytes());
    out.extend(crc32fast::hash(gsym).to_le_bytes());
    out.extend(detail_number(header.detail).to_le_bytes());
    // A build id has at most 64 bytes, and the segments were cut.
    out.extend((header.build_id.len() as u32).to_le_bytes());
    out.extend((segments.len() as u32).to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend([0; 4]);
    out.extend(&header.build_id);
    for segment in segments {
        for number in [segment.offset, segment.size, segment.address] {
            out.extend(number.to_le_bytes());
        }
    }
    out.extend(directory);
    out.extend(blocks);
    let sum = crc32fast::hash(out.get(CHECKED_FROM..).unwrap_or_default());
    if let Some(place) = out.get_mut(CHECKED_FROM - 4..CHECKED_FROM) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    Ok(out)
}

/// Numbers items in the order in which they are first used.
struct Numbering<'a, T: ?Sized> {
    numbers: FxHashMap<&'a T, u64>,
    items: Vec<&'a T>,
}

impl<'a, T: Eq + std::hash::Hash + ?Sized> Numbering<'a, T> {
    fn new() -> Self {
        Self {
            numbers: FxHashMap::default(),
            items: Vec::new(),
        }
    }

    fn number(&mut self, item: &'a T) -> u64 {
        let next = self.items.len() as u64;
        let number = *self.numbers.entry(item).or_insert(next);
        if number == next {
            self.items.push(item);
        }
        number
    }

    /// Returns 0 for nothing, or one more than the number.
    fn reference(&mut self, item: Option<&'a T>) -> u64 {
        item.map_or(0, |item| self.number(item) + 1)
    }
}

fn block(functions: &[FunctionTypes]) -> Vec<u8> {
    let mut strings = Numbering::<str>::new();
    let mut signatures = Numbering::<Signature>::new();
    let mut rows = Vec::new();
    let mut last = functions.first().map_or(0, |function| function.start);
    for function in functions {
        write_number(&mut rows, function.start.saturating_sub(last));
        last = function.start;
        write_number(&mut rows, language_number(function.language));
        write_number(&mut rows, strings.reference(function.readable.as_deref()));
        write_number(&mut rows, signatures.reference(function.signature.as_deref()));
        write_number(&mut rows, function.inlined.len() as u64);
        for inlined in &function.inlined {
            write_number(&mut rows, signatures.reference(inlined.as_deref()));
        }
    }
    let mut types = Vec::new();
    for signature in &signatures.items {
        write_number(&mut types, strings.reference(signature.this.as_deref()));
        write_number(&mut types, strings.reference(signature.result.as_deref()));
        write_number(&mut types, signature.parameters.len() as u64);
        for parameter in &signature.parameters {
            write_number(&mut types, strings.number(Arc::as_ref(parameter)));
        }
    }
    let mut out = Vec::new();
    write_number(&mut out, strings.items.len() as u64);
    for text in &strings.items {
        write_number(&mut out, text.len() as u64);
        out.extend(text.as_bytes());
    }
    write_number(&mut out, signatures.items.len() as u64);
    out.extend(types);
    out.extend(rows);
    out
}
