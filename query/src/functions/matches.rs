//! `matches(segment, stack, 'regex')`: whether a stack has a function or module that matches.

use super::Names;
use super::arguments::{Stacks, constant, no_stack, signature};
use crate::Error;
use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};
use std::sync::Arc;

/// The function `matches`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Matches {
    names: Names,
    signature: Signature,
}

impl Matches {
    /// Builds the function.
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            signature: signature(&[DataType::Utf8View]),
        }
    }

    fn rows(&self, stacks: &Stacks, pattern: &str) -> std::result::Result<BooleanArray, Error> {
        let mut current: Option<(&str, Arc<[bool]>)> = None;
        let mut rows = Vec::with_capacity(stacks.len());
        for row in 0..stacks.len() {
            let Some((segment, stack)) = stacks.get(row) else {
                rows.push(None);
                continue;
            };
            let found = match &current {
                Some((name, found)) if *name == segment => Arc::clone(found),
                _ => {
                    let found = self.names.source()?.matches(segment, pattern)?;
                    current = Some((segment, Arc::clone(&found)));
                    found
                }
            };
            let index = usize::try_from(stack).unwrap_or(usize::MAX);
            let is_match = found.get(index).ok_or_else(|| no_stack(segment, stack))?;
            rows.push(Some(*is_match));
        }
        Ok(BooleanArray::from(rows))
    }
}

impl ScalarUDFImpl for Matches {
    fn name(&self) -> &str {
        "matches"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let pattern = constant(call.args.get(2), "pattern of `matches`")?.to_owned();
        let columns = ColumnarValue::values_to_arrays(&call.args)?;
        let rows = self.rows(&Stacks::new(&columns)?, &pattern)?;
        Ok(ColumnarValue::Array(Arc::new(rows)))
    }
}
