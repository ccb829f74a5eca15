//! `rebuild-index`: a database from the journal and the descriptions of crashes.

use super::decisions;
use crate::analysis::Analysis;
use crate::clock;
use crate::database::{Database, groups, reports, stack_keys, transact};
use crate::error::{Error, Result};
use crate::ingest::accept::{StoredCrash, store_rows};
use crate::ingest::outbox::Outbox;
use crate::ingest::record::Recorder;
use crate::ingest::regroup::{self, Symbolized};
use crate::ingest::{journal, states};
use crate::objects::{self, Objects};
use crate::symbols::{self, store::StoredFile};
use futures_util::TryStreamExt;
use sqlx::AssertSqlSafe;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The start of each file of SQLite.
const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// The tables that are computed from objects.
const DERIVED: [&str; 18] = [
    "hosts",
    "builds",
    "host_builds",
    "groups",
    "group_words",
    "stack_keys",
    "key_hours",
    "key_hosts",
    "group_hours",
    "group_hosts",
    "reports",
    "segments",
    "blobs",
    "report_blobs",
    "build_files",
    "key_moves",
    "missing_symbols",
    "next_groups",
];

/// The numbers of a new index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Segments of the journal.
    pub segments: usize,
    /// Damaged lines of the journal.
    pub damaged: usize,
    /// Stored bundles.
    pub bundles: usize,
    /// Descriptions of bundles that cannot be read, or whose blobs are missing.
    pub broken: usize,
    /// Decisions of people.
    pub decisions: usize,
}

/// Fills an empty database from the objects. No alert is sent.
///
/// # Errors
/// Fails if the database or the object store fails.
pub async fn fill(database: &Database, store: &Objects) -> Result<Rebuilt> {
    let recorder = Recorder::new(Outbox::new(String::new(), &[]));
    let (segments, damaged) = journal::replay(database, store, &recorder, true).await?;
    eprintln!("read {segments} segments of the journal");
    let mut rebuilt = Rebuilt {
        segments,
        damaged,
        ..Rebuilt::default()
    };
    // Before the bundles, whose analyses had these files or were made again with them.
    restore_debug_files(database, store).await?;
    let mut crashes = Vec::new();
    let mut listed = std::pin::pin!(store.list("crashes"));
    while let Some(object) = listed.try_next().await? {
        if !object.key.ends_with("/crash.json") {
            continue;
        }
        let id = object.key.split('/').nth(1).unwrap_or_default().to_owned();
        crashes.push((object.changed, id));
    }
    // In the order in which they were stored: the first analysis of a group gives its words.
    crashes.sort_unstable();
    let total = crashes.len();
    for (at, (stored, id)) in crashes.into_iter().enumerate() {
        match restore_crash(database, store, recorder.outbox(), &id, stored).await? {
            true => rebuilt.bundles += 1,
            false => rebuilt.broken += 1,
        }
        if (at + 1) % 1000 == 0 {
            eprintln!("read {} of {total} bundles", at + 1);
        }
    }
    announce_silently(database, recorder.outbox()).await?;
    Ok(rebuilt)
}

/// Adds the rows of debug files that came without a bundle.
async fn restore_debug_files(database: &Database, store: &Objects) -> Result<()> {
    let mut described = Vec::new();
    let mut listed = std::pin::pin!(store.list("builds"));
    while let Some(object) = listed.try_next().await? {
        described.push((object.changed, object.key));
    }
    // In the order in which they were stored, because a later upload counts.
    described.sort_unstable();
    for (_, key) in described {
        let Some(bytes) = store.get(&key).await? else {
            continue;
        };
        let file: serde_json::Result<StoredFile> = serde_json::from_slice(&bytes);
        let Ok(file) = file else {
            eprintln!("the description {key} is damaged");
            continue;
        };
        if store.size(&objects::blob(&file.sha256)).await?.is_none() {
            eprintln!(
                "the file of build {} lacks the blob {}",
                file.build_id, file.sha256
            );
            continue;
        }
        transact!(database, connection => { symbols::store::record(connection, &file).await })?;
    }
    Ok(())
}

/// Adds the rows of one stored bundle. Returns `false` if its objects are damaged or missing.
async fn restore_crash(
    database: &Database,
    store: &Objects,
    outbox: &Outbox,
    id: &str,
    time: i64,
) -> Result<bool> {
    let crash = store.get(&objects::crash(id)).await?;
    let analysis = store.get(&objects::analysis(id)).await?;
    let (Some(crash), Some(analysis)) = (crash, analysis) else {
        return Ok(false);
    };
    let crash: serde_json::Result<StoredCrash> = serde_json::from_slice(&crash);
    let analysis: serde_json::Result<Analysis> = serde_json::from_slice(&analysis);
    let (Ok(crash), Ok(analysis)) = (crash, analysis) else {
        return Ok(false);
    };
    let blobs = crash.modules.iter().map(|module| &module.sha256);
    for sha256 in blobs.chain([&crash.bundle]) {
        if store.size(&objects::blob(sha256)).await?.is_none() {
            eprintln!("the bundle of crash {id} lacks the blob {sha256}");
            return Ok(false);
        }
    }
    let symbolized = Symbolized::of(&analysis);
    transact!(database, connection => {
        let Some(report) = reports::find(connection, id).await? else {
            return Ok(false);
        };
        reports::set_reason(connection, id, crash.reason.as_deref()).await?;
        store_rows(connection, id, &crash).await?;
        if let Some(key) = stack_keys::find(connection, &report.key).await? {
            let moment = (time, "symbols");
            let group = regroup::regroup(connection, outbox, &key, &symbolized, &report, moment).await?;
            groups::recount(connection, &group).await?;
        }
        Ok(true)
    })
}

/// Notes all groups as announced, because an earlier index announced them. Wanted bundles whose
/// time is over are no longer on their way.
async fn announce_silently(database: &Database, outbox: &Outbox) -> Result<()> {
    let ids: Vec<String> = sqlx::query_scalar("SELECT subject FROM jobs WHERE kind = 'announce'")
        .fetch_all(database.reader())
        .await?;
    for id in ids {
        transact!(database, connection => {
            states::announce(connection, outbox, &id, None, clock::now()).await
        })?;
    }
    transact!(database, connection => {
        sqlx::query("DELETE FROM jobs WHERE kind = 'announce'").execute(&mut *connection).await?;
        Ok(())
    })
}

/// Computes the index of a hub that does not run. Decisions of people are kept if the old database
/// can be read.
///
/// # Errors
/// Fails if the database or the object store fails. The old database is in place then, or its
/// decisions are in a file that the message names.
pub async fn run(address: &str, data: &Path, store: &Objects) -> Result<Rebuilt> {
    match sqlite_file(address) {
        Some(path) => in_new_file(&path, store).await,
        None => in_place(address, data, store).await,
    }
}

/// Returns the file of an address of SQLite.
#[must_use]
pub fn sqlite_file(address: &str) -> Option<PathBuf> {
    let path = address.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    Some(PathBuf::from(path))
}

/// Returns the address of a file of SQLite.
#[must_use]
pub fn sqlite_address(path: &Path) -> String {
    format!("sqlite://{}?mode=rwc", path.display())
}

/// Returns a file beside another one, with a suffix.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Moves a database of SQLite, with the files of its log.
fn move_database(from: &Path, to: &Path) -> Result<()> {
    for suffix in ["-wal", "-shm", ""] {
        let (from, to) = (beside(from, suffix), beside(to, suffix));
        match std::fs::rename(&from, &to) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::file("move", &from)(error)),
        }
    }
    Ok(())
}

async fn in_new_file(path: &Path, store: &Objects) -> Result<Rebuilt> {
    let mut kept = None;
    if path.exists() {
        match read_decisions(path).await {
            Ok(lines) => kept = Some(lines),
            Err(error) => {
                eprintln!("the old database cannot be read, so people's decisions are lost: {error}");
            }
        }
    }
    let fresh = beside(path, ".new");
    for suffix in ["-wal", "-shm", ""] {
        // One of an attempt that was cut off.
        let _ = std::fs::remove_file(beside(&fresh, suffix));
    }
    let database = Database::open(&sqlite_address(&fresh)).await?;
    if let Some(lines) = &kept {
        let _ = decisions::import_grouping(&database, lines).await?;
    }
    let mut rebuilt = fill(&database, store).await?;
    if let Some(lines) = kept {
        rebuilt.decisions = decisions::replace(&database, &lines).await?;
    }
    database.close().await;
    let old = beside(path, &format!(".old-{}", clock::now()));
    if path.exists() {
        move_database(path, &old)?;
        eprintln!("the old database is {}", old.display());
    }
    move_database(&fresh, path)?;
    Ok(rebuilt)
}

async fn read_decisions(path: &Path) -> Result<String> {
    let mut start = [0; HEADER.len()];
    let mut file = std::fs::File::open(path).map_err(Error::file("open", path))?;
    // Attempts to open another file as a database end after a long time-out only.
    if file.read_exact(&mut start).is_err() || start != *HEADER {
        let path = path.display();
        return Err(Error::Invalid(format!("{path} is no database of SQLite")));
    }
    let database = Database::open(&sqlite_address(path)).await?;
    let lines = decisions::export(&database).await;
    database.close().await;
    lines
}

async fn in_place(address: &str, data: &Path, store: &Objects) -> Result<Rebuilt> {
    let database = Database::open(address).await?;
    let lines = decisions::export(&database).await?;
    std::fs::create_dir_all(data).map_err(Error::file("create", data))?;
    let copy = data.join(format!("decisions-{}.jsonl", clock::now()));
    std::fs::write(&copy, &lines).map_err(Error::file("write", &copy))?;
    eprintln!("people's decisions are in {} as well", copy.display());
    transact!(database, connection => {
        for table in DERIVED {
            sqlx::query(AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&mut *connection).await?;
        }
        Ok(())
    })?;
    let mut rebuilt = fill(&database, store).await?;
    rebuilt.decisions = decisions::replace(&database, &lines).await?;
    database.close().await;
    Ok(rebuilt)
}
