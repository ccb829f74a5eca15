//! Finding the whole blocks of a recording, whatever is between them.

use super::HEADER;
use super::block::{Block, MAGIC};
use crate::{Error, Result};

/// The blocks of a recording.
#[derive(Debug, Default)]
pub(super) struct Scan<'a> {
    /// The whole blocks in the order of segment and index.
    pub blocks: Vec<Block<'a>>,
    /// The number of bytes that belong to no whole block.
    pub other: usize,
}

/// Finds all whole blocks.
///
/// # Errors
///
/// [`Error::Malformed`] without a header, or where the search would take unbounded time.
pub(super) fn scan(bytes: &[u8]) -> Result<Scan<'_>> {
    let malformed = |problem: &str| Error::Malformed {
        format: "recording",
        problem: problem.to_owned(),
    };
    let mut rest = bytes
        .strip_prefix(&HEADER)
        .ok_or_else(|| malformed("it does not begin with the header of this version"))?;
    let mut found = Scan::default();
    // Headers may overlap, and each costs the bytes that it claims.
    let mut allowance = rest.len().saturating_mul(4);
    while !rest.is_empty() {
        if let Some(block) = Block::parse(rest) {
            let size = Block::size(rest).unwrap_or(rest.len());
            rest = rest.get(size..).unwrap_or_default();
            found.blocks.push(block);
            continue;
        }
        let claimed = Block::size(rest).unwrap_or(0).min(rest.len());
        allowance = allowance
            .checked_sub(claimed)
            .ok_or_else(|| malformed("it has too many damaged blocks"))?;
        let skipped = next_magic(rest);
        found.other += skipped;
        rest = rest.get(skipped..).unwrap_or_default();
    }
    found.blocks.sort_by_key(|block| (block.segment, block.index));
    Ok(found)
}

/// Returns the distance to the next place that may be a block, after the first byte.
fn next_magic(bytes: &[u8]) -> usize {
    let after = bytes.get(1..).unwrap_or_default();
    let at = after.windows(MAGIC.len()).position(|window| window == MAGIC);
    at.map_or(bytes.len(), |at| at + 1)
}
