//! Accepts an uploaded bundle: child processes check and read it, then it is stored as a whole or
//! not at all.

use super::late;
use super::regroup;
use super::samples;
use super::stored_crash::{self, StoredCrash, StoredModule};
use super::upload;
use crate::analysis::{Analysis, AnalysisError, AnalysisRequest, BundleModule, Progress, RepackTask};
use crate::clock;
use crate::database::blobs::{self, BuildFile, FileKind};
use crate::database::exact_calls;
use crate::database::groups;
use crate::database::jobs::{self, Job};
use crate::database::leases;
use crate::database::reports::{self, BundleState, ReportRow};
use crate::database::stack_keys;
use crate::database::symbols;
use crate::database::transact;
use crate::database::uploads::{self, Upload};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::{self, blob};
use crate::symbols::debug_dir::{self, Supplied};
use crate::symbols::store::put_blob;
use sqlx::AnyConnection;
use std::path::{Component, Path, PathBuf};
use tokio::sync::watch;

/// The reason for which a bundle is not stored.
enum Refusal {
    /// The bundle is at fault. The sender sees the sentence.
    Bundle(String),
    /// The hub is at fault, and tries again.
    Hub(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(text) => Self::Bundle(text),
            other => Self::Hub(other),
        }
    }
}

impl From<AnalysisError> for Refusal {
    fn from(error: AnalysisError) -> Self {
        match error {
            AnalysisError::System(source) => Self::Hub(Error::system("run a child process")(source)),
            other => Self::Bundle(other.to_string()),
        }
    }
}

/// Checks and stores an uploaded bundle.
///
/// # Errors
/// Fails if the hub itself fails. A refused bundle is no error: the report says why.
pub async fn accept(hub: &Hub, job: &Job, upload: &Upload, progress: &watch::Sender<Progress>) -> Result<()> {
    let report = match hub.database.report(&upload.subject).await {
        Ok(report) => report,
        Err(Error::Absent(_)) => {
            // Retention removed the report in between.
            hub.database.finish_job(job).await?;
            return upload::remove(&hub.database, &hub.objects, upload).await;
        }
        Err(error) => return Err(error),
    };
    let parent = hub.config.data.join("work");
    tokio::fs::create_dir_all(&parent)
        .await
        .map_err(Error::file("create", &parent))?;
    let folder = tempfile::Builder::new()
        .prefix("accept-")
        .tempdir_in(&parent)
        .map_err(Error::file("create a directory in", &parent))?;
    let outcome = store(hub, upload, &report, folder.path(), progress).await;
    // An unpacked bundle can have many files.
    let removed =
        objects::blocking(move || folder.close().map_err(Error::system("remove a directory"))).await;
    match outcome {
        Ok(accepted) => commit(hub, job, &upload.id, &report, &accepted).await?,
        Err(Refusal::Bundle(reason)) => {
            tracing::info!("refused the bundle of crash {}: {reason}", report.id);
            refuse(hub, job, upload, &reason).await?;
        }
        Err(Refusal::Hub(error)) => return Err(error),
    }
    removed?;
    upload::remove(&hub.database, &hub.objects, upload).await
}

/// A checked bundle whose objects are written.
struct Accepted {
    stored: StoredCrash,
    analysis: Analysis,
    /// The debug files that the analysis had.
    supplied: Supplied,
}

/// Writes all objects of a crash.
async fn store(
    hub: &Hub,
    upload: &Upload,
    report: &ReportRow,
    folder: &Path,
    progress: &watch::Sender<Progress>,
) -> std::result::Result<Accepted, Refusal> {
    let packed = folder.join("bundle.btz");
    upload::assemble(&hub.database, &hub.objects, upload, &packed).await?;
    let supervisor = hub.supervisor()?;
    let unpacked = folder.join("bundle");
    let limit = hub.config.limits.unpacked_bytes;
    let missing = supervisor
        .repack(RepackTask::Unpack, &packed, &unpacked, limit)
        .await?;
    for module in &missing.modules {
        supply(hub, &unpacked, module).await?;
    }
    let patterns = &hub.config.redact.environment;
    if !patterns.is_empty() {
        let scratch = folder.join("redacted");
        supervisor.redact(&unpacked, &scratch, patterns).await?;
    }
    let lean = folder.join("lean.btz");
    let repacked = supervisor
        .repack(RepackTask::Strip, &unpacked, &lean, limit)
        .await?;
    let build_ids: Vec<_> = repacked
        .modules
        .iter()
        .map(|module| module.build_id.clone())
        .collect();
    let debug_files = folder.join("debug");
    let supplied = debug_dir::make(hub, &debug_files, &build_ids).await?;
    let request = AnalysisRequest {
        bundle: unpacked.clone(),
        debug_dirs: vec![debug_files],
        source_dirs: Vec::new(),
        redactions: hub.redactions(),
    };
    let analysis = supervisor.analyze(&request, progress).await?;
    let mut modules = Vec::with_capacity(repacked.modules.len());
    for module in repacked.modules {
        let path = inside(&unpacked, &module.file)?;
        let (sha256, size) = put_blob(hub, &path).await?;
        modules.push(StoredModule {
            path: module.file,
            build_id: module.build_id,
            sha256,
            size,
            is_verified: module.is_verified,
            detail: module.detail,
        });
    }
    let (bundle, size) = put_blob(hub, &lean).await?;
    let stored = StoredCrash {
        report: serde_json::from_str(&report.report).unwrap_or_default(),
        received: report.received,
        stored: clock::now(),
        symbolized: None,
        reason: report.bundle_reason.clone(),
        bundle,
        size,
        modules,
    };
    stored_crash::write_analysis(&hub.objects, &report.id, &analysis).await?;
    stored.write(&hub.objects, &report.id).await?;
    Ok(Accepted {
        stored,
        analysis,
        supplied,
    })
}

/// Puts a module that the hub has to its place in an unpacked bundle.
async fn supply(hub: &Hub, unpacked: &Path, module: &BundleModule) -> std::result::Result<(), Refusal> {
    let file = hub
        .database
        .build_file(&module.build_id, &FileKind::Executable)
        .await?;
    let Some(file) = file else {
        return Err(Refusal::Bundle(format!(
            "the bundle leaves out {} with the build id {}, which this hub has not got; send the whole bundle",
            module.file, module.build_id
        )));
    };
    let path = inside(unpacked, &module.file)?;
    let row = format!("the file of build {}", module.build_id);
    fetch(hub, &file.sha256, &path, row).await?;
    Ok(())
}

/// Copies a blob to a new file.
///
/// # Errors
/// Fails if there is no such blob, or a file cannot be written.
pub async fn fetch(hub: &Hub, sha256: &str, path: &Path, row: String) -> Result<()> {
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent)
            .await
            .map_err(Error::file("create", parent))?;
    }
    let mut file = tokio::fs::File::create_new(path)
        .await
        .map_err(Error::file("create", path))?;
    let key = blob(sha256);
    if hub.objects.append_to(&key, &mut file).await?.is_none() {
        return Err(Error::MissingObject { row, key });
    }
    Ok(())
}

/// Returns the place of a file of a bundle. The child process has checked the path already.
///
/// # Errors
/// Fails if the path leads out of the bundle.
pub fn inside(root: &Path, file: &str) -> Result<PathBuf> {
    let path = Path::new(file);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if file.is_empty() || !is_plain {
        return Err(Error::Invalid(format!(
            "the path \"{}\" leads out of the bundle",
            file.escape_debug()
        )));
    }
    Ok(root.join(path))
}

/// Makes a stored bundle visible, and groups its key by its symbols.
///
/// The row of the upload goes with its job: a later upload of the same file begins again.
async fn commit(hub: &Hub, job: &Job, upload: &str, report: &ReportRow, accepted: &Accepted) -> Result<()> {
    let symbolized = regroup::Symbolized::of(&accepted.analysis);
    let replaced = transact!(hub.database, connection => {
        leases::lock_counts(connection).await?;
        uploads::delete(connection, upload).await?;
        jobs::finish(connection, job).await?;
        store_rows(connection, &report.id, &accepted.stored).await?;
        exact_calls::set(connection, &report.id, &accepted.analysis.exact_calls).await?;
        late::look_for(hub, connection, &report.id, &symbolized.missing, &accepted.supplied).await?;
        if let Some(key) = stack_keys::find(connection, &report.key).await? {
            let now = clock::now();
            let outbox = hub.recorder.outbox();
            let group =
                regroup::regroup(connection, outbox, &key, &symbolized, report, (now, "symbols")).await?;
            let replaced = samples::replace(connection, &group, report, now).await?;
            groups::recount(connection, &group).await?;
            return Ok(replaced);
        }
        Ok(None)
    })?;
    if let Some(replaced) = replaced {
        stored_crash::note_removal(&hub.objects, &replaced).await?;
    }
    // An earlier bundle of the same crash may have been removed.
    hub.objects.delete(&objects::removed_crash(&report.id)).await
}

/// Adds the rows of a stored bundle: its blobs, and the files of builds that it has.
///
/// # Errors
/// Fails if the database fails.
pub async fn store_rows(connection: &mut AnyConnection, report: &str, stored: &StoredCrash) -> Result<()> {
    let whole = stored.size + stored.modules.iter().map(|module| module.size).sum::<u64>();
    let whole = i64::try_from(whole).unwrap_or(i64::MAX);
    let size = i64::try_from(stored.size).unwrap_or(i64::MAX);
    blobs::note(connection, &stored.bundle, size).await?;
    blobs::use_in_report(connection, report, "bundle", &stored.bundle).await?;
    for module in &stored.modules {
        let size = i64::try_from(module.size).unwrap_or(i64::MAX);
        blobs::note(connection, &module.sha256, size).await?;
        blobs::use_in_report(connection, report, &module.path, &module.sha256).await?;
        // A file is a build's only if it says so itself.
        if module.is_verified {
            for kind in kinds_of(module) {
                let file = BuildFile {
                    build_id: module.build_id.clone(),
                    kind,
                    sha256: module.sha256.clone(),
                    name: name_of(&module.path),
                    size,
                    origin: "bundle".to_owned(),
                    detail: module.detail,
                    created: clock::now(),
                };
                let is_news = blobs::use_in_build(connection, &file).await?;
                if is_news && file.kind == FileKind::Debuginfo {
                    let _ = symbols::analyze_again(connection, &file.build_id).await?;
                }
            }
        }
    }
    reports::set_stored(connection, report, &stored.bundle, whole).await
}

/// Notes that a bundle is refused.
async fn refuse(hub: &Hub, job: &Job, upload: &Upload, reason: &str) -> Result<()> {
    transact!(hub.database, connection => {
        uploads::delete(connection, &upload.id).await?;
        jobs::finish(connection, job).await?;
        let from = [BundleState::Checking];
        let _ = reports::set_bundle(connection, &upload.subject, &from, BundleState::Refused, None, Some(reason)).await?;
        Ok(())
    })
}

/// Returns what a module is good for.
fn kinds_of(module: &StoredModule) -> Vec<FileKind> {
    let mut kinds = vec![FileKind::Executable];
    if module.detail > 0 {
        kinds.push(FileKind::Debuginfo);
    }
    kinds
}

fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_out_of_the_bundle_are_refused() {
        let root = Path::new("/srv");
        assert_eq!(
            inside(root, "modules/ab/ledger").unwrap(),
            Path::new("/srv/modules/ab/ledger")
        );
        for path in ["", "/etc/passwd", "../x", "modules/../../x", "./x"] {
            assert!(inside(root, path).is_err(), "{path}");
        }
    }
}
