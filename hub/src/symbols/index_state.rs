//! The state of a build's symbols: an open index, or the reason why there is none.

use super::debug_id::is_file_hash;
use super::index_record::{IndexRecord, IndexSources};
use crate::clock;
use crate::database::blobs::FileKind;
use crate::database::jobs::{self, JobKind};
use crate::database::transact;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::objects;
use backtrail_symbol_index::{FileBytes, Index, OpenOptions};
use std::sync::Arc;

/// The time for which a build without an index is not tried again. It is tried again after a
/// restart, so that a new hub can do better.
const REFUSAL: i64 = clock::DAY;
/// The fewest and the most bytes of decoded functions that an open index may keep.
const MIN_DECODED: usize = 1 << 20;
const MAX_DECODED: usize = 64 << 20;

/// The symbols of a build.
#[derive(Clone)]
pub enum BuildSymbols {
    /// The index is open.
    Ready(Arc<Index>),
    /// The index is being made, or a file is being fetched. A later request may have it.
    Pending,
    /// Neither the hub nor an upstream server has a file of the build.
    Absent,
    /// No index can be made of the build's files, for this reason.
    Malformed(String),
}

/// Returns the symbols of a build. Missing files and indexes are requested by jobs.
///
/// # Errors
/// Fails if the hub itself fails.
pub async fn symbols_of(hub: &Hub, build_id: &str) -> Result<BuildSymbols> {
    let cached = hub.indexes.get(build_id);
    if let Some(cached) = cached.as_ref().filter(|cached| cached.is_fresh) {
        return Ok(BuildSymbols::Ready(cached.index.clone()));
    }
    let record = IndexRecord::read(&hub.objects, build_id).await?;
    let executable = hub.database.build_file(build_id, &FileKind::Executable).await?;
    let debuginfo = hub.database.build_file(build_id, &FileKind::Debuginfo).await?;
    let split = hub.database.build_file(build_id, &FileKind::SplitDwarf).await?;
    let sources = IndexSources::of(executable.as_ref(), debuginfo.as_ref(), split.as_ref());
    if debuginfo.is_none() {
        fetch_later(hub, build_id).await?;
    }
    let Some(record) = record else {
        if !sources.is_empty() {
            add_job(hub, JobKind::Index, build_id).await?;
            return Ok(BuildSymbols::Pending);
        }
        let is_fetching = is_fetchable(hub, build_id).await?;
        return Ok(match is_fetching {
            true => BuildSymbols::Pending,
            false => BuildSymbols::Absent,
        });
    };
    let is_current = sources.is_empty() || record.sources == sources;
    if !is_current {
        add_job(hub, JobKind::Index, build_id).await?;
    }
    if let Some(reason) = record.refused {
        let started = clock::now() - i64::try_from(hub.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        if is_current && record.made >= started.max(clock::now() - REFUSAL) {
            return Ok(BuildSymbols::Malformed(reason));
        }
        add_job(hub, JobKind::Index, build_id).await?;
        return Ok(BuildSymbols::Pending);
    }
    record.renew(&hub.objects, build_id, clock::now()).await?;
    if let Some(cached) = cached.filter(|cached| cached.made == record.made) {
        hub.indexes.note_fresh(build_id);
        return Ok(BuildSymbols::Ready(cached.index));
    }
    read(hub, build_id, record.made).await
}

/// Reads and checks the objects of an index. One index is read at a time.
async fn read(hub: &Hub, build_id: &str, made: i64) -> Result<BuildSymbols> {
    let _alone = hub.indexes.reading.lock().await;
    // Another request may have done it.
    if let Some(cached) = hub.indexes.find(build_id).filter(|cached| cached.made == made) {
        return Ok(BuildSymbols::Ready(cached.index));
    }
    let gsym = hub.objects.get(&objects::symbols(build_id, "gsym")).await?;
    let types = hub.objects.get(&objects::symbols(build_id, "types")).await?;
    let (Some(gsym), Some(types)) = (gsym, types) else {
        return make_again(hub, build_id, "its objects are missing").await;
    };
    let bytes = (gsym.len() + types.len()) as u64;
    let (gsym, types): (FileBytes, FileBytes) = (Arc::new(gsym), Arc::new(types));
    let opened = objects::blocking(move || {
        // Decoded functions take several times the bytes of the file.
        let stored = usize::try_from(bytes).unwrap_or(MAX_DECODED);
        let cache_bytes = stored.saturating_mul(8).clamp(MIN_DECODED, MAX_DECODED);
        let options = OpenOptions { cache_bytes };
        let index = Index::open(gsym, types, &options);
        // The job that made the index checked its records.
        let checked = index.and_then(|index| index.check_sums().map(|()| index));
        Ok((checked, bytes + cache_bytes as u64))
    });
    match opened.await? {
        (Ok(index), bytes) => {
            let index = Arc::new(index);
            hub.indexes.add(build_id, index.clone(), bytes, made);
            Ok(BuildSymbols::Ready(index))
        }
        (Err(error), _) => make_again(hub, build_id, &error.to_string()).await,
    }
}

/// Lets a job make a damaged index again.
async fn make_again(hub: &Hub, build_id: &str, reason: &str) -> Result<BuildSymbols> {
    tracing::error!("cannot read the index of build {build_id}, and make it again: {reason}");
    hub.objects.delete(&objects::symbols(build_id, "json")).await?;
    add_job(hub, JobKind::Index, build_id).await?;
    Ok(BuildSymbols::Pending)
}

/// Returns whether upstream servers may have a file of a build.
async fn is_fetchable(hub: &Hub, build_id: &str) -> Result<bool> {
    let kind = FileKind::Debuginfo;
    let may_have = !hub.upstream.servers().is_empty() && !is_file_hash(build_id);
    Ok(may_have && !hub.database.is_missed(build_id, kind.name()).await?)
}

async fn fetch_later(hub: &Hub, build_id: &str) -> Result<()> {
    if is_fetchable(hub, build_id).await? {
        add_job(hub, JobKind::Fetch, build_id).await?;
    }
    Ok(())
}

async fn add_job(hub: &Hub, kind: JobKind, build_id: &str) -> Result<()> {
    transact!(hub.database, connection => {
        jobs::add(connection, kind, build_id, clock::now()).await
    })?;
    hub.wake.notify_one();
    Ok::<(), Error>(())
}
