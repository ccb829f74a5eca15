//! The database: SQLite in the hub's directory, or PostgreSQL for several hubs.
//!
//! All statements run on both. Parameters are `$1`, `$2`. Times are microseconds since 1970.

pub mod audit;
pub mod blobs;
pub mod builds;
pub mod changes;
pub mod chunks;
pub mod deliveries;
pub mod exact_calls;
pub mod group_page;
pub mod groups;
pub mod identity;
pub mod jobs;
pub mod key_functions;
pub mod leases;
pub mod listing;
mod migrations;
pub mod next_groups;
pub mod profile_requests;
pub mod profile_segments;
pub mod query_jobs;
pub mod refusals;
pub mod reports;
pub mod retention;
pub mod rules;
pub mod running_hosts;
pub mod saved_views;
pub mod shares;
pub mod sites;
pub mod sql_crashes;
pub mod stack_keys;
pub mod symbols;
pub mod tokens;
pub mod uploads;

use crate::error::{Error, Result};
use running_hosts::KeptCounts;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{Any, AnyPool, Connection, Executor, Transaction};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Connections to PostgreSQL, and readers of SQLite.
const CONNECTIONS: u32 = 8;
/// The time to wait for a free connection.
const PATIENCE: Duration = Duration::from_secs(20);
/// Attempts of a transaction that another one disturbs.
const ATTEMPTS: u32 = 6;

/// Runs a transaction, and repeats it if another one disturbs it. The value is the work's result.
///
/// A closure cannot do this: its future would not be known to be `Send`.
macro_rules! transact {
    ($database:expr, $connection:ident => $work:block) => {{
        let mut attempt = 1;
        loop {
            match $database.begin().await {
                Ok(mut transaction) => {
                    let $connection = &mut *transaction;
                    let result: $crate::error::Result<_> = async { $work }.await;
                    match $crate::database::Database::end(transaction, result, &mut attempt).await {
                        Ok(Some(value)) => break Ok(value),
                        Ok(None) => {}
                        Err(error) => break Err(error),
                    }
                }
                Err(error) => break Err(error),
            }
        }
    }};
}

pub(crate) use transact;

/// The kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SQLite: one writer at a time.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// The database of the hub.
#[derive(Clone, Debug)]
pub struct Database {
    kind: Kind,
    /// The log of SQLite, whose latest changes a power cut may take.
    log: Option<PathBuf>,
    write: AnyPool,
    read: AnyPool,
    running: KeptCounts,
}

impl Database {
    /// Opens the database at an address such as `sqlite:///var/lib/hub/hub.db` or
    /// `postgres://user@host/name`, and brings its schema up to date.
    ///
    /// # Errors
    /// Fails if the database cannot be opened, or is newer than this program.
    pub async fn open(address: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let kind = if address.starts_with("sqlite:") {
            Kind::Sqlite
        } else if address.starts_with("postgres:") || address.starts_with("postgresql:") {
            Kind::Postgres
        } else {
            return Err(Error::Configuration(format!(
                "\"{address}\" is no database; use sqlite:///PATH or postgres://USER@HOST/NAME"
            )));
        };
        let options = AnyConnectOptions::from_str(address)?;
        if let Some(folder) = sqlite_file(address).as_deref().and_then(Path::parent)
            && !folder.as_os_str().is_empty()
            && !folder.is_dir()
        {
            return Err(Error::Configuration(format!(
                "{} is no directory, so that it has no database; name the hub's directory with --data",
                folder.display()
            )));
        }
        let (write, read) = match kind {
            Kind::Sqlite => (
                without_open_transactions(sqlite_pool(1))
                    .connect_with(options.clone())
                    .await?,
                sqlite_pool(CONNECTIONS).connect_with(options).await?,
            ),
            Kind::Postgres => {
                let pool = AnyPoolOptions::new()
                    .max_connections(CONNECTIONS)
                    .acquire_timeout(PATIENCE);
                let pool = without_open_transactions(pool).connect_with(options).await?;
                (pool.clone(), pool)
            }
        };
        let log = sqlite_file(address).map(|path| {
            let mut name = path.into_os_string();
            name.push("-wal");
            PathBuf::from(name)
        });
        let database = Self {
            kind,
            log,
            write,
            read,
            running: KeptCounts::default(),
        };
        migrations::run(&database.write).await?;
        Ok(database)
    }

    /// Returns the kind of database.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the connections for queries outside a transaction.
    #[must_use]
    pub const fn reader(&self) -> &AnyPool {
        &self.read
    }

    /// Begins a transaction. [`transact`] ends it.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn begin(&self) -> Result<Transaction<'static, Any>> {
        let begin = match self.kind {
            // An upgrade from reader to writer would fail if another process wrote in between.
            Kind::Sqlite => "BEGIN IMMEDIATE",
            Kind::Postgres => "BEGIN",
        };
        Ok(self.write.begin_with(begin).await?)
    }

    /// Commits a transaction whose work succeeded. `None`: another transaction disturbed it, and
    /// the work is to be repeated from its start.
    ///
    /// # Errors
    /// Fails if the work failed, or the database does. Nothing is changed then.
    pub async fn end<T>(
        transaction: Transaction<'static, Any>,
        result: Result<T>,
        attempt: &mut u32,
    ) -> Result<Option<T>> {
        let result = match result {
            Ok(value) => transaction.commit().await.map(|()| value).map_err(Error::from),
            Err(error) => {
                drop(transaction);
                Err(error)
            }
        };
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Database(error)) if *attempt < ATTEMPTS && is_disturbed(&error) => {
                *attempt += 1;
                tokio::time::sleep(Duration::from_millis(5 << *attempt)).await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes all committed changes outlive a power cut. PostgreSQL does so by itself, and the
    /// journal does so for reports.
    ///
    /// # Errors
    /// Fails if the log of SQLite cannot be flushed to the disk.
    pub async fn flush(&self) -> Result<()> {
        let Some(log) = self.log.clone() else {
            return Ok(());
        };
        let flushed = tokio::task::spawn_blocking(move || match File::open(&log) {
            Ok(file) => file.sync_all(),
            // All changes are in the database itself.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        });
        let flushed = flushed
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)));
        flushed.map_err(Error::system("flush the database"))
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.write.close().await;
        self.read.close().await;
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

/// Closes connections whose last transaction did not end. On a full disk, SQLite ends a transaction
/// by itself, and the rollback after it fails. The connection would refuse each later transaction.
fn without_open_transactions(options: AnyPoolOptions) -> AnyPoolOptions {
    options.before_acquire(|connection, _| {
        let is_usable = !connection.is_in_transaction();
        Box::pin(async move { Ok(is_usable) })
    })
}

/// Returns the options of connections to SQLite.
fn sqlite_pool(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(PATIENCE)
        .after_connect(|connection, _| {
            Box::pin(async move {
                // The journal of reports is flushed on its own, so NORMAL loses nothing.
                let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 10000; \
                                PRAGMA cache_size = -16000; PRAGMA temp_store = MEMORY";
                connection.execute(settings).await?;
                Ok(())
            })
        })
}

/// Returns whether a transaction failed because of another one: it is to be repeated.
fn is_disturbed(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else {
        return false;
    };
    // serialization_failure, deadlock_detected; SQLITE_BUSY and its kinds.
    matches!(
        error.code().as_deref(),
        Some("40001" | "40P01" | "5" | "261" | "517" | "773")
    )
}

#[cfg(test)]
pub(crate) mod tests {
    pub mod testing;

    use super::*;

    #[tokio::test]
    async fn other_databases_are_refused() {
        let error = Database::open("mysql://host/hub").await.unwrap_err().to_string();
        assert_eq!(
            error,
            "\"mysql://host/hub\" is no database; use sqlite:///PATH or postgres://USER@HOST/NAME"
        );
    }

    #[tokio::test]
    async fn failed_transactions_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite://{}?mode=rwc", folder.path().join("hub.db").display());
        let database = Database::open(&address).await.unwrap();
        let insert = "INSERT INTO segments (name, committed) VALUES ('a', 1)";
        let failed = transact!(database, connection => {
            sqlx::query(insert).execute(&mut *connection).await?;
            Err::<(), _>(Error::Ending)
        });
        assert!(matches!(failed, Err(Error::Ending)));
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM segments")
            .fetch_one(database.reader())
            .await
            .unwrap();
        assert_eq!(count, 0);
    }
}
