//! The journal: a receipt is sent after its entry is in the object store and in the database.
//!
//! One task writes. While it commits a batch, the next one gathers, so that the number of objects
//! and transactions does not grow with the load. A batch is one object, the *segment*, and one
//! transaction. A hub that ends between the two leaves a segment that the database has not got.
//! [`replay`] and [`replay_recent`] apply those.

use super::entry::{Entry, from_lines, to_lines};
use crate::clock::{self, SECOND};
use crate::database::{Database, leases, transact};
use crate::error::{Error, Result};
use crate::objects::Objects;
use futures_util::TryStreamExt;
use sqlx::AnyConnection;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The most entries of a batch.
const BATCH: usize = 512;
/// The most entries that wait. Requests beyond wait with them.
const QUEUE: usize = 2 * BATCH;
/// The names of segments that one query searches.
const NAMES: usize = 1000;
/// The age from which a segment that the database has not got is applied: its hub has ended.
const ABANDONED: i64 = 120 * SECOND;

/// Applies an entry within a transaction.
pub trait Apply: Clone + Send + Sync + 'static {
    /// The result for the sender.
    type Outcome: Send + 'static;

    /// Applies one entry of a segment. The same entry may be applied twice.
    fn apply(
        &self,
        connection: &mut AnyConnection,
        entry: &Entry,
        segment: &str,
    ) -> impl Future<Output = Result<Self::Outcome>> + Send;
}

struct Waiting<T> {
    entry: Entry,
    answer: oneshot::Sender<Result<T>>,
}

/// The journal of one hub.
#[derive(Clone)]
pub struct Journal<A: Apply> {
    sender: mpsc::Sender<Waiting<A::Outcome>>,
}

impl<A: Apply> Journal<A> {
    /// Starts the writer. `hub` is a name that no other hub has.
    pub fn start(database: Database, objects: Objects, apply: A, hub: &str) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let writer = Writer {
            database,
            objects,
            apply,
            hub: hub.to_owned(),
            number: 0,
        };
        tokio::spawn(writer.run(receiver));
        Self { sender }
    }

    /// Writes entries, and returns their outcomes after all are durable.
    ///
    /// # Errors
    /// Fails if the object store or the database fails. The entries may be applied later even so.
    pub async fn write(&self, entries: Vec<Entry>) -> Result<Vec<A::Outcome>> {
        let mut answers = Vec::with_capacity(entries.len());
        for entry in entries {
            let (answer, waits) = oneshot::channel();
            let waiting = Waiting { entry, answer };
            self.sender.send(waiting).await.map_err(|_| Error::Ending)?;
            answers.push(waits);
        }
        let mut outcomes = Vec::with_capacity(answers.len());
        for answer in answers {
            outcomes.push(answer.await.map_err(|_| Error::Ending)??);
        }
        Ok(outcomes)
    }
}

struct Writer<A: Apply> {
    database: Database,
    objects: Objects,
    apply: A,
    hub: String,
    number: u64,
}

impl<A: Apply> Writer<A> {
    async fn run(mut self, mut receiver: mpsc::Receiver<Waiting<A::Outcome>>) {
        let mut batch = Vec::with_capacity(BATCH);
        while receiver.recv_many(&mut batch, BATCH).await > 0 {
            let (entries, answers): (Vec<_>, Vec<_>) = batch
                .drain(..)
                .map(|waiting| (waiting.entry, waiting.answer))
                .unzip();
            match self.commit(&entries).await {
                Ok(outcomes) => {
                    for (answer, outcome) in answers.into_iter().zip(outcomes) {
                        // The request may have gone.
                        let _ = answer.send(Ok(outcome));
                    }
                }
                Err(error) => {
                    let text = Arc::new(error.to_string());
                    tracing::error!("cannot write the journal: {text}");
                    for answer in answers {
                        let _ = answer.send(Err(Error::System {
                            action: "write the journal",
                            source: std::io::Error::other(text.to_string()),
                        }));
                    }
                }
            }
        }
    }

    async fn commit(&mut self, entries: &[Entry]) -> Result<Vec<A::Outcome>> {
        self.number += 1;
        let name = segment_name(clock::now(), &self.hub, self.number);
        self.objects.put(&key(&name), to_lines(entries)).await?;
        apply_all(&self.database, &self.apply, entries, &name).await
    }
}

/// Applies a segment in one transaction.
async fn apply_all<A: Apply>(
    database: &Database,
    apply: &A,
    entries: &[Entry],
    segment: &str,
) -> Result<Vec<A::Outcome>> {
    transact!(database, connection => {
        leases::lock_counts(connection).await?;
        let mut outcomes = Vec::with_capacity(entries.len());
        sqlx::query(
            "INSERT INTO segments (name, committed) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        )
        .bind(segment)
        .bind(clock::now())
        .execute(&mut *connection)
        .await?;
        for entry in entries {
            outcomes.push(apply.apply(connection, entry, segment).await?);
        }
        Ok(outcomes)
    })
}

/// Applies the segments that the database has not got, in their order. Returns their number and the
/// number of damaged lines. With `all`, young segments too: no other hub runs.
///
/// # Errors
/// Fails if the object store or the database fails.
pub async fn replay<A: Apply>(
    database: &Database,
    objects: &Objects,
    apply: &A,
    all: bool,
) -> Result<(usize, usize)> {
    let limit = if all { i64::MAX } else { clock::now() - ABANDONED };
    replay_below(database, objects, apply, "journal", limit).await
}

/// Applies the segments of the last hours that the database has not got, because their hub has
/// ended since, or the database failed. Returns the number of segments.
///
/// # Errors
/// Fails if the object store or the database fails.
pub async fn replay_recent<A: Apply>(database: &Database, objects: &Objects, apply: &A) -> Result<usize> {
    let now = clock::now();
    let mut applied = 0;
    for back in [1, 0] {
        let folder = format!("journal/{}", folder_name(now - back * clock::HOUR));
        let (segments, _) = replay_below(database, objects, apply, &folder, now - ABANDONED).await?;
        applied += segments;
    }
    Ok(applied)
}

/// Applies the segments below a prefix that were written before a time.
async fn replay_below<A: Apply>(
    database: &Database,
    objects: &Objects,
    apply: &A,
    prefix: &str,
    limit: i64,
) -> Result<(usize, usize)> {
    let mut names: Vec<String> = Vec::new();
    let mut listed = std::pin::pin!(objects.list(prefix));
    while let Some(object) = listed.try_next().await? {
        if let Some(name) = object
            .key
            .strip_prefix("journal/")
            .filter(|_| object.changed < limit)
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    let (mut applied, mut damaged) = (0, 0);
    for names in names.chunks(NAMES) {
        let known = committed(database, names).await?;
        for name in names.iter().filter(|name| !known.contains(*name)) {
            let Some(lines) = objects.get(&key(name)).await? else {
                continue;
            };
            let (entries, bad) = from_lines(&lines);
            apply_all(database, apply, &entries, name).await?;
            applied += 1;
            damaged += bad;
        }
    }
    Ok((applied, damaged))
}

/// Returns which of these names, in their order, the database has.
async fn committed(database: &Database, names: &[String]) -> Result<HashSet<String>> {
    let select = "SELECT name FROM segments WHERE name >= $1 AND name <= $2";
    let found: Vec<String> = sqlx::query_scalar(select)
        .bind(names.first())
        .bind(names.last())
        .fetch_all(database.reader())
        .await?;
    Ok(found.into_iter().collect())
}

/// Returns the key of a segment.
#[must_use]
pub fn key(name: &str) -> String {
    format!("journal/{name}")
}

/// Returns a name that sorts by time: `20783/14/01795…-HUB-7.jsonl`, with the days since 1970.
fn segment_name(time: i64, hub: &str, number: u64) -> String {
    format!("{}/{time:018}-{hub}-{number}.jsonl", folder_name(time))
}

/// Returns the day and the hour of a time, as the names of segments have them.
fn folder_name(time: i64) -> String {
    let (day, hour) = (time.div_euclid(clock::DAY), time.div_euclid(clock::HOUR) % 24);
    format!("{day:06}/{hour:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::Row;

    /// Counts entries in the table of hosts.
    #[derive(Clone)]
    struct Hosts;

    impl Apply for Hosts {
        type Outcome = i64;

        async fn apply(&self, connection: &mut AnyConnection, entry: &Entry, _: &str) -> Result<i64> {
            let Entry::Host { host, time, .. } = entry else {
                return Ok(0);
            };
            crate::database::builds::note_host(connection, host, None, *time).await?;
            let row = sqlx::query("SELECT COUNT(*) AS count FROM hosts")
                .fetch_one(&mut *connection)
                .await?;
            Ok(row.try_get("count")?)
        }
    }

    async fn hub(folder: &std::path::Path) -> (Database, Objects) {
        let address = format!("sqlite://{}?mode=rwc", folder.join("hub.db").display());
        let objects = Objects::directory(&folder.join("objects")).unwrap();
        (Database::open(&address).await.unwrap(), objects)
    }

    fn host(name: &str) -> Entry {
        Entry::Host {
            time: 7,
            host: name.to_owned(),
            collector: "1".to_owned(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn entries_are_durable_before_the_answer() {
        let folder = tempfile::tempdir().unwrap();
        let (database, objects) = hub(folder.path()).await;
        let journal = Journal::start(database.clone(), objects.clone(), Hosts, "a");
        let writers = (0..64).map(|at| {
            let journal = journal.clone();
            tokio::spawn(async move { journal.write(vec![host(&format!("web-{at}"))]).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            assert_eq!(writer.await.unwrap().unwrap().len(), 1);
        }
        let (fresh, _) = hub(&tempfile::tempdir().unwrap().keep()).await;
        let (segments, damaged) = replay(&fresh, &objects, &Hosts, true).await.unwrap();
        assert!((1..=64).contains(&segments), "{segments}");
        assert_eq!(damaged, 0);
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM hosts")
            .fetch_one(fresh.reader())
            .await
            .unwrap();
        assert_eq!(count, 64);
    }

    #[tokio::test]
    async fn committed_segments_are_not_applied_again() {
        let folder = tempfile::tempdir().unwrap();
        let (database, objects) = hub(folder.path()).await;
        let journal = Journal::start(database.clone(), objects.clone(), Hosts, "a");
        let _ = journal.write(vec![host("web-1"), host("web-2")]).await.unwrap();
        assert_eq!(replay(&database, &objects, &Hosts, true).await.unwrap(), (0, 0));
        objects
            .put(&key("000001/00/1-b-1.jsonl"), to_lines(&[host("web-3")]))
            .await
            .unwrap();
        assert_eq!(replay(&database, &objects, &Hosts, false).await.unwrap(), (0, 0));
        assert_eq!(replay(&database, &objects, &Hosts, true).await.unwrap(), (1, 0));
        assert_eq!(replay(&database, &objects, &Hosts, true).await.unwrap(), (0, 0));
    }
}
