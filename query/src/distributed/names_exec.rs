//! A node of plans that brings the list of segments and symbols to workers.

use super::wire::NameContext;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use std::fmt;
use std::sync::Arc;

/// A node that passes on the rows of its input.
#[derive(Clone, Debug)]
pub(super) struct NamesExec {
    input: Arc<dyn ExecutionPlan>,
    context: Arc<NameContext>,
}

impl NamesExec {
    /// Builds the node.
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, context: Arc<NameContext>) -> Self {
        Self { input, context }
    }

    /// Returns the list.
    pub(super) fn context(&self) -> &Arc<NameContext> {
        &self.context
    }
}

impl DisplayAs for NamesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamesExec")
    }
}

impl ExecutionPlan for NamesExec {
    fn name(&self) -> &str {
        "NamesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let missing = || DataFusionError::Internal("a NamesExec needs an input".into());
        let input = children.into_iter().next().ok_or_else(missing)?;
        Ok(Arc::new(Self::new(input, Arc::clone(&self.context))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

/// A rule that puts a [`NamesExec`] on each node with a function of stacks. A part of a plan is
/// sent to a worker alone, so that each needs one.
#[derive(Debug)]
pub(super) struct InsertNames(pub(super) Arc<NameContext>);

impl PhysicalOptimizerRule for InsertNames {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let insert = |node: Arc<dyn ExecutionPlan>| {
            Ok(match uses_names(node.as_ref())? {
                true => Transformed::yes(Arc::new(NamesExec::new(node, Arc::clone(&self.0))) as _),
                false => Transformed::no(node),
            })
        };
        plan.transform_up(insert).data()
    }

    fn name(&self) -> &str {
        "insert_names"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns whether a node evaluates a function of stacks.
fn uses_names(node: &dyn ExecutionPlan) -> Result<bool> {
    let is_of_stacks = |name: &str| crate::functions::OF_STACKS.contains(&name);
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let mut functions = aggregate.aggr_expr().iter();
        if functions.any(|function| is_of_stacks(function.fun().name())) {
            return Ok(true);
        }
    }
    let mut found = false;
    node.apply_expressions(&mut |expression| {
        expression.apply(|part| {
            let call = part.downcast_ref::<ScalarFunctionExpr>();
            found |= call.is_some_and(|call| is_of_stacks(call.fun().name()));
            Ok(match found {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })
    })?;
    Ok(found)
}
