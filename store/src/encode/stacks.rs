//! The columns of stacks.

use super::constant;
use crate::hash::StackHash;
use crate::schema::{item, schema};
use crate::segment::{SegmentId, TableKind};
use arrow_array::{FixedSizeBinaryArray, ListArray, RecordBatch, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType};
use std::sync::Arc;

/// Returns the columns of stacks whose ids begin with `first`. A stack is its hash and its frames,
/// the innermost first.
pub(crate) fn stacks(
    segment: SegmentId,
    first: u32,
    stacks: &[(StackHash, Vec<u32>)],
) -> Result<RecordBatch, ArrowError> {
    let hashes: Vec<u8> = stacks.iter().flat_map(|(hash, _)| *hash).collect();
    let frames: Vec<u32> = stacks.iter().flat_map(|(_, frames)| frames).copied().collect();
    let lengths = OffsetBuffer::from_lengths(stacks.iter().map(|(_, frames)| frames.len()));
    let frames = Arc::new(UInt32Array::from(frames));
    let ids = (first..).take(stacks.len());
    RecordBatch::try_new(
        schema(TableKind::Stacks),
        vec![
            constant(&segment.to_string(), stacks.len())?,
            Arc::new(UInt32Array::from_iter_values(ids)),
            Arc::new(FixedSizeBinaryArray::try_new(16, Buffer::from_vec(hashes), None)?),
            Arc::new(ListArray::try_new(item(DataType::UInt32), lengths, frames, None)?),
        ],
    )
}
