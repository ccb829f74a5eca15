//! `rebuild-index`: a database from the journal and the descriptions of crashes.

use super::{decisions, profile_segments, rows};
use crate::analysis::Analysis;
use crate::clock;
use crate::database::{
    Database, exact_calls, groups, reports, sqlite_file, stack_keys, symbols as symbol_rows, transact,
};
use crate::error::{Error, Result};
use crate::ingest::accept::store_rows;
use crate::ingest::outbox::Outbox;
use crate::ingest::record::Recorder;
use crate::ingest::regroup::{self, Symbolized};
use crate::ingest::stored_crash::StoredCrash;
use crate::ingest::{journal, states};
use crate::objects::{self, Objects};
use crate::symbols::{self, store::StoredFile};
use futures_util::TryStreamExt;
use sqlx::AssertSqlSafe;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The start of each file of SQLite.
const HEADER: &[u8; 16] = b"SQLite format 3\0";

/// The tables that are computed from objects.
const DERIVED: [&str; 20] = [
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
    "key_functions",
    "exact_calls",
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
    /// Segments of profiles that only their files described.
    pub profiles: usize,
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
    let crashes = described_crashes(store, &mut rebuilt.broken).await?;
    let total = crashes.len();
    for (at, crash) in crashes.iter().enumerate() {
        match restore_crash(database, store, recorder.outbox(), crash).await? {
            Some(true) => rebuilt.bundles += 1,
            Some(false) => {}
            None => rebuilt.broken += 1,
        }
        if (at + 1) % 1000 == 0 {
            eprintln!("read {} of {total} bundles", at + 1);
        }
    }
    announce_silently(database, recorder.outbox()).await?;
    Ok(rebuilt)
}

/// A description of a crash, whose bundle is stored or was removed.
struct Described {
    /// The time at which the bundle was stored.
    stored: i64,
    id: String,
    key: String,
    is_removed: bool,
}

/// Returns the descriptions of crashes in the order in which their bundles were stored: the first
/// analysis of a group gives its words. Counts those that cannot be read.
async fn described_crashes(store: &Objects, broken: &mut usize) -> Result<Vec<Described>> {
    let mut crashes: BTreeMap<String, Described> = BTreeMap::new();
    let mut listed = std::pin::pin!(store.list("crashes"));
    while let Some(object) = listed.try_next().await? {
        let is_removed = object.key.ends_with("/removed.json");
        if !is_removed && !object.key.ends_with("/crash.json") {
            continue;
        }
        let id = object.key.split('/').nth(1).unwrap_or_default().to_owned();
        // A bundle that was sent again after its removal counts.
        if is_removed && crashes.contains_key(&id) {
            continue;
        }
        let text = store.get(&object.key).await?;
        let crash = text.and_then(|text| serde_json::from_slice::<StoredCrash>(&text).ok());
        let Some(crash) = crash else {
            eprintln!("the description {} is damaged", object.key);
            *broken += 1;
            continue;
        };
        let described = Described {
            // A restored object is younger than its bundle.
            stored: if crash.stored == 0 {
                object.changed
            } else {
                crash.stored
            },
            id: id.clone(),
            key: object.key,
            is_removed,
        };
        crashes.insert(id, described);
    }
    let mut crashes: Vec<_> = crashes.into_values().collect();
    crashes.sort_unstable_by(|one, other| (one.stored, &one.id).cmp(&(other.stored, &other.id)));
    Ok(crashes)
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

/// Adds the rows of one crash. Returns whether its bundle is stored. `None`: its objects are
/// damaged or missing.
async fn restore_crash(
    database: &Database,
    store: &Objects,
    outbox: &Outbox,
    described: &Described,
) -> Result<Option<bool>> {
    let Described { stored, id, .. } = described;
    let crash = store.get(&described.key).await?;
    let analysis = store.get(&objects::analysis(id)).await?;
    let (Some(crash), Some(analysis)) = (crash, analysis) else {
        return Ok(None);
    };
    let crash: serde_json::Result<StoredCrash> = serde_json::from_slice(&crash);
    let analysis: serde_json::Result<Analysis> = serde_json::from_slice(&analysis);
    let (Ok(crash), Ok(analysis)) = (crash, analysis) else {
        return Ok(None);
    };
    let blobs = crash.modules.iter().map(|module| &module.sha256);
    for sha256 in blobs.chain([&crash.bundle]).filter(|_| !described.is_removed) {
        if store.size(&objects::blob(sha256)).await?.is_none() {
            eprintln!("the bundle of crash {id} lacks the blob {sha256}");
            return Ok(None);
        }
    }
    let symbolized = Symbolized::of(&analysis);
    transact!(database, connection => {
        let Some(report) = reports::find(connection, id).await? else {
            return Ok(None);
        };
        reports::set_reason(connection, id, crash.reason.as_deref()).await?;
        if let Some(time) = crash.symbolized {
            symbol_rows::set_symbolized(connection, id, time).await?;
        }
        if described.is_removed {
            reports::set_removed(connection, id).await?;
        } else {
            store_rows(connection, id, &crash).await?;
            exact_calls::set(connection, id, &analysis.exact_calls).await?;
        }
        if let Some(key) = stack_keys::find(connection, &report.key).await? {
            let moment = (*stored, "symbols");
            let group = regroup::regroup(connection, outbox, &key, &symbolized, &report, moment).await?;
            groups::recount(connection, &group).await?;
        }
        Ok(Some(!described.is_removed))
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
        match read_old(path).await {
            Ok(lines) => kept = Some(lines),
            Err(error) => {
                eprintln!(
                    "the old database cannot be read, so people's decisions and uploads on their way are lost: {error}"
                );
            }
        }
    }
    let fresh = beside(path, ".new");
    for suffix in ["-wal", "-shm", ""] {
        // One of an attempt that was cut off.
        let _ = std::fs::remove_file(beside(&fresh, suffix));
    }
    let database = Database::open(&sqlite_address(&fresh)).await?;
    if let Some((lines, _)) = &kept {
        let _ = decisions::import_grouping(&database, lines).await?;
    }
    let mut rebuilt = fill(&database, store).await?;
    if let Some((lines, work)) = kept {
        rebuilt.decisions = decisions::replace(&database, &lines).await?;
        rows::import_work(&database, &work).await?;
    }
    rebuilt.profiles = profile_segments::recover(&database, store).await?;
    database.close().await;
    let old = beside(path, &format!(".old-{}", clock::now()));
    if path.exists() {
        move_database(path, &old)?;
        eprintln!("the old database is {}", old.display());
    }
    move_database(&fresh, path)?;
    Ok(rebuilt)
}

/// Returns people's decisions in an old database, and its uploads and jobs.
async fn read_old(path: &Path) -> Result<(String, String)> {
    let mut start = [0; HEADER.len()];
    let mut file = File::open(path).map_err(Error::file("open", path))?;
    // Attempts to open another file as a database end after a long time-out only.
    if file.read_exact(&mut start).is_err() || start != *HEADER {
        let path = path.display();
        return Err(Error::Invalid(format!("{path} is no database of SQLite")));
    }
    let database = Database::open(&sqlite_address(path)).await?;
    let lines = decisions::export(&database).await;
    let work = rows::export(&database, &rows::WORK).await;
    database.close().await;
    Ok((lines?, work?))
}

async fn in_place(address: &str, data: &Path, store: &Objects) -> Result<Rebuilt> {
    let database = Database::open(address).await?;
    std::fs::create_dir_all(data).map_err(Error::file("create", data))?;
    // An attempt that was cut off has emptied the tables: its decisions count.
    let unfinished = data.join("decisions.unfinished");
    let lines = match std::fs::read_to_string(&unfinished) {
        Ok(lines) => lines,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut lines = decisions::export(&database).await?;
            lines += &rows::export(&database, &rows::ANNOUNCEMENTS).await?;
            write_whole(&unfinished, lines.as_bytes())?;
            lines
        }
        Err(error) => return Err(Error::file("read", &unfinished)(error)),
    };
    transact!(database, connection => {
        for table in DERIVED {
            sqlx::query(AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&mut *connection).await?;
        }
        Ok(())
    })?;
    let mut rebuilt = fill(&database, store).await?;
    rebuilt.decisions = decisions::replace(&database, &lines).await?;
    transact!(database, connection => { rows::mark_checking(connection).await })?;
    rebuilt.profiles = profile_segments::recover(&database, store).await?;
    database.close().await;
    let copy = data.join(format!("decisions-{}.jsonl", clock::now()));
    std::fs::rename(&unfinished, &copy).map_err(Error::file("move", &unfinished))?;
    eprintln!("people's decisions are in {} as well", copy.display());
    Ok(rebuilt)
}

/// Writes a file as a whole or not at all.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let part = beside(path, ".part");
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.map_err(Error::file("write", &part))?;
    std::fs::rename(&part, path).map_err(Error::file("write", path))
}
