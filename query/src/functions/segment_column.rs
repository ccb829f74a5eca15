//! The column `segment` of calls that name only `stack`.

use super::arguments::missing_segment;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;

/// The functions of stacks, and the number of their arguments with `segment`.
const FUNCTIONS: [(&str, usize); 4] = [("matches", 3), ("frames_of", 2), ("flamegraph", 3), ("folded", 3)];

/// Adds the column `segment` of the table that the column `stack` comes from.
#[derive(Debug)]
pub(super) struct SegmentColumn;

impl FunctionRewrite for SegmentColumn {
    fn name(&self) -> &str {
        "segment_of_stack"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let (name, arguments) = match &expr {
            Expr::ScalarFunction(call) => (call.name(), &call.args),
            Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
            _ => return Ok(Transformed::no(expr)),
        };
        let lacks_segment = FUNCTIONS
            .iter()
            .any(|(function, count)| *function == name && arguments.len() + 1 == *count);
        let Some(Expr::Column(stack)) = arguments.first().filter(|_| lacks_segment) else {
            return Ok(Transformed::no(expr));
        };
        let segment = Column {
            name: "segment".into(),
            ..stack.clone()
        };
        if !schema.has_column(&segment) {
            return Err(missing_segment().into());
        }
        let before = |arguments: Vec<Expr>| [vec![Expr::Column(segment)], arguments].concat();
        Ok(Transformed::yes(match expr {
            Expr::ScalarFunction(mut call) => {
                call.args = before(call.args);
                Expr::ScalarFunction(call)
            }
            Expr::AggregateFunction(mut call) => {
                call.params.args = before(call.params.args);
                Expr::AggregateFunction(call)
            }
            other => other,
        }))
    }
}
