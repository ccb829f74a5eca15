//! Backups: people's decisions, a copy of the database, and all objects.

use super::{decisions, rebuild, rows};
use crate::database::{Database, Kind, sqlite_file};
use crate::error::{Error, Result};
use crate::objects::Objects;
use futures_util::TryStreamExt;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file with decisions.
const DECISIONS: &str = "decisions.jsonl";
/// The copy of a database of SQLite.
const DATABASE: &str = "hub.db";
/// The directory of objects.
const OBJECTS: &str = "objects";
/// The objects that a backup has. Uploads that are not complete are left out.
const PREFIXES: [&str; 5] = ["journal", "crashes", "builds", "blobs", "profiles"];

/// The numbers of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Objects that were copied.
    pub objects: u64,
    /// Objects that were there already.
    pub known: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// Writes a backup to a directory. A directory with an earlier backup gets what is new. The hub may
/// run at the same time.
///
/// # Errors
/// Fails if the directory, the database or the object store fails.
pub async fn backup(database: &Database, store: &Objects, directory: &Path) -> Result<Copied> {
    // A backup has the memory of programs and hashes of tokens.
    let mut builder = fs::DirBuilder::new();
    let builder = builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .map_err(Error::file("create", directory))?;
    // The database is first: all objects that it names are there when they are copied.
    let lines = decisions::export(database).await?;
    rebuild::write_whole(&directory.join(DECISIONS), lines.as_bytes())?;
    if database.kind() == Kind::Sqlite {
        let (path, part) = (directory.join(DATABASE), directory.join("hub.db.part"));
        remove_if_there(&part)?;
        let name = part
            .to_str()
            .ok_or_else(|| Error::Configuration(format!("{} is no path in UTF-8", directory.display())))?;
        sqlx::query("VACUUM INTO $1")
            .bind(name)
            .execute(database.reader())
            .await?;
        fs::rename(&part, &path).map_err(Error::file("write", &path))?;
    }
    match database.kind() {
        Kind::Sqlite => eprintln!("copied the database"),
        Kind::Postgres => eprintln!("copied the decisions of people; pg_dump copies the database"),
    }
    let mut copied = Copied::default();
    for prefix in PREFIXES {
        let mut listed = std::pin::pin!(store.list(prefix));
        while let Some(object) = listed.try_next().await? {
            let path = directory.join(OBJECTS).join(&object.key);
            // Segments and descriptions change with retention, blobs never do.
            let size = fs::metadata(&path).ok().map(|metadata| metadata.len());
            if size == Some(object.size) && matches!(prefix, "blobs" | "profiles") {
                copied.known += 1;
                continue;
            }
            let Some(bytes) = copy_out(store, &object.key, &path).await? else {
                continue;
            };
            copied.bytes += bytes;
            copied.objects += 1;
            if copied.objects.is_multiple_of(1000) {
                eprintln!("copied {} objects", copied.objects);
            }
        }
    }
    Ok(copied)
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Copies an object to a file. `None`: the object was deleted in between.
async fn copy_out(store: &Objects, key: &str, path: &Path) -> Result<Option<u64>> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
    let part = path.with_extension("part");
    let mut file = tokio::fs::File::create(&part)
        .await
        .map_err(Error::file("create", &part))?;
    let bytes = store.append_to(key, &mut file).await?;
    file.sync_all().await.map_err(Error::file("flush", &part))?;
    match bytes {
        Some(_) => fs::rename(&part, path).map_err(Error::file("write", path))?,
        None => remove_if_there(&part)?,
    }
    Ok(bytes)
}

/// Puts a backup in the place of an empty hub.
///
/// # Errors
/// Fails if the directory has no backup, if the hub has data, or something cannot be written.
pub async fn restore(address: &str, data: &Path, store: &Objects, directory: &Path) -> Result<Copied> {
    let list = directory.join(DECISIONS);
    if !list.exists() {
        let directory = directory.display();
        return Err(Error::Configuration(format!(
            "{directory} has no backup: the file {DECISIONS} is missing"
        )));
    }
    refuse_data(address, store).await?;
    let mut copied = Copied::default();
    let root = directory.join(OBJECTS);
    for path in files_below(&root)? {
        let key = path
            .strip_prefix(&root)
            .ok()
            .and_then(Path::to_str)
            .ok_or_else(|| Error::Invalid(format!("{} is no name of an object", path.display())))?;
        copied.bytes += store.put_copy(key, &path).await?;
        copied.objects += 1;
        if copied.objects.is_multiple_of(1000) {
            eprintln!("restored {} objects", copied.objects);
        }
    }
    let copy = directory.join(DATABASE);
    if let (Some(path), true) = (sqlite_file(address), copy.exists()) {
        for suffix in ["-wal", "-shm"] {
            remove_if_there(&PathBuf::from(format!("{}{suffix}", path.display())))?;
        }
        fs::copy(&copy, &path).map_err(Error::file("write", &path))?;
        let database = Database::open(address).await?;
        rows::forget_work(&database).await?;
        database.close().await;
        eprintln!("restored the database");
        return Ok(copied);
    }
    let lines = fs::read_to_string(&list).map_err(Error::file("read", &list))?;
    let database = Database::open(address).await?;
    let _ = decisions::import_grouping(&database, &lines).await?;
    database.close().await;
    let rebuilt = rebuild::run(address, data, store).await?;
    eprintln!("computed the index from {} segments", rebuilt.segments);
    let database = Database::open(address).await?;
    decisions::replace(&database, &lines).await?;
    database.close().await;
    Ok(copied)
}

/// Fails if a hub has reports or objects.
async fn refuse_data(address: &str, store: &Objects) -> Result<()> {
    let occupied = || {
        Error::Conflict("this hub has data already; restore into an empty directory and database".to_owned())
    };
    let database = Database::open(address).await?;
    let reports: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM reports")
        .fetch_one(database.reader())
        .await?;
    database.close().await;
    if reports > 0 {
        return Err(occupied());
    }
    for prefix in PREFIXES {
        let mut listed = std::pin::pin!(store.list(prefix));
        if listed.try_next().await?.is_some() {
            return Err(occupied());
        }
    }
    Ok(())
}

/// Returns the files below a directory, in their order. Parts of a copy that was cut off are left
/// out.
fn files_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // A backup of an empty hub has no objects.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::file("read", &folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::file("read", &folder))?;
            let kind = entry.file_type().map_err(Error::file("read", &folder))?;
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_none_or(|suffix| suffix != "part") {
                files.push(path);
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}
