//! Garbage collection: objects and files that no row names, after a day.
//!
//! A blob is marked first, and deleted by a later run. A job that will use a blob removes its mark
//! before it checks the object, see [`Database::reserve_blob`].

use crate::clock::{DAY, HOUR, SECOND};
use crate::database::Database;
use crate::database::reports::BundleState;
use crate::error::{Error, Result};
use crate::ingest::{stored_crash, upload};
use crate::objects::{self, Objects};
use crate::symbols::chunks;
use futures_util::TryStreamExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The age from which an object without a row is garbage.
const YOUNG: i64 = DAY;
/// The time between the mark of a blob and its deletion.
const MARKED: i64 = HOUR;
/// A minute.
const MINUTE: i64 = 60 * SECOND;
/// The age from which a deletion that was begun is known to be left to others.
const ENDED: i64 = 10 * MINUTE;
/// Uploads that are removed between two queries.
const BATCH: i64 = 100;

/// The numbers of removed objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Blobs.
    pub blobs: u64,
    /// Bytes of blobs.
    pub bytes: u64,
    /// Descriptions and analyses of crashes.
    pub crashes: u64,
    /// Uploads whose life ended.
    pub uploads: u64,
    /// Parts of uploads that no row names.
    pub parts: u64,
    /// Chunks of debug files whose life ended, or that no row names.
    pub chunks: u64,
    /// Directories of work that was cut off.
    pub directories: u64,
    /// Files of objects that were cut off.
    pub unfinished: u64,
    /// Indexes of builds that were not used for long.
    pub indexes: u64,
}

/// Removes garbage at a time.
///
/// # Errors
/// Fails if the database or the object store fails. The rest is done by the next run.
pub async fn run(database: &Database, store: &Objects, data: &Path, now: i64) -> Result<Collected> {
    let mut collected = Collected::default();
    // A hub that ended left these.
    for sha256 in database.doomed_blobs(now - ENDED).await? {
        delete_blob(database, store, &sha256).await?;
        collected.blobs += 1;
    }
    database.end_reservations(now).await?;
    collect_blobs(database, store, now, &mut collected).await?;
    collect_crashes(database, store, now, &mut collected).await?;
    collect_uploads(database, store, now, &mut collected).await?;
    collected.chunks = collect_chunks(database, store, now).await?;
    collected.directories = remove_work(&data.join("work")).await?;
    let limit = SystemTime::now() - Duration::from_secs(24 * 3600);
    collected.unfinished = store.remove_unfinished(limit).await?;
    Ok(collected)
}

async fn delete_blob(database: &Database, store: &Objects, sha256: &str) -> Result<()> {
    // Rows that name the blob must not come back.
    database.flush().await?;
    store.delete(&objects::blob(sha256)).await?;
    database.forget_doomed_blob(sha256).await
}

async fn collect_blobs(
    database: &Database,
    store: &Objects,
    now: i64,
    collected: &mut Collected,
) -> Result<()> {
    let mut listed = std::pin::pin!(store.list("blobs"));
    while let Some(object) = listed.try_next().await? {
        let Some(sha256) = object.key.strip_prefix("blobs/") else {
            continue;
        };
        if object.changed > now - YOUNG || !database.doom_blob(sha256, now, now - MARKED).await? {
            continue;
        }
        delete_blob(database, store, sha256).await?;
        collected.blobs += 1;
        collected.bytes += object.size;
    }
    Ok(())
}

/// Removes descriptions of bundles that are not stored, and all objects of reports that are gone.
async fn collect_crashes(
    database: &Database,
    store: &Objects,
    now: i64,
    collected: &mut Collected,
) -> Result<()> {
    let mut listed = std::pin::pin!(store.list("crashes"));
    while let Some(object) = listed.try_next().await? {
        let mut parts = object.key.split('/').skip(1);
        let (Some(report), Some(name)) = (parts.next(), parts.next()) else {
            continue;
        };
        if object.changed > now - YOUNG {
            continue;
        }
        let is_garbage = match database.report(report).await {
            // The hub that removed the bundle has ended.
            Ok(row) if name == "crash.json" && row.bundle == BundleState::Removed => {
                stored_crash::note_removal(store, report).await?;
                continue;
            }
            // The analysis of a removed bundle is kept for its page and its group.
            Ok(row) => match name {
                "crash.json" => !matches!(row.bundle, BundleState::Stored | BundleState::Checking),
                "removed.json" => row.bundle == BundleState::Stored,
                _ => false,
            },
            Err(Error::Absent(_)) => true,
            Err(error) => return Err(error),
        };
        if is_garbage {
            store.delete(&object.key).await?;
            collected.crashes += 1;
        }
    }
    Ok(())
}

async fn collect_uploads(
    database: &Database,
    store: &Objects,
    now: i64,
    collected: &mut Collected,
) -> Result<()> {
    loop {
        let expired = database.expired_uploads(now, BATCH).await?;
        let mut removed = 0;
        for upload in &expired {
            // One that its sender continued in between stays.
            if !database.delete_expired_upload(&upload.id, now).await? {
                continue;
            }
            removed += 1;
            upload::remove_parts(store, &upload.id).await?;
        }
        collected.uploads += removed;
        if removed == 0 {
            break;
        }
    }
    let mut listed = std::pin::pin!(store.list("uploads"));
    while let Some(object) = listed.try_next().await? {
        let Some(upload) = object.key.split('/').nth(1) else {
            continue;
        };
        if object.changed > now - YOUNG {
            continue;
        }
        match database.upload(upload).await {
            Ok(_) => {}
            Err(Error::Absent(_)) => {
                store.delete(&object.key).await?;
                collected.parts += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes expired chunks, and chunks that a killed hub wrote without a row.
async fn collect_chunks(database: &Database, store: &Objects, now: i64) -> Result<u64> {
    let mut removed = chunks::sweep(database, store, now).await?;
    let mut listed = std::pin::pin!(store.list("chunks"));
    while let Some(object) = listed.try_next().await? {
        let Some(sha1) = object.key.strip_prefix("chunks/") else {
            continue;
        };
        if object.changed > now - YOUNG || database.has_chunk(sha1).await? {
            continue;
        }
        store.delete(&object.key).await?;
        removed += 1;
    }
    Ok(removed)
}

/// Removes directories of jobs that a killed hub left.
async fn remove_work(work: &Path) -> Result<u64> {
    let work = work.to_owned();
    objects::blocking(move || {
        let entries = match std::fs::read_dir(&work) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(Error::file("read", &work)(error)),
        };
        let limit = SystemTime::now() - Duration::from_secs(24 * 3600);
        let mut removed = 0;
        for entry in entries.flatten() {
            let changed = entry.metadata().and_then(|metadata| metadata.modified());
            if changed.is_ok_and(|time| time < limit) {
                let path = entry.path();
                std::fs::remove_dir_all(&path).map_err(Error::file("remove", &path))?;
                removed += 1;
            }
        }
        Ok(removed)
    })
    .await
}
