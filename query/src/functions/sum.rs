//! `sum` of whole numbers that fails instead of passing 64 bits. The engine's own wraps around.

use crate::Error;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature,
};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// The type of a sum so far, which has place for 2^63 numbers.
const STATE: DataType = DataType::Decimal128(38, 0);

/// Returns the function.
pub(super) fn sum() -> AggregateUDF {
    AggregateUDF::from(CheckedSum { inner: sum_udaf() })
}

/// The engine's function, but for sums of whole numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    inner: Arc<AggregateUDF>,
}

fn too_large() -> Error {
    Error::Sql("a sum exceeds 64 bits; add up decimals: sum(CAST(weight AS DECIMAL(38, 0)))".into())
}

/// Returns whether a sum of this type is one that is checked.
fn is_checked_type(sum: &FieldRef, is_distinct: bool) -> bool {
    sum.data_type() == &DataType::Int64 && !is_distinct
}

fn is_checked(arguments: &AccumulatorArgs) -> bool {
    is_checked_type(&arguments.return_field, arguments.is_distinct)
}

/// Returns the numbers of columns.
fn numbers(columns: &[ArrayRef]) -> impl Iterator<Item = i128> {
    let columns = columns.iter().map(|column| column.as_primitive::<Int64Type>());
    columns.flat_map(|column| column.iter().flatten().map(i128::from))
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match is_checked_type(&arguments.return_field, arguments.is_distinct) {
            true => Ok(vec![Arc::new(Field::new(
                format!("{}[sum]", arguments.name),
                STATE,
                true,
            ))]),
            false => self.inner.state_fields(arguments),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_checked(&arguments) {
            true => Ok(Box::new(WideSum::default())),
            false => self.inner.accumulator(arguments),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match is_checked(&arguments) {
            true => Ok(Box::new(WideSum::default())),
            false => self.inner.create_sliding_accumulator(arguments),
        }
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        is_checked(&arguments) || self.inner.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match is_checked(&arguments) {
            true => Ok(Box::new(WideSums::default())),
            false => self.inner.create_groups_accumulator(arguments),
        }
    }
}

/// A sum and the number of its numbers. A sum of none is NULL.
#[derive(Clone, Copy, Debug, Default)]
struct WideSum {
    sum: i128,
    count: u64,
}

impl WideSum {
    fn value(self) -> Result<Option<i64>> {
        if self.count == 0 {
            return Ok(None);
        }
        Ok(Some(i64::try_from(self.sum).map_err(|_| too_large())?))
    }

    fn state_value(self) -> Option<i128> {
        (self.count > 0).then_some(self.sum)
    }
}

impl Accumulator for WideSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for number in numbers(values) {
            self.sum += number;
            self.count += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for number in numbers(values) {
            self.sum -= number;
            self.count = self.count.saturating_sub(1);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(self.value()?))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal128(self.state_value(), 38, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for part in states
            .iter()
            .flat_map(|array| array.as_primitive::<Decimal128Type>().iter().flatten())
        {
            self.sum = self.sum.saturating_add(part);
            self.count += 1;
        }
        Ok(())
    }
}

/// The sums of groups.
#[derive(Debug, Default)]
struct WideSums {
    sums: Vec<WideSum>,
}

impl WideSums {
    fn add(&mut self, group: usize, value: i128) {
        if let Some(sum) = self.sums.get_mut(group) {
            sum.sum = sum.sum.saturating_add(value);
            sum.count += 1;
        }
    }

    fn take(&mut self, emit: EmitTo) -> Vec<WideSum> {
        match emit {
            EmitTo::All => std::mem::take(&mut self.sums),
            EmitTo::First(count) => {
                let rest = self.sums.split_off(count.min(self.sums.len()));
                std::mem::replace(&mut self.sums, rest)
            }
        }
    }
}

fn is_wanted(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for WideSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sums.resize(total, WideSum::default());
        for array in values {
            let numbers = array.as_primitive::<Int64Type>().iter().enumerate();
            for ((row, number), group) in numbers.zip(groups) {
                if let Some(number) = number.filter(|_| is_wanted(filter, row)) {
                    self.add(*group, number.into());
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sums = self.take(emit).into_iter().map(WideSum::value);
        let sums: Int64Array = sums.collect::<Result<Vec<_>>>()?.into();
        Ok(Arc::new(sums))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = self.take(emit).into_iter().map(WideSum::state_value);
        let sums: Decimal128Array = sums.collect();
        Ok(vec![Arc::new(sums.with_precision_and_scale(38, 0)?)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.sums.resize(total, WideSum::default());
        for array in states {
            let parts = array.as_primitive::<Decimal128Type>().iter();
            for (part, group) in parts.zip(groups) {
                if let Some(part) = part {
                    self.add(*group, part);
                }
            }
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let states = values.iter().map(|array| {
            let numbers = array.as_primitive::<Int64Type>().iter().enumerate();
            let wide = numbers.map(|(row, number)| number.filter(|_| is_wanted(filter, row)).map(i128::from));
            let wide: Decimal128Array = wide.collect();
            Ok(Arc::new(wide.with_precision_and_scale(38, 0)?) as ArrayRef)
        });
        states.collect()
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<WideSum>()
    }
}
