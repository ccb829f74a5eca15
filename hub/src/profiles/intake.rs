//! The intake of profiles: pushes of a short time become one segment of the store.
//!
//! A push is acknowledged after the commit that has it, so that a hub that is killed loses nothing
//! that a sender has forgotten. A push that is sent again has the same hash, and counts once.

use super::catalog::{PREFIX, ProfileCatalog};
use super::origin::SampleOrigins;
use crate::clock;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::objects::Objects;
use backtrail_profile::{Profile, UnixNanos};
use backtrail_store::{Origins, Writer, WriterLimits};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// The time for which pushes are collected.
const WINDOW: Duration = Duration::from_millis(400);
/// Pushes that wait. Further ones wait in their requests.
const QUEUE: usize = 64;

/// A push that was read.
#[derive(Debug)]
pub struct ReadPush {
    /// The hash of its content and its labels.
    pub hash: String,
    /// The origins of its samples.
    pub origins: SampleOrigins,
    /// The labels that all its samples have.
    pub labels: Vec<(String, String)>,
    /// The profile.
    pub profile: Profile,
}

/// Counters of an intake.
#[derive(Debug, Default)]
pub struct IntakeCounts {
    /// Pushes that were stored.
    pub pushes: AtomicU64,
    /// Pushes that the store had already.
    pub repeated: AtomicU64,
    /// Pushes that were not stored because the store failed.
    pub failed: AtomicU64,
    /// Samples that were stored.
    pub samples: AtomicU64,
}

/// The reason why a push was not stored.
#[derive(Clone, Debug)]
enum Failure {
    /// The push itself is at fault.
    Refused(String),
    /// The store is at fault. The push may be sent again.
    Failed(String),
}

type Answer = std::result::Result<(), Failure>;

struct Waiting {
    push: ReadPush,
    reply: oneshot::Sender<Answer>,
}

/// The intake of a hub.
#[derive(Clone, Debug)]
pub struct Intake {
    sender: mpsc::Sender<Waiting>,
    counts: Arc<IntakeCounts>,
}

impl Intake {
    /// Starts an intake. It ends with its last handle.
    #[must_use]
    pub fn start(database: Database, objects: Objects) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let counts = Arc::new(IntakeCounts::default());
        let worker = Worker {
            catalog: ProfileCatalog::new(database.clone(), objects.clone()),
            database,
            objects,
            counts: counts.clone(),
        };
        tokio::spawn(worker.run(receiver));
        Self { sender, counts }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> &IntakeCounts {
        &self.counts
    }

    /// Stores a push, and returns after it is in the catalog.
    ///
    /// # Errors
    /// Fails if the store refuses the push, or fails. Then no sample of the push is stored.
    pub async fn store(&self, push: ReadPush) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { push, reply };
        self.sender.send(waiting).await.map_err(|_| Error::Ending)?;
        match answer.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Failure::Refused(reason))) => Err(Error::Invalid(reason)),
            Ok(Err(Failure::Failed(reason))) => Err(Error::Segment(backtrail_store::Error::Catalog(reason))),
            Err(_) => Err(Error::Ending),
        }
    }
}

struct Worker {
    database: Database,
    catalog: ProfileCatalog,
    objects: Objects,
    counts: Arc<IntakeCounts>,
}

impl Worker {
    async fn run(self, mut receiver: mpsc::Receiver<Waiting>) {
        let limits = WriterLimits::default();
        while let Some(first) = receiver.recv().await {
            let end = Instant::now() + WINDOW;
            let mut samples = first.push.profile.samples.len();
            let mut batch = vec![first];
            while samples < limits.rows {
                match tokio::time::timeout_at(end, receiver.recv()).await {
                    Ok(Some(next)) => {
                        samples += next.push.profile.samples.len();
                        batch.push(next);
                    }
                    Ok(None) | Err(_) => break,
                }
            }
            self.store(batch, limits).await;
        }
    }

    async fn store(&self, batch: Vec<Waiting>, limits: WriterLimits) {
        let (pushes, replies): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|waiting| (waiting.push, waiting.reply))
            .unzip();
        let count = pushes.len();
        let answers = self.write(pushes, limits).await.unwrap_or_else(|error| {
            tracing::error!("cannot store {count} profiles: {error}");
            self.counts.failed.fetch_add(count as u64, Ordering::Relaxed);
            vec![Err(Failure::Failed(error.to_string())); count]
        });
        for (reply, answer) in replies.into_iter().zip(answers) {
            // The sender may have gone.
            let _ = reply.send(answer);
        }
    }

    /// Stores those pushes that are new and that the store accepts. Returns an answer for each.
    async fn write(&self, pushes: Vec<ReadPush>, limits: WriterLimits) -> Result<Vec<Answer>> {
        let hashes: Vec<String> = pushes.iter().map(|push| push.hash.clone()).collect();
        let known = self.database.known_pushes(&hashes).await?;
        let mut known: HashSet<String> = known.into_iter().collect();
        let received = UnixNanos(clock::now().unsigned_abs().saturating_mul(1000));
        let catalog = Arc::new(self.catalog.for_one_commit());
        let mut writer = Writer::new(self.objects.below(PREFIX), catalog.clone(), limits);
        let (mut count, mut samples) = (0, 0);
        let mut answers = Vec::with_capacity(pushes.len());
        for push in pushes {
            if known.contains(&push.hash) {
                self.counts.repeated.fetch_add(1, Ordering::Relaxed);
                answers.push(Ok(()));
                continue;
            }
            let origins = Origins {
                distinct: &push.origins.origins,
                of_sample: &push.origins.of_sample,
            };
            match writer.add_with_origins(origins, &push.labels, &push.profile, received) {
                Ok(()) => {
                    count += 1;
                    samples += push.profile.samples.len() as u64;
                    known.insert(push.hash.clone());
                    catalog.note(push.hash);
                    answers.push(Ok(()));
                }
                Err(error) => answers.push(Err(Failure::Refused(error.to_string()))),
            }
        }
        writer.flush().await?;
        self.counts.pushes.fetch_add(count, Ordering::Relaxed);
        self.counts.samples.fetch_add(samples, Ordering::Relaxed);
        Ok(answers)
    }
}
