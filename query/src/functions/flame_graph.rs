//! `flamegraph(segment, stack, weight)` and `folded(segment, stack, weight)`: the tree of calls of
//! a group, as JSON and as folded stacks.

use super::Names;
use super::arguments::{Stacks, no_stack, signature};
use super::call_graph::CallGraph;
use crate::Error;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringViewArray, UInt32Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature};
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::sync::Arc;

/// The text of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Text {
    /// A tree as JSON.
    Tree,
    /// Folded stacks.
    Folded,
}

/// The functions `flamegraph` and `folded`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FlameGraph {
    names: Names,
    text: Text,
    signature: Signature,
}

impl FlameGraph {
    fn new(names: Names, text: Text) -> Self {
        Self {
            names,
            text,
            signature: signature(&[DataType::Int64]),
        }
    }

    /// Builds `flamegraph`.
    pub(super) fn tree(names: Names) -> Self {
        Self::new(names, Text::Tree)
    }

    /// Builds `folded`.
    pub(super) fn folded(names: Names) -> Self {
        Self::new(names, Text::Folded)
    }
}

impl AggregateUDFImpl for FlameGraph {
    fn name(&self) -> &str {
        match self.text {
            Text::Tree => "flamegraph",
            Text::Folded => "folded",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |name: &str, kind: DataType| {
            let item = Arc::new(Field::new_list_field(kind, true));
            Arc::new(Field::new(
                format!("{}[{name}]", args.name),
                DataType::List(item),
                true,
            ))
        };
        Ok(vec![
            list("segments", DataType::Utf8View),
            list("stacks", DataType::UInt32),
            list("weights", DataType::Int64),
        ])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            let name = self.name();
            return Err(Error::Sql(format!(
                "`{name}` cannot have DISTINCT; use a subquery with DISTINCT"
            ))
            .into());
        }
        Ok(Box::new(Weights {
            names: self.names.clone(),
            text: self.text,
            weights: HashMap::new(),
            stacks: 0,
        }))
    }
}

/// The weights of a group's stacks, by segment.
#[derive(Debug)]
struct Weights {
    names: Names,
    text: Text,
    weights: HashMap<Box<str>, HashMap<u32, i64>>,
    stacks: usize,
}

impl Weights {
    fn add(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let stacks = Stacks::new(columns)?;
        let weights = columns
            .get(2)
            .and_then(|column| column.as_primitive_opt::<Int64Type>());
        let weights: &Int64Array =
            weights.ok_or_else(|| Error::Sql(format!("the weight of `{:?}` must be a number", self.text)))?;
        let mut rows = (0..stacks.len()).filter(|row| weights.is_valid(*row)).peekable();
        while let Some(row) = rows.next() {
            let Some((segment, stack)) = stacks.get(row) else {
                continue;
            };
            if !self.weights.contains_key(segment) {
                self.weights.insert(segment.into(), HashMap::new());
            }
            let Some(of_segment) = self.weights.get_mut(segment) else {
                continue;
            };
            let before = of_segment.len();
            let mut add = |stack, weight| {
                let sum: &mut i64 = of_segment.entry(stack).or_default();
                *sum = sum.saturating_add(weight);
            };
            add(stack, weights.value(row));
            // Rows of one segment usually follow each other.
            while let Some(row) = rows.peek().copied() {
                match stacks.get(row) {
                    Some((next, stack)) if next == segment => add(stack, weights.value(row)),
                    _ => break,
                }
                rows.next();
            }
            self.stacks += of_segment.len() - before;
        }
        Ok(())
    }

    /// Returns the tree. Its memory is taken from the query's.
    fn graph(&self) -> Result<CallGraph> {
        let source = self.names.source()?;
        let memory = MemoryConsumer::new("flame graph").register(source.pool());
        let mut graph = CallGraph::new();
        let mut segments: Vec<_> = self.weights.iter().collect();
        segments.sort_by_key(|(segment, _)| *segment);
        for (segment, stacks) in segments {
            let names = source.names(segment)?;
            for (stack, weight) in stacks {
                let on_stack = names.names(*stack).ok_or_else(|| no_stack(segment, *stack))?;
                graph.add(on_stack.rev(), *weight);
                if graph.bytes() > memory.size() {
                    memory.try_resize(graph.bytes().saturating_mul(2))?;
                }
            }
        }
        Ok(graph)
    }
}

impl Accumulator for Weights {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let graph = self.graph()?;
        Ok(ScalarValue::from(match self.text {
            Text::Tree => graph.json(),
            Text::Folded => graph.folded(),
        }))
    }

    fn size(&self) -> usize {
        let stack = 2 * size_of::<(u32, i64)>();
        size_of_val(self) + self.stacks * stack + self.weights.len() * 128
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let rows = || {
            self.weights.iter().flat_map(|(segment, stacks)| {
                stacks
                    .iter()
                    .map(move |(stack, weight)| (segment, *stack, *weight))
            })
        };
        let segments = StringViewArray::from_iter_values(rows().map(|(segment, ..)| segment));
        let stacks = UInt32Array::from_iter_values(rows().map(|(_, stack, _)| stack));
        let weights = Int64Array::from_iter_values(rows().map(|(.., weight)| weight));
        let list = |array: ArrayRef| {
            SingleRowListArrayBuilder::new(array)
                .with_nullable(true)
                .build_list_scalar()
        };
        Ok(vec![
            list(Arc::new(segments)),
            list(Arc::new(stacks)),
            list(Arc::new(weights)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |state| state.len());
        for row in 0..rows {
            let columns: Vec<ArrayRef> = states
                .iter()
                .filter_map(|state| {
                    let list = state.as_list_opt::<i32>()?;
                    list.is_valid(row).then(|| list.value(row))
                })
                .collect();
            if columns.len() == states.len() {
                self.add(&columns)?;
            }
        }
        Ok(())
    }
}
