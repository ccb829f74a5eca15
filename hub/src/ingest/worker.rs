//! Runs the jobs of the hub, off the request path.

use super::{accept, debug_file, late, regroup_all, states};
use crate::analysis::Progress;
use crate::clock;
use crate::database::blobs::FileKind;
use crate::database::jobs::{self, Job, JobKind, JobQueue};
use crate::database::leases;
use crate::database::transact;
use crate::database::uploads::UploadKind;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::symbols::{chunks, fetch, index_job};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// The time between two searches for jobs that another hub left or that became due.
const INTERVAL: Duration = Duration::from_millis(500);
/// The time between two checks of a job's progress. Each is stored, and renews the lease.
const RENEWAL: Duration = Duration::from_secs(1);

/// Downloads from upstream servers at once.
const DOWNLOADS: usize = 4;

/// Runs jobs until `end` is true. Jobs that run then are left to the next hub.
pub async fn run(hub: Arc<Hub>, end: watch::Receiver<bool>) {
    let places = hub.config.limits.analyses.max(1);
    tokio::join!(
        run_queue(hub.clone(), JobQueue::Work, places, end.clone()),
        run_queue(hub.clone(), JobQueue::Alerts, 1, end.clone()),
        run_queue(hub.clone(), JobQueue::Downloads, DOWNLOADS, end.clone()),
        run_queue(hub, JobQueue::Grouping, 1, end),
    );
}

async fn run_queue(hub: Arc<Hub>, queue: JobQueue, places: usize, mut end: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(places));
    let mut running = JoinSet::new();
    while !*end.borrow() {
        while running.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let is_work = queue == JobQueue::Work;
        if is_work && !hub.arrivals.permit_analysis(Instant::now()) {
            drop(place);
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                _ = end.changed() => {}
            }
            continue;
        }
        let job = match hub.database.lease_job(queue).await {
            Ok(job) => job,
            Err(error) => {
                tracing::error!("cannot look for jobs: {error}");
                None
            }
        };
        let Some(job) = job else {
            drop(place);
            tokio::select! {
                // One queue is woken. The others have time.
                () = hub.wake.notified(), if is_work => {}
                () = tokio::time::sleep(INTERVAL) => {}
                _ = end.changed() => {}
            }
            continue;
        };
        if is_work {
            hub.arrivals.note_start(Instant::now());
        }
        let hub = hub.clone();
        running.spawn(async move {
            let _place = place;
            with_lease(&hub, &job).await;
        });
    }
    running.shutdown().await;
}

/// Runs a job, and renews its lease and its progress until it ends.
async fn with_lease(hub: &Hub, job: &Job) {
    let (progress, seen) = watch::channel(Progress::default());
    let renew = async {
        loop {
            tokio::time::sleep(RENEWAL).await;
            let now = seen.borrow().clone();
            let text = serde_json::json!({ "stage": now.stage, "done": now.done }).to_string();
            match hub.database.renew_lease(job, Some(&text)).await {
                Ok(true) | Err(_) => {}
                // A finished job has no lease. The rest of its work goes on.
                Ok(false) => match hub.database.has_job(job).await {
                    Ok(true) => return,
                    Ok(false) => std::future::pending().await,
                    Err(_) => {}
                },
            }
        }
    };
    let result = tokio::select! {
        result = execute(hub, job, &progress) => result,
        () = renew => Err(Error::Conflict("another hub took over this job".to_owned())),
    };
    if let Err(error) = result {
        tracing::warn!("job {} failed at attempt {}: {error}", job.id, job.attempt);
        if let Err(error) = hub.database.postpone_job(job).await {
            tracing::error!("cannot postpone job {}: {error}", job.id);
        }
    }
}

async fn execute(hub: &Hub, job: &Job, progress: &watch::Sender<Progress>) -> Result<()> {
    match job.kind {
        JobKind::Accept => match hub.database.upload(&job.subject).await {
            Ok(upload) if upload.kind == UploadKind::Debug => debug_file::accept(hub, job, &upload).await,
            Ok(upload) => accept::accept(hub, job, &upload, progress).await,
            // Another hub finished it.
            Err(Error::Absent(_)) => hub.database.finish_job(job).await,
            Err(error) => Err(error),
        },
        JobKind::Analyze => late::analyze(hub, job, progress).await,
        JobKind::Assemble => chunks::make(hub, job).await,
        JobKind::Fetch => {
            let _ = fetch::from_upstream(hub, &job.subject, &FileKind::Debuginfo).await?;
            hub.database.finish_job(job).await
        }
        JobKind::Index => index_job::make(hub, job).await,
        JobKind::Regroup => regroup_all::run(&hub.database, job, progress).await,
        JobKind::Announce => announce(hub, job).await,
    }
}

/// Announces a group whose bundle has not come. A group that got symbols is gone.
async fn announce(hub: &Hub, job: &Job) -> Result<()> {
    let outbox = hub.recorder.outbox();
    transact!(hub.database, connection => {
        leases::lock_counts(connection).await?;
        jobs::finish(connection, job).await?;
        states::announce(connection, outbox, &job.subject, None, clock::now()).await
    })
}
