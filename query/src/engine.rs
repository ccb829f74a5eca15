//! Running a query.

use crate::coverage::{Coverage, ResultColumn};
use crate::functions::{self, Names};
use crate::names::NameSource;
use crate::objects::CountingStore;
use crate::output::RowWriter;
use crate::request::{Limits, Request};
use crate::tables::{ScanLog, SegmentTable, answers, crashes, within};
use crate::{Error, Result, check, damage, distributed, session};
use backtrail_store::{SegmentEntry, TableKind};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures_util::StreamExt;
use object_store::ObjectStore;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use url::Url;

/// A query with all that it needs.
pub(crate) struct Query<'a> {
    /// The text, its input and its limits.
    pub(crate) request: Request,
    /// The object store.
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// The workers. Empty: this process does everything.
    pub(crate) workers: Vec<Url>,
    /// The folder for rows that do not fit into memory.
    pub(crate) spill: &'a Path,
}

impl Query<'_> {
    /// Runs the query, and writes its rows.
    pub(crate) async fn run(self, out: impl Write) -> Result<Coverage> {
        let store = Arc::new(CountingStore::new(
            self.objects,
            self.request.limits.scanned_bytes,
        ));
        let log = ScanLog::default();
        let answer = answer(
            self.request,
            Arc::clone(&store),
            &log,
            self.spill,
            self.workers,
            out,
        )
        .await;
        match answer {
            // The engine's errors of damaged files do not name the file.
            Err(Error::Damaged { key, problem }) if key.is_empty() => {
                Err(damage::find(store.inner(), &log.keys(), problem).await)
            }
            other => other,
        }
    }
}

async fn answer(
    request: Request,
    store: Arc<CountingStore>,
    log: &ScanLog,
    spill: &Path,
    workers: Vec<Url>,
    out: impl Write,
) -> Result<Coverage> {
    let statement = check::parse(&request.sql)?;
    let Request {
        segments,
        limits,
        format,
        symbols,
        crashes: crash_rows,
        answers: given_rows,
        times,
        ..
    } = request;
    let segments: Arc<[SegmentEntry]> = segments.into();
    let times = times.filter(|times| segments.iter().any(|segment| !times.contains_all(segment)));
    let of_engine = |error: DataFusionError| Error::of_engine(&error, limits.memory_bytes);

    let runtime = session::runtime(Arc::clone(&store), &limits, spill)?;
    let pool = Arc::clone(&runtime.memory_pool);
    let names = Names::default();
    let hours = segments.iter().map(|segment| (segment.id, segment.hour));
    names.set(NameSource::new(
        Arc::clone(&store),
        pool,
        limits.memory_bytes,
        hours.collect(),
        &symbols,
    )?);
    let mut state = SessionStateBuilder::new()
        .with_config(session::config(&limits))
        .with_runtime_env(runtime)
        .with_default_features();
    let workers = distributed::reachable(workers).await;
    let worker_count = workers.len() as u64;
    if !workers.is_empty() {
        let context = distributed::NameContext::new(&segments, &symbols);
        let token = distributed::Token::of_environment()?;
        state = distributed::coordinate(state, workers, &token, context).map_err(of_engine)?;
    }
    let mut state = state.build();
    functions::register(&mut state, &names).map_err(of_engine)?;
    let context = SessionContext::new_with_state(state);
    for kind in TableKind::ALL {
        let table = Arc::new(SegmentTable::new(kind, Arc::clone(&segments), log.clone()));
        let table = match (kind, &times) {
            (TableKind::Samples, Some(times)) => within(&context, table, times).map_err(of_engine)?,
            _ => table,
        };
        context.register_table(kind.name(), table).map_err(of_engine)?;
    }
    let table = crashes(&crash_rows).map_err(of_engine)?;
    context.register_table("crashes", table).map_err(of_engine)?;
    if let Some(given) = given_rows {
        context
            .register_table("answers", answers(given)?)
            .map_err(of_engine)?;
    }

    let state = context.state();
    let plan = state.statement_to_plan(statement).await.map_err(of_engine)?;
    let only_reading = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    only_reading
        .verify_plan(&plan)
        .map_err(|error| Error::Refused(crate::error::sentence(&error.message())))?;
    let plan = state.create_physical_plan(&plan).await.map_err(of_engine)?;
    let (returned, truncated) = write_rows(Arc::clone(&plan), &context, &limits, format, out).await?;
    let read_by_workers = distributed::bytes_scanned(&plan).await;
    Ok(Coverage {
        segments_total: segments.len() as u64,
        segments: log.segments(),
        rows: log.rows(),
        bytes: store.bytes_read().max(read_by_workers),
        workers: if distributed::is_distributed(&plan) {
            worker_count
        } else {
            0
        },
        returned,
        truncated,
        columns: ResultColumn::all(&plan.schema()),
    })
}

/// Writes the rows of a plan. Returns their number, and whether there are more than the limit.
async fn write_rows(
    plan: Arc<dyn ExecutionPlan>,
    context: &SessionContext,
    limits: &Limits,
    format: crate::request::Format,
    out: impl Write,
) -> Result<(u64, bool)> {
    let of_engine = |error: DataFusionError| Error::of_engine(&error, limits.memory_bytes);
    let schema = plan.schema();
    let mut rows = execute_stream(plan, context.task_ctx()).map_err(of_engine)?;
    let mut writer = RowWriter::new(format, &schema, out)?;
    let mut returned = 0u64;
    let mut truncated = false;
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(of_engine)?;
        let left = limits.rows.saturating_sub(returned);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        truncated = batch.num_rows() > left;
        let batch = batch.slice(0, batch.num_rows().min(left));
        returned = returned.saturating_add(batch.num_rows() as u64);
        if batch.num_rows() > 0 {
            writer.write(&batch)?;
        }
        if truncated {
            break;
        }
    }
    writer.finish()?;
    Ok((returned, truncated))
}
