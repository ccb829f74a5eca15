//! `p50(x)`, `p90(x)`, `p95(x)`, `p99(x)`: exact percentiles, and `approx_p50(x)` and so on.

use crate::Error;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_percentile_cont::approx_percentile_cont_udaf;
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility, lit,
};
use std::sync::Arc;

/// The percentiles.
const PERCENTILES: [u8; 4] = [50, 90, 95, 99];

/// A percentile, which the engine's own function computes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Percentile {
    name: String,
    percent: u8,
    is_exact: bool,
    signature: Signature,
}

/// Returns the functions.
pub(super) fn all() -> Vec<AggregateUDF> {
    let both = PERCENTILES
        .iter()
        .flat_map(|percent| [(*percent, true), (*percent, false)]);
    both.map(|(percent, is_exact)| {
        AggregateUDF::from(Percentile {
            name: format!("{}p{percent}", if is_exact { "" } else { "approx_" }),
            percent,
            is_exact,
            signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
        })
    })
    .collect()
}

impl AggregateUDFImpl for Percentile {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let name = &self.name;
        Err(Error::Sql(format!("`{name}` cannot have OVER; use percentile_cont")).into())
    }

    /// Replaces the call by one of the engine's function.
    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let fraction = f64::from(self.percent) / 100.0;
        let function = match self.is_exact {
            true => percentile_cont_udaf(),
            false => approx_percentile_cont_udaf(),
        };
        Some(Box::new(move |call: AggregateFunction, _: &SimplifyContext| {
            let mut params = call.params;
            params.args.push(lit(fraction));
            Ok(Expr::AggregateFunction(AggregateFunction {
                func: Arc::clone(&function),
                params,
            }))
        }))
    }
}
