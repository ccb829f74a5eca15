//! `frames_of(segment, stack)`: the names on a stack, the innermost first.

use super::Names;
use super::arguments::{Stacks, no_stack, signature};
use crate::Error;
use crate::names::SegmentNames;
use datafusion::arrow::array::{ListArray, ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};
use std::sync::Arc;

/// The function `frames_of`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FramesOf {
    names: Names,
    signature: Signature,
}

impl FramesOf {
    /// Builds the function.
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            signature: signature(&[]),
        }
    }

    fn rows(&self, stacks: &Stacks) -> std::result::Result<ListArray, Error> {
        let mut current: Option<(&str, Arc<SegmentNames>)> = None;
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..stacks.len() {
            let Some((segment, stack)) = stacks.get(row) else {
                lists.append_null();
                continue;
            };
            let names = match &current {
                Some((name, names)) if *name == segment => Arc::clone(names),
                _ => {
                    let names = self.names.source()?.names(segment)?;
                    current = Some((segment, Arc::clone(&names)));
                    names
                }
            };
            let on_stack = names.names(stack).ok_or_else(|| no_stack(segment, stack))?;
            on_stack.for_each(|name| lists.values().append_value(name));
            lists.append(true);
        }
        Ok(lists.finish())
    }
}

impl ScalarUDFImpl for FramesOf {
    fn name(&self) -> &str {
        "frames_of"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        let item = Field::new_list_field(DataType::Utf8, true);
        Ok(DataType::List(Arc::new(item)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&call.args)?;
        let rows = self.rows(&Stacks::new(&columns)?)?;
        Ok(ColumnarValue::Array(Arc::new(rows)))
    }
}
