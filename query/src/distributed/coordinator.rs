//! The side of the process that plans a query.

use super::codec::CoordinatorCodec;
use super::names_exec::InsertNames;
use super::token::Token;
use super::wire::NameContext;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{
    DistributedExec, DistributedExt, DistributedMetricsFormat, SessionStateBuilderExt, WorkerResolver,
    rewrite_distributed_plan_with_metrics,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// The time in which a worker must accept a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The time in which workers must report what they read, after the rows.
const METRICS: Duration = Duration::from_secs(2);
/// The bytes of files that are worth a worker's thread.
const BYTES_PER_THREAD: usize = 4 << 20;

/// The workers of a query.
#[derive(Clone)]
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> std::result::Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

/// Returns the workers that accept connections. Without any, this process answers alone.
pub(crate) async fn reachable(workers: Vec<Url>) -> Vec<Url> {
    let mut found = Vec::with_capacity(workers.len());
    for worker in workers {
        let host = worker
            .host_str()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        let port = worker.port_or_known_default().unwrap_or_default();
        let connection = timeout(CONNECT, TcpStream::connect((host, port))).await;
        if matches!(connection, Ok(Ok(_))) {
            found.push(worker);
        }
    }
    found
}

/// Adds the planning for workers to a session.
pub(crate) fn coordinate(
    state: SessionStateBuilder,
    workers: Vec<Url>,
    token: &Token,
    context: NameContext,
) -> std::result::Result<SessionStateBuilder, DataFusionError> {
    state
        .with_distributed_worker_resolver(Workers(workers))
        .with_distributed_planner()
        .with_distributed_user_codec(CoordinatorCodec)
        .with_distributed_passthrough_headers(token.headers())?
        .with_distributed_file_scan_config_bytes_per_partition(bytes_per_thread())
        .map(|state| state.with_physical_optimizer_rule(Arc::new(InsertNames(Arc::new(context)))))
}

/// Returns [`BYTES_PER_THREAD`], or the size that tests give.
fn bytes_per_thread() -> usize {
    let given = std::env::var("BACKTRAIL_QUERY_BYTES_PER_THREAD").ok();
    given
        .and_then(|given| given.parse().ok())
        .unwrap_or(BYTES_PER_THREAD)
}

/// Returns whether parts of a plan are sent to workers.
pub(crate) fn is_distributed(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<DistributedExec>().is_some()
}

/// Returns the bytes that workers read for a plan that has run.
pub(crate) async fn bytes_scanned(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    if !is_distributed(plan) {
        return 0;
    }
    let format = DistributedMetricsFormat::Aggregated;
    let plan = timeout(
        METRICS,
        rewrite_distributed_plan_with_metrics(Arc::clone(plan), format),
    )
    .await;
    match plan {
        Ok(Ok(plan)) => sum_scanned(&plan),
        // The rows are complete without this number.
        _ => 0,
    }
}

fn sum_scanned(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let own = plan
        .metrics()
        .and_then(|metrics| metrics.sum_by_name("bytes_scanned"))
        .map_or(0, |value| value.as_usize() as u64);
    let children = plan.children();
    children
        .iter()
        .fold(own, |sum, child| sum.saturating_add(sum_scanned(child)))
}
