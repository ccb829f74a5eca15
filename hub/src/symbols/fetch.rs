//! Files of builds: those of the hub, and else those of upstream servers, which it then keeps.

use super::debug_id::is_file_hash;
use super::store::{self, Expected, Refusal, StoredFile};
use super::upstream::{Answer, UpstreamError};
use crate::analysis::ElfContents;
use crate::clock::{HOUR, SECOND};
use crate::database::blobs::{BuildFile, FileKind};
use crate::database::transact;
use crate::error::{Error, Result};
use crate::hub::Hub;
use std::path::Path;
use std::sync::Arc;

/// The time for which the absence of a file at all servers is remembered.
const ABSENCE: i64 = HOUR;
/// The time for which a failing server is not asked again.
const FAILURE: i64 = 300 * SECOND;
/// The largest source file in bytes.
const MAX_SOURCE: u64 = 16 << 20;

/// Returns a file of a build. `None`: neither the hub nor an upstream server has it.
///
/// A download ends even if its client no longer waits.
///
/// # Errors
/// Fails if the hub itself fails.
pub async fn file(hub: &Arc<Hub>, build_id: &str, kind: &FileKind) -> Result<Option<BuildFile>> {
    if let Some(found) = hub.database.build_file(build_id, kind).await? {
        return Ok(Some(found));
    }
    // No server names files by their contents.
    if hub.upstream.servers().is_empty() || is_file_hash(build_id) {
        return Ok(None);
    }
    if hub.database.is_missed(build_id, kind.name()).await? {
        return Ok(None);
    }
    let (hub, build_id, kind) = (hub.clone(), build_id.to_owned(), kind.clone());
    let fetching = tokio::spawn(async move { from_upstream(&hub, &build_id, &kind).await });
    fetching
        .await
        .map_err(|error| Error::system("fetch a file from upstream servers")(std::io::Error::other(error)))?
}

/// Fetches a file from the first upstream server that has it.
///
/// # Errors
/// Fails if the hub itself fails. A failing server is no error.
pub async fn from_upstream(hub: &Hub, build_id: &str, kind: &FileKind) -> Result<Option<BuildFile>> {
    let lock = hub.upstream.lock(build_id, kind.name());
    let _alone = lock.lock().await;
    // Another request may have done it.
    if let Some(found) = hub.database.build_file(build_id, kind).await? {
        return Ok(Some(found));
    }
    if hub.database.is_missed(build_id, kind.name()).await? {
        return Ok(None);
    }
    let mut has_failed = false;
    for server in hub.upstream.servers() {
        if hub.database.is_failing(server).await? {
            has_failed = true;
            continue;
        }
        match from_server(hub, server, build_id, kind).await {
            Ok(true) => return hub.database.build_file(build_id, kind).await,
            Ok(false) => {}
            Err(Failure::Server(reason)) => {
                tracing::warn!("not asking {server} for a while: {reason}");
                hub.database.note_failure(server, FAILURE).await?;
                has_failed = true;
            }
            Err(Failure::Hub(error)) => return Err(error),
        }
    }
    let lifetime = if has_failed { FAILURE } else { ABSENCE };
    hub.database.note_miss(build_id, kind.name(), lifetime).await?;
    Ok(None)
}

/// The reason for which a server is not asked on.
enum Failure {
    Server(String),
    Hub(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Hub(error)
    }
}

/// Fetches and stores a file of one server. Returns whether the server has a usable one.
async fn from_server(
    hub: &Hub,
    server: &str,
    build_id: &str,
    kind: &FileKind,
) -> std::result::Result<bool, Failure> {
    let folder = hub.work_folder("upstream-").await?;
    let target = folder.path().join("file");
    let answer = {
        let upstream = hub.upstream.clone();
        let (server, build_id, kind) = (server.to_owned(), build_id.to_owned(), kind.name().to_owned());
        let target = target.clone();
        crate::objects::blocking(move || Ok(upstream.fetch(&server, &build_id, &kind, &target))).await?
    };
    let name = match answer {
        Ok(Answer::Found(name)) => name,
        Ok(Answer::Absent) => return Ok(false),
        Err(UpstreamError::Server(reason)) => return Err(Failure::Server(reason)),
        Err(error) => {
            tracing::warn!("skipped {} of build {build_id} at {server}: {error}", kind.name());
            return Ok(false);
        }
    };
    let usable = match kind {
        FileKind::Source(path) => source(hub, &target, build_id, path).await?,
        _ => {
            let name = name.unwrap_or_default();
            match store::put(hub, &target, &name, "upstream", Expected::BuildId(build_id)).await {
                Ok(file) if is_good_for(&file.contents, kind) => {
                    record(hub, &file).await?;
                    true
                }
                Ok(_) => false,
                Err(Refusal::File(reason)) => {
                    tracing::warn!(
                        "refused {} of build {build_id} at {server}: {reason}",
                        kind.name()
                    );
                    false
                }
                Err(Refusal::Hub(error)) => return Err(Failure::Hub(error)),
            }
        }
    };
    Ok(usable)
}

fn is_good_for(contents: &ElfContents, kind: &FileKind) -> bool {
    match kind {
        FileKind::Executable => contents.has_code,
        FileKind::Debuginfo => contents.detail() > 0,
        FileKind::SplitDwarf | FileKind::Source(_) => false,
    }
}

async fn record(hub: &Hub, file: &StoredFile) -> Result<()> {
    let keys = transact!(hub.database, connection => { store::record(connection, file).await })?;
    if keys > 0 {
        tracing::info!("symbols of build {} came for {keys} stack keys", file.build_id);
        hub.wake.notify_one();
    }
    Ok(())
}

/// Stores a source file. Its content cannot be checked against the build.
async fn source(hub: &Hub, path: &Path, build_id: &str, name: &str) -> Result<bool> {
    let length = tokio::fs::metadata(path)
        .await
        .map_err(Error::file("read", path))?
        .len();
    if length > MAX_SOURCE {
        return Ok(false);
    }
    let source = name.strip_prefix("source/").unwrap_or(name);
    let file = store::put_source(hub, path, build_id, source).await?;
    record(hub, &file).await?;
    Ok(true)
}
