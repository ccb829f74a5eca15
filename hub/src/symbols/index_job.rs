//! The job that makes the index of a build, in a child process.

use super::debug_dir;
use super::index_record::{IndexRecord, IndexSources};
use crate::analysis::AnalysisError;
use crate::database::blobs::FileKind;
use crate::database::jobs::Job;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects::{self, blob};

/// Makes the index of the build that the job names, unless it is made of the same files already.
///
/// # Errors
/// Fails if the hub itself fails. A build without symbols is no error: its record has the reason.
pub async fn make(hub: &Hub, job: &Job) -> Result<()> {
    let id = job.subject.as_str();
    let executable = hub.database.build_file(id, &FileKind::Executable).await?;
    let debuginfo = hub.database.build_file(id, &FileKind::Debuginfo).await?;
    let split = hub.database.build_file(id, &FileKind::SplitDwarf).await?;
    let sources = IndexSources::of(executable.as_ref(), debuginfo.as_ref(), split.as_ref());
    let Some(file) = executable.or(debuginfo) else {
        return hub.database.finish_job(job).await;
    };
    let old = IndexRecord::read(&hub.objects, id).await?;
    let has_index = old.as_ref().is_some_and(|old| old.refused.is_none());
    if has_index && old.is_some_and(|old| old.sources == sources) {
        return hub.database.finish_job(job).await;
    }
    let folder = hub.work_folder("index-").await?;
    let at = |name: &str| folder.path().join(name);
    let debug = at("debug");
    debug_dir::make(hub, &debug, &[id.to_owned()]).await?;
    let key = blob(&file.sha256);
    if !hub.objects.copy_to(&key, &at("file")).await? {
        let row = format!("the {} of build {id}", file.kind.name());
        return Err(Error::MissingObject { row, key });
    }
    let (gsym, types) = (at("gsym"), at("types"));
    let made = hub.supervisor()?.index(&at("file"), &debug, &gsym, &types).await;
    let refused = match made {
        Ok(()) => None,
        Err(AnalysisError::System(source)) => return Err(Error::system("run a child process")(source)),
        Err(AnalysisError::Refused(reason)) => Some(reason),
        Err(other) => Some(other.to_string()),
    };
    match &refused {
        None => {
            hub.objects.put_copy(&objects::symbols(id, "gsym"), &gsym).await?;
            hub.objects
                .put_copy(&objects::symbols(id, "types"), &types)
                .await?;
            tracing::info!("made the index of build {id}");
        }
        Some(reason) => tracing::warn!("made no index of build {id}: {reason}"),
    }
    // An index of worse files is better than none.
    if refused.is_none() || !has_index {
        IndexRecord::new(sources, refused).write(&hub.objects, id).await?;
    }
    hub.indexes.remove(id);
    hub.database.finish_job(job).await
}
