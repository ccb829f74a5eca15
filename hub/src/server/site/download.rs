//! Downloads of whole bundles: the stored part and its modules, packed again.

use crate::analysis::RepackTask;
use crate::database::reports::BundleState;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::ingest::accept::{fetch, inside};
use crate::objects::{blocking, digest_of_file};
use crate::server::caller::Caller;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use backtrail_report::ReportId;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tokio_util::io::ReaderStream;

/// Bytes of packed bundles that are kept, so that a second download begins at once.
const CACHE: u64 = 8 << 30;

/// Sends a bundle with its modules. `X-Content-SHA256` is its digest.
///
/// # Errors
/// Fails if there is no such crash or no bundle of it, or the object store fails.
pub async fn bundle(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Response> {
    let absent = || Error::Absent(format!("bundle {name}"));
    let id: ReportId = name
        .strip_suffix(".btz")
        .and_then(|id| id.parse().ok())
        .ok_or_else(absent)?;
    let row = hub.database.report(id.as_str()).await?;
    if row.bundle != BundleState::Stored {
        return Err(Error::Absent(format!("stored bundle of crash {id}")));
    }
    let path = packed(&hub, id.as_str()).await?;
    let digest_path = path.with_extension("sha256");
    let digest = fs::read_to_string(&digest_path).map_err(Error::file("read", &digest_path))?;
    hub.database
        .log_action(&caller.name, "download", id.as_str())
        .await?;
    let file = tokio::fs::File::open(&path)
        .await
        .map_err(Error::file("open", &path))?;
    let length = file.metadata().await.map_err(Error::file("read", &path))?.len();
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/zstd".to_owned()),
        (header::CONTENT_LENGTH.as_str(), length.to_string()),
        (
            header::CONTENT_DISPOSITION.as_str(),
            format!("attachment; filename=\"{id}.btz\""),
        ),
        ("x-content-sha256", digest),
    ];
    Ok((
        headers,
        Body::from_stream(ReaderStream::with_capacity(file, 256 << 10)),
    )
        .into_response())
}

/// Returns the packed bundle in the cache. Several requests at once make it once.
async fn packed(hub: &Hub, id: &str) -> Result<PathBuf> {
    let cache = hub.config.data.join("cache");
    tokio::fs::create_dir_all(&cache)
        .await
        .map_err(Error::file("create", &cache))?;
    let path = cache.join(format!("{id}.btz"));
    let digest = path.with_extension("sha256");
    let _making = hub.packing.lock().await;
    if path.exists() && digest.exists() {
        let (touched, now) = (path.clone(), SystemTime::now());
        blocking(move || {
            let file = fs::File::options()
                .append(true)
                .open(&touched)
                .map_err(Error::file("open", &touched))?;
            file.set_modified(now).map_err(Error::file("touch", &touched))
        })
        .await?;
        return Ok(path);
    }
    let folder = tempfile::Builder::new()
        .prefix("pack-")
        .tempdir_in(&cache)
        .map_err(Error::file("create a directory in", &cache))?;
    let (lean, bundle, whole) = (
        folder.path().join("lean.btz"),
        folder.path().join("bundle"),
        folder.path().join("whole.btz"),
    );
    let blobs = hub.database.report_blobs(id).await?;
    let row = format!("crash {id}");
    let stored = blobs.iter().find(|(path, _)| path == "bundle");
    let (_, sha256) = stored.ok_or_else(|| Error::Absent(format!("stored bundle of crash {id}")))?;
    fetch(hub, sha256, &lean, row.clone()).await?;
    let supervisor = hub.supervisor()?;
    let limit = hub.config.limits.unpacked_bytes;
    let failed =
        |error: crate::analysis::AnalysisError| Error::Conflict(format!("cannot pack the bundle: {error}"));
    supervisor
        .repack(RepackTask::Unpack, &lean, &bundle, limit)
        .await
        .map_err(failed)?;
    for (file, sha256) in blobs.iter().filter(|(path, _)| path != "bundle") {
        fetch(hub, sha256, &inside(&bundle, file)?, row.clone()).await?;
    }
    supervisor
        .repack(RepackTask::Pack, &bundle, &whole, limit)
        .await
        .map_err(failed)?;
    let (target, listed) = (path.clone(), cache.clone());
    blocking(move || {
        let (sha256, _) = digest_of_file(&whole)?;
        fs::write(&digest, sha256).map_err(Error::file("write", &digest))?;
        fs::rename(&whole, &target).map_err(Error::file("create", &target))?;
        folder.close().map_err(Error::system("remove a directory"))?;
        evict(&listed, &target)
    })
    .await?;
    Ok(path)
}

/// Removes the bundles whose last download is longest ago, until the rest fits.
fn evict(cache: &std::path::Path, keep: &std::path::Path) -> Result<()> {
    let entries = fs::read_dir(cache).map_err(Error::file("read", cache))?;
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|kind| kind == "btz"))
        .filter_map(|entry| {
            let found = entry.metadata().ok()?;
            Some((found.modified().ok()?, found.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in files {
        if total <= CACHE {
            break;
        }
        if path != keep {
            // An open file stays readable.
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(path.with_extension("sha256"));
            total = total.saturating_sub(size);
        }
    }
    Ok(())
}
