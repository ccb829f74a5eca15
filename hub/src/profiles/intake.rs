//! The intake of profiles: pushes of a short time become one segment of the store.
//!
//! A push is acknowledged after the commit that has it, so that a hub that is killed loses nothing
//! that a sender has forgotten. A push that is sent again has the same hash, and counts once.

use super::catalog::{PREFIX, ProfileCatalog};
use super::idle::IdleRule;
use super::read_push::ReadPush;
use crate::clock;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::objects::{Objects, blocking};
use backtrail_profile::UnixNanos;
use backtrail_store::{IdleCounts, Origins, PushHash, SegmentEntry, Writer, WriterLimits};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

/// The time for which pushes are collected.
const WINDOW: Duration = Duration::from_millis(400);
/// Pushes that wait. Further ones wait in their requests.
const QUEUE: usize = 1024;
/// The memory of all pushes that were read and are not stored yet, in KiB.
const MEMORY: u32 = 192 << 10;

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
    /// Stacks of the segments that were written.
    pub stacks: AtomicU64,
    /// Bytes of the segments that were written.
    pub bytes: AtomicU64,
    /// Requests that were refused because a push is at fault, at any step.
    pub refused: AtomicU64,
    /// Samples of idle threads that were left out.
    pub idle: AtomicU64,
}

impl IntakeCounts {
    fn add(&self, written: &[SegmentEntry]) {
        for entry in written {
            self.stacks.fetch_add(entry.stacks.rows, Ordering::Relaxed);
            self.bytes.fetch_add(entry.bytes(), Ordering::Relaxed);
        }
    }
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
    idle: IdleCounts,
    reply: oneshot::Sender<Answer>,
}

/// The intake of a hub.
#[derive(Clone, Debug)]
pub struct Intake {
    sender: mpsc::Sender<Waiting>,
    counts: Arc<IntakeCounts>,
    idle: Option<Arc<IdleRule>>,
    memory: Arc<Semaphore>,
}

impl Intake {
    /// Starts an intake, which leaves out the samples of a rule. It ends with its last handle.
    #[must_use]
    pub fn start(database: Database, objects: Objects, idle: Option<IdleRule>) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let counts = Arc::new(IntakeCounts::default());
        let worker = Worker {
            catalog: ProfileCatalog::new(database.clone(), objects.clone()),
            database,
            objects,
            counts: counts.clone(),
            idle: IdleCounts::default(),
        };
        tokio::spawn(worker.run(receiver));
        Self {
            sender,
            counts,
            idle: idle.map(Arc::new),
            memory: Arc::new(Semaphore::new(MEMORY as usize)),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> &IntakeCounts {
        &self.counts
    }

    /// Waits until there is memory for the pushes of a request. It is free again with the value.
    ///
    /// # Errors
    /// Fails if the hub ends.
    pub async fn reserve(&self, pushes: &[ReadPush]) -> Result<OwnedSemaphorePermit> {
        let sizes = pushes.iter().map(ReadPush::kibibytes);
        // A larger request waits until it is alone.
        let size = sizes.fold(0, u32::saturating_add).clamp(1, MEMORY);
        let permit = Arc::clone(&self.memory).acquire_many_owned(size).await;
        permit.map_err(|_| Error::Ending)
    }

    /// Stores a push, and returns after it is in the catalog.
    ///
    /// # Errors
    /// Fails if the store refuses the push, or fails. Then no sample of the push is stored.
    pub async fn store(&self, push: ReadPush) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let (push, idle) = match self.idle.clone() {
            Some(rule) => {
                let work = move || {
                    let mut push = push;
                    let idle = rule.apply(&mut push);
                    Ok((push, idle))
                };
                blocking(work).await?
            }
            None => (push, IdleCounts::default()),
        };
        let waiting = Waiting { push, idle, reply };
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
    /// The samples of idle threads that no segment counts yet.
    idle: IdleCounts,
}

impl Worker {
    async fn run(mut self, mut receiver: mpsc::Receiver<Waiting>) {
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

    async fn store(&mut self, batch: Vec<Waiting>, limits: WriterLimits) {
        let (pushes, replies): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|waiting| ((waiting.push, waiting.idle), waiting.reply))
            .unzip();
        let count = pushes.len();
        let answers = self.write_again(&pushes, limits).await.unwrap_or_else(|error| {
            tracing::error!("cannot store {count} profiles: {error}");
            self.counts.failed.fetch_add(count as u64, Ordering::Relaxed);
            vec![Err(Failure::Failed(error.to_string())); count]
        });
        for (reply, answer) in replies.into_iter().zip(answers) {
            // The sender may have gone.
            let _ = reply.send(answer);
        }
    }

    /// Stores pushes as [`Worker::write`]. It does so again if another hub has stored one of them
    /// in the meantime, which refuses the commit of all.
    async fn write_again(
        &mut self,
        pushes: &[(ReadPush, IdleCounts)],
        limits: WriterLimits,
    ) -> Result<Vec<Answer>> {
        let hashes: Vec<PushHash> = pushes.iter().map(|(push, _)| push.hash).collect();
        let mut known = self.database.known_pushes(&hashes).await?;
        loop {
            let count = known.len();
            let error = match self.write(pushes, known, limits).await {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            };
            known = self.database.known_pushes(&hashes).await?;
            if known.len() <= count {
                return Err(error);
            }
        }
    }

    /// Stores those pushes that are not known and that the store accepts. Returns an answer for
    /// each.
    async fn write(
        &mut self,
        pushes: &[(ReadPush, IdleCounts)],
        known: Vec<PushHash>,
        limits: WriterLimits,
    ) -> Result<Vec<Answer>> {
        let mut known: HashSet<PushHash> = known.into_iter().collect();
        let received = UnixNanos(clock::now().unsigned_abs().saturating_mul(1000));
        let catalog = Arc::new(self.catalog.for_one_commit());
        let mut writer = Writer::new(self.objects.below(PREFIX), catalog.clone(), limits);
        let (mut count, mut samples, mut repeated, mut idle_samples) = (0, 0, 0, 0);
        let mut answers = Vec::with_capacity(pushes.len());
        let mut left_out = self.idle.clone();
        for (push, idle) in pushes {
            if known.contains(&push.hash) {
                repeated += 1;
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
                    left_out.absorb(idle);
                    idle_samples += idle.of(None);
                    known.insert(push.hash);
                    writer.add_push(push.hash, received);
                    catalog.note(push.hash);
                    answers.push(Ok(()));
                }
                Err(error) => answers.push(Err(Failure::Refused(error.to_string()))),
            }
        }
        writer.add_idle(&left_out);
        let written = writer.flush().await?;
        // Without a segment, a later one counts them.
        self.idle = match written.is_empty() {
            true => left_out,
            false => IdleCounts::default(),
        };
        self.counts.add(&written);
        self.counts.repeated.fetch_add(repeated, Ordering::Relaxed);
        self.counts.idle.fetch_add(idle_samples, Ordering::Relaxed);
        self.counts.pushes.fetch_add(count, Ordering::Relaxed);
        self.counts.samples.fetch_add(samples, Ordering::Relaxed);
        Ok(answers)
    }
}
