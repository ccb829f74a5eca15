//! The number of hosts that run each service, which lists and pages show.
//!
//! To count them takes longer the more hosts there are. The counts are kept for a time that grows
//! with the time that they took, and are counted again beside the requests.

use super::Database;
use crate::error::Result;
use sqlx::{AnyPool, Row};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The hosts by service.
pub type HostCounts = Arc<HashMap<String, u64>>;

/// The counts are kept for this many times the time that they took.
const FACTOR: u32 = 50;
/// Counts that take less time are not kept, so that those of small hubs are exact.
const SHORT: Duration = Duration::from_millis(10);
/// The longest time for which counts are kept.
const LONGEST: Duration = Duration::from_secs(300);

/// The counts, if they are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptCounts(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    counts: Option<HostCounts>,
    /// The time until which the counts are kept. `None`: a task counts again.
    until: Option<Instant>,
}

impl KeptCounts {
    /// Returns the kept counts, and whether the caller is to count again.
    fn look(&self, now: Instant) -> Option<(HostCounts, bool)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = state.counts.clone()?;
        let is_old = state.until.is_some_and(|until| until < now);
        if is_old {
            state.until = None;
        }
        Some((counts, is_old))
    }

    /// Keeps counts that took a time.
    fn keep(&self, counts: &HostCounts, took: Duration, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.counts = (took >= SHORT).then(|| counts.clone());
        state.until = Some(now + (took * FACTOR).min(LONGEST));
    }

    /// Notes that counting failed. The next caller tries again.
    fn fail(&self, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.until = Some(now);
    }
}

impl Database {
    /// Returns the number of hosts that run each service, by heartbeats. On a large hub the numbers
    /// are up to five minutes old.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn hosts_of_services(&self) -> Result<HostCounts> {
        let Some((kept, is_old)) = self.running.look(Instant::now()) else {
            return count(self.reader(), &self.running).await;
        };
        if is_old {
            let (pool, running) = (self.reader().clone(), self.running.clone());
            tokio::spawn(async move {
                if let Err(error) = count(&pool, &running).await {
                    tracing::error!("cannot count the hosts of services: {error}");
                    running.fail(Instant::now());
                }
            });
        }
        Ok(kept)
    }
}

async fn count(pool: &AnyPool, running: &KeptCounts) -> Result<HostCounts> {
    let began = Instant::now();
    let select = "SELECT service, COUNT(DISTINCT host) AS hosts FROM host_builds GROUP BY service";
    let rows = sqlx::query(select).fetch_all(pool).await?;
    let counts = rows.iter().map(|row| {
        let hosts: i64 = row.try_get("hosts")?;
        Ok((row.try_get("service")?, hosts.unsigned_abs()))
    });
    let counts = Arc::new(counts.collect::<Result<HashMap<_, _>>>()?);
    running.keep(&counts, began.elapsed(), Instant::now());
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_counts_are_kept_and_counted_again_by_one() {
        let (kept, start) = (KeptCounts::default(), Instant::now());
        assert_eq!(kept.look(start), None);
        let counts: HostCounts = Arc::new(HashMap::from([("ledger".to_owned(), 7)]));
        kept.keep(&counts, Duration::from_millis(1), start);
        assert_eq!(kept.look(start), None);
        kept.keep(&counts, Duration::from_millis(40), start);
        assert_eq!(
            kept.look(start + Duration::from_secs(1)),
            Some((counts.clone(), false))
        );
        let later = start + Duration::from_secs(3);
        assert_eq!(kept.look(later), Some((counts.clone(), true)));
        assert_eq!(kept.look(later), Some((counts.clone(), false)));
        kept.fail(later);
        assert_eq!(kept.look(later + Duration::from_secs(1)), Some((counts, true)));
    }
}
