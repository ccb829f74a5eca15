//! The columns of stacks.

use super::constant;
use crate::schema::{item, schema};
use crate::segment::{SegmentId, TableKind};
use arrow_array::{ListArray, RecordBatch, UInt32Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType};
use std::sync::Arc;

/// Returns the columns of stacks whose ids begin with `first`. A stack is its frames, the
/// innermost first.
pub(crate) fn stacks(segment: SegmentId, first: u32, stacks: &[Vec<u32>]) -> Result<RecordBatch, ArrowError> {
    let frames: Vec<u32> = stacks.iter().flatten().copied().collect();
    let lengths = OffsetBuffer::from_lengths(stacks.iter().map(Vec::len));
    let frames = Arc::new(UInt32Array::from(frames));
    let ids = (first..).take(stacks.len());
    RecordBatch::try_new(
        schema(TableKind::Stacks),
        vec![
            constant(&segment.to_string(), stacks.len())?,
            Arc::new(UInt32Array::from_iter_values(ids)),
            Arc::new(ListArray::try_new(item(DataType::UInt32), lengths, frames, None)?),
        ],
    )
}
