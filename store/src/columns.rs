//! The columns of decoded batches by their types.

use crate::{Error, Result};
use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::{Array, DictionaryArray, PrimitiveArray, RecordBatch, StringArray};

/// Returns a column of a batch as an array of a type.
pub(crate) fn column<'a, A: Array + 'static>(key: &str, batch: &'a RecordBatch, name: &str) -> Result<&'a A> {
    let column = batch.column_by_name(name);
    let column = column.and_then(|column| column.as_any().downcast_ref::<A>());
    column.ok_or_else(|| Error::damaged(key, format!("the column `{name}` has another type")))
}

/// Returns the values of a column without nulls.
pub(crate) fn values<'a, T: ArrowPrimitiveType>(
    key: &str,
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a [T::Native]> {
    let column = column::<PrimitiveArray<T>>(key, batch, name)?;
    match column.null_count() {
        0 => Ok(column.values()),
        _ => Err(Error::damaged(key, format!("the column `{name}` has nulls"))),
    }
}

/// A column of texts that repeat.
pub(crate) struct Texts<'a> {
    keys: &'a PrimitiveArray<Int32Type>,
    values: &'a StringArray,
}

impl<'a> Texts<'a> {
    /// Returns a column of a batch.
    pub(crate) fn new(key: &str, batch: &'a RecordBatch, name: &str) -> Result<Self> {
        let array = column::<DictionaryArray<Int32Type>>(key, batch, name)?;
        let values = array.values().as_any().downcast_ref::<StringArray>();
        let values =
            values.ok_or_else(|| Error::damaged(key, format!("the column `{name}` has no texts")))?;
        let keys = array.keys();
        Ok(Self { keys, values })
    }

    /// Returns the distinct texts. Some may not be used, and some may be equal.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let values = self.values;
        (0..values.len()).map(move |index| match values.is_null(index) {
            true => "",
            false => values.value(index),
        })
    }

    /// Returns the index of a row's text among the distinct ones. `None`: no text.
    pub(crate) fn index(&self, row: usize) -> Option<usize> {
        let is_value = row < self.keys.len() && !self.keys.is_null(row);
        is_value.then(|| usize::try_from(self.keys.value(row)).unwrap_or(usize::MAX))
    }

    /// Returns the text of a row. `None`: no text.
    pub(crate) fn text(&self, row: usize) -> Option<&'a str> {
        let index = self.index(row).filter(|index| *index < self.values.len())?;
        (!self.values.is_null(index)).then(|| self.values.value(index))
    }
}
