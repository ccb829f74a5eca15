//! The arguments of functions of stacks.

use crate::{Error, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, UInt32Array};
use datafusion::arrow::datatypes::{DataType, UInt32Type};
use datafusion::logical_expr::{ColumnarValue, Signature, TypeSignature, Volatility};
use datafusion::scalar::ScalarValue;

/// Returns the signature of a function of `(segment, stack)` and more. `segment` may be left out:
/// [`super::segment_column`] adds the column.
pub(super) fn signature(more: &[DataType]) -> Signature {
    let with = |first: &[DataType]| TypeSignature::Exact([first, more].concat());
    let types = vec![
        with(&[DataType::Utf8View, DataType::UInt32]),
        with(&[DataType::UInt32]),
    ];
    Signature::one_of(types, Volatility::Stable)
}

/// The columns `segment` and `stack`.
#[derive(Debug)]
pub(super) struct Stacks {
    segments: StringViewArray,
    stacks: UInt32Array,
}

impl Stacks {
    /// Reads the columns.
    pub(super) fn new(columns: &[ArrayRef]) -> Result<Self> {
        let [segments, stacks, ..] = columns else {
            return Err(missing_segment());
        };
        match (
            segments.as_string_view_opt(),
            stacks.as_primitive_opt::<UInt32Type>(),
        ) {
            (Some(segments), Some(stacks)) => Ok(Self {
                segments: segments.clone(),
                stacks: stacks.clone(),
            }),
            _ => Err(missing_segment()),
        }
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.stacks.len().min(self.segments.len())
    }

    /// Returns segment and stack of a row, or `None` if one is null.
    pub(super) fn get(&self, row: usize) -> Option<(&str, u32)> {
        let is_valid = self.segments.is_valid(row) && self.stacks.is_valid(row);
        is_valid.then(|| (self.segments.value(row), self.stacks.value(row)))
    }
}

/// Returns the error of a call without the column `segment`.
pub(super) fn missing_segment() -> Error {
    Error::Sql("a function of stacks needs the columns `segment` and `stack` of one table".into())
}

/// Returns a constant text.
pub(super) fn constant<'a>(value: Option<&'a ColumnarValue>, what: &str) -> Result<&'a str> {
    match value {
        Some(ColumnarValue::Scalar(
            ScalarValue::Utf8View(Some(text))
            | ScalarValue::Utf8(Some(text))
            | ScalarValue::LargeUtf8(Some(text)),
        )) => Ok(text),
        _ => Err(Error::Sql(format!("the {what} must be a constant text"))),
    }
}

/// Returns the error of a stack that its segment does not have.
pub(super) fn no_stack(segment: &str, stack: u32) -> Error {
    Error::Failed(format!("segment {segment} has no stack {stack}"))
}
