//! The columns of frames and of contexts.

use super::constant;
use super::dictionary::texts;
use crate::content::{Content, Context};
use crate::schema::{item, label_entries, line_fields, schema};
use crate::segment::{SegmentId, TableKind};
use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, ListArray, MapArray, RecordBatch, StringArray, StructArray,
    UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType};
use backtrail_profile::{Frame, FrameId, Function, Line};
use std::sync::Arc;

/// The texts of the column `kind`, by their index in [`frames`].
pub(crate) const KINDS: [&str; 4] = ["code", "address", "function", "lost"];

/// Returns the columns of frames whose ids begin with `first`.
pub(crate) fn frames(
    segment: SegmentId,
    first: u32,
    content: &Content,
    frames: &[FrameId],
) -> Result<RecordBatch, ArrowError> {
    let profile = &content.profile;
    let mut kinds = Vec::with_capacity(frames.len());
    let mut build_ids = Vec::with_capacity(frames.len());
    let mut modules = Vec::with_capacity(frames.len());
    let mut offsets = Vec::with_capacity(frames.len());
    let mut lines: Vec<Line> = Vec::new();
    let mut counts = Vec::with_capacity(frames.len());
    for id in frames {
        let frame = profile.frames.get(*id).copied().unwrap_or(Frame::Lost);
        let (mut module, mut offset) = (None, None);
        let before = lines.len();
        kinds.push(match frame {
            Frame::Code {
                module: id,
                offset: place,
            } => {
                module = profile.modules.get(id);
                offset = Some(place.0);
                0
            }
            Frame::Address(address) => {
                offset = Some(address);
                1
            }
            Frame::Function { function, line } => {
                lines.push(Line { function, line });
                2
            }
            _ => 3,
        });
        // The function of a frame that has only a name is its line.
        if !matches!(frame, Frame::Function { .. }) {
            lines.extend_from_slice(profile.lines_of(*id));
        }
        counts.push(lines.len() - before);
        build_ids.push(module.and_then(|module| Some(module.build_id.as_ref()?.as_bytes())));
        modules.push(module.map(|module| profile.text(module.path)));
        offsets.push(offset);
    }
    let kind_names: ArrayRef = Arc::new(StringArray::from(KINDS.to_vec()));
    let line_type = item(DataType::Struct(line_fields()));
    let lines = Arc::new(line_columns(content, &lines)?);
    RecordBatch::try_new(
        schema(TableKind::Frames),
        vec![
            constant(&segment.to_string(), frames.len())?,
            Arc::new(UInt32Array::from_iter_values((first..).take(frames.len()))),
            texts(&kind_names, Int32Array::from(kinds))?,
            Arc::new(BinaryArray::from(build_ids)),
            Arc::new(StringArray::from(modules)),
            Arc::new(UInt64Array::from(offsets)),
            Arc::new(ListArray::try_new(
                line_type,
                OffsetBuffer::from_lengths(counts),
                lines,
                None,
            )?),
        ],
    )
}

fn line_columns(content: &Content, lines: &[Line]) -> Result<StructArray, ArrowError> {
    let profile = &content.profile;
    let function = |line: &Line| profile.functions.get(line.function);
    let text = |get: fn(&Function) -> backtrail_profile::StringId| {
        let texts = lines
            .iter()
            .map(move |line| function(line).map_or("", |function| profile.text(get(function))));
        Arc::new(StringArray::from_iter_values(texts)) as ArrayRef
    };
    let files: StringArray = lines
        .iter()
        .map(|line| Some(profile.text(function(line)?.file?)))
        .collect();
    let starts = lines
        .iter()
        .map(|line| function(line).map_or(0, |function| function.start_line));
    StructArray::try_new(
        line_fields(),
        vec![
            text(|function| function.name),
            text(|function| function.linkage_name),
            Arc::new(files),
            Arc::new(UInt32Array::from_iter_values(starts)),
            Arc::new(UInt32Array::from_iter_values(lines.iter().map(|line| line.line))),
        ],
        None,
    )
}

/// Returns the columns of contexts whose ids begin with `first`.
pub(crate) fn contexts(
    segment: SegmentId,
    first: u32,
    contexts: &[&Context],
) -> Result<RecordBatch, ArrowError> {
    let labels = || contexts.iter().flat_map(|labels| labels.iter());
    let keys: Vec<&str> = labels().map(|(key, _)| &**key).collect();
    let values: Vec<&str> = labels().map(|(_, value)| &**value).collect();
    let (keys, values) = (StringArray::from(keys), StringArray::from(values));
    let entries = label_entries();
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(ArrowError::SchemaError("labels are not a map".into()));
    };
    let pairs = StructArray::try_new(fields.clone(), vec![Arc::new(keys), Arc::new(values)], None)?;
    let lengths = OffsetBuffer::from_lengths(contexts.iter().map(|labels| labels.len()));
    let map = MapArray::try_new(entries, lengths, pairs, None, false)?;
    RecordBatch::try_new(
        schema(TableKind::Contexts),
        vec![
            constant(&segment.to_string(), contexts.len())?,
            Arc::new(UInt32Array::from_iter_values((first..).take(contexts.len()))),
            Arc::new(map),
        ],
    )
}
