//! The functions of queries beside the engine's.

mod arguments;
mod call_graph;
mod flame_graph;
mod frames_of;
mod matches;
mod percentile;
mod segment_column;
mod sum;

use crate::Error;
use crate::names::NameSource;
use datafusion::error::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// The names of the functions of stacks.
pub(crate) const OF_STACKS: [&str; 4] = ["matches", "frames_of", "flamegraph", "folded"];

/// The source of names that the functions of a query share. A worker learns it with the plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<OnceLock<NameSource>>);

impl Names {
    /// Returns the source.
    pub(crate) fn source(&self) -> std::result::Result<&NameSource, Error> {
        let missing = || Error::Failed("a worker got no list of segments with its part".into());
        self.0.get().ok_or_else(missing)
    }

    /// Sets the source, unless there is one.
    pub(crate) fn set(&self, source: NameSource) {
        // Every part of a query has the same source.
        let _ = self.0.set(source);
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Names {}

impl Hash for Names {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Returns the functions of a row that need names.
fn scalars(names: &Names) -> Vec<ScalarUDF> {
    vec![
        ScalarUDF::from(matches::Matches::new(names.clone())),
        ScalarUDF::from(frames_of::FramesOf::new(names.clone())),
    ]
}

/// Returns the functions of groups that need names.
fn aggregates(names: &Names) -> Vec<AggregateUDF> {
    vec![
        AggregateUDF::from(flame_graph::FlameGraph::tree(names.clone())),
        AggregateUDF::from(flame_graph::FlameGraph::folded(names.clone())),
    ]
}

/// Registers all functions.
pub(crate) fn register(state: &mut SessionState, names: &Names) -> Result<()> {
    for function in scalars(names) {
        state.register_udf(Arc::new(function))?;
    }
    let own = percentile::all().into_iter().chain([sum::sum()]);
    for function in aggregates(names).into_iter().chain(own) {
        state.register_udaf(Arc::new(function))?;
    }
    state.register_function_rewrite(Arc::new(segment_column::SegmentColumn))
}
