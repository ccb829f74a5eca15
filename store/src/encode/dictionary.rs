//! Dictionary arrays of texts.

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow_schema::ArrowError;
use std::sync::Arc;

/// Returns a column with one text in all rows.
pub(crate) fn constant(text: &str, rows: usize) -> Result<ArrayRef, ArrowError> {
    let values = Arc::new(StringArray::from(vec![text]));
    texts(&(values as ArrayRef), Int32Array::from(vec![0; rows]))
}

/// Returns a column of texts by their indexes in `values`.
pub(crate) fn texts(values: &ArrayRef, keys: Int32Array) -> Result<ArrayRef, ArrowError> {
    let array = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(values))?;
    Ok(Arc::new(array))
}
