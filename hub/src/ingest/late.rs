//! Reads stored bundles again when debug files came after them.

use super::regroup::{self, Symbolized};
use super::stored_crash;
use crate::analysis::{Analysis, AnalysisError, AnalysisRequest, Progress, RepackTask};
use crate::clock;
use crate::database::blobs;
use crate::database::exact_calls;
use crate::database::groups;
use crate::database::jobs::{self, Job, JobKind};
use crate::database::leases;
use crate::database::reports::{BundleState, ReportRow};
use crate::database::stack_keys;
use crate::database::symbols;
use crate::database::transact;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects;
use crate::symbols::debug_dir::{self, Supplied};
use sqlx::AnyConnection;
use std::path::{Component, Path};
use tokio::sync::watch;

/// The most by which clocks of two hubs differ.
const SKEW: i64 = 10 * clock::SECOND;

/// Reads the stored bundle of a report again, and groups its stack key by the symbols.
///
/// # Errors
/// Fails if the hub itself fails. A bundle that cannot be read again keeps its analysis.
pub async fn analyze(hub: &Hub, job: &Job, progress: &watch::Sender<Progress>) -> Result<()> {
    let report = match hub.database.report(&job.subject).await {
        Ok(report) if report.bundle == BundleState::Stored => report,
        // Retention removed the report or its bundle in between.
        Ok(_) | Err(Error::Absent(_)) => return hub.database.finish_job(job).await,
        Err(error) => return Err(error),
    };
    let folder = hub.work_folder("analyze-").await?;
    let outcome = read(hub, &report, folder.path(), progress).await;
    let removed =
        objects::blocking(move || folder.close().map_err(Error::system("remove a directory"))).await;
    match outcome {
        Ok((analysis, supplied)) => commit(hub, job, &report, &analysis, &supplied).await?,
        Err(Problem::Bundle(error)) => {
            tracing::warn!("cannot read the bundle of crash {} again: {error}", report.id);
            hub.database.finish_job(job).await?;
        }
        Err(Problem::Hub(error)) => return Err(error),
    }
    removed
}

/// The reason for which a bundle was not read again.
enum Problem {
    Bundle(AnalysisError),
    Hub(Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Hub(error)
    }
}

impl From<AnalysisError> for Problem {
    fn from(error: AnalysisError) -> Self {
        match error {
            AnalysisError::System(source) => Self::Hub(Error::system("run a child process")(source)),
            other => Self::Bundle(other),
        }
    }
}

/// Unpacks the stored parts of a bundle, and analyzes it with the hub's debug files.
async fn read(
    hub: &Hub,
    report: &ReportRow,
    folder: &Path,
    progress: &watch::Sender<Progress>,
) -> std::result::Result<(Analysis, Supplied), Problem> {
    let (lean, bundle, debug_files) = (
        folder.join("lean.btz"),
        folder.join("bundle"),
        folder.join("debug"),
    );
    let row = || format!("crash {}", report.id);
    let stored = hub.database.report_blobs(&report.id).await?;
    let whole = stored.iter().find(|(path, _)| path == "bundle");
    let (_, sha256) = whole.ok_or_else(|| Error::Absent(format!("stored bundle of {}", row())))?;
    copy(hub, sha256, &lean, row()).await?;
    let supervisor = hub.supervisor()?;
    let limit = hub.config.limits.unpacked_bytes;
    let missing = supervisor
        .repack(RepackTask::Unpack, &lean, &bundle, limit)
        .await?;
    for (file, sha256) in stored.iter().filter(|(path, _)| path != "bundle") {
        let path = Path::new(file);
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            let text = format!("the path \"{}\" leads out of the bundle", file.escape_debug());
            return Err(Problem::Hub(Error::Conflict(text)));
        }
        copy(hub, sha256, &bundle.join(path), row()).await?;
    }
    let build_ids: Vec<_> = missing
        .modules
        .iter()
        .map(|module| module.build_id.clone())
        .collect();
    let supplied = debug_dir::make(hub, &debug_files, &build_ids).await?;
    let request = AnalysisRequest {
        bundle,
        debug_dirs: vec![debug_files],
        source_dirs: Vec::new(),
        redactions: hub.redactions(),
    };
    Ok((supervisor.analyze(&request, progress).await?, supplied))
}

async fn copy(hub: &Hub, sha256: &str, path: &Path, row: String) -> Result<()> {
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent)
            .await
            .map_err(Error::file("create", parent))?;
    }
    let key = objects::blob(sha256);
    if hub.objects.copy_to(&key, path).await? {
        return Ok(());
    }
    Err(Error::MissingObject { row, key })
}

async fn commit(
    hub: &Hub,
    job: &Job,
    report: &ReportRow,
    analysis: &Analysis,
    supplied: &Supplied,
) -> Result<()> {
    let key = objects::analysis(&report.id);
    let old = hub.objects.get(&key).await?;
    let old = old.and_then(|bytes| serde_json::from_slice::<Analysis>(&bytes).ok());
    let old = old.as_ref().map(Symbolized::of);
    let new = Symbolized::of(analysis);
    let has_changed = old.is_none_or(|old| old.frames != new.frames || old.missing != new.missing);
    stored_crash::write_analysis(&hub.objects, &report.id, analysis).await?;
    let now = clock::now();
    if has_changed {
        stored_crash::note_symbols(&hub.objects, &report.id, now).await?;
    }
    transact!(hub.database, connection => {
        leases::lock_counts(connection).await?;
        jobs::finish(connection, job).await?;
        if has_changed {
            symbols::set_symbolized(connection, &report.id, now).await?;
        }
        exact_calls::set(connection, &report.id, &analysis.exact_calls).await?;
        if let Some(key) = stack_keys::find(connection, &report.key).await? {
            let outbox = hub.recorder.outbox();
            let group = regroup::regroup(connection, outbox, &key, &new, report, (now, "symbols")).await?;
            groups::recount(connection, &group).await?;
        }
        look_for(hub, connection, &report.id, &new.missing, supplied).await
    })
}

/// Adds a job for each debug file that an analysis lacked. If the file came during the analysis,
/// the job reads the bundle again. Else it fetches the file from upstream servers.
///
/// # Errors
/// Fails if the database fails.
pub async fn look_for(
    hub: &Hub,
    connection: &mut AnyConnection,
    report: &str,
    missing: &[String],
    supplied: &Supplied,
) -> Result<()> {
    for build_id in missing {
        let since = supplied.time - SKEW;
        match blobs::find_in_build(connection, build_id, "debuginfo").await? {
            Some(file) if file.created < since || supplied.has(&file) => {}
            Some(_) => jobs::add(connection, JobKind::Analyze, report, 0).await?,
            None if hub.upstream.servers().is_empty() => {}
            None => jobs::add(connection, JobKind::Fetch, build_id, clock::now()).await?,
        }
    }
    Ok(())
}
