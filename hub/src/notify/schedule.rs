//! The times at which messages are sent: repetitions after a failure, and a limit per hour.

use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

/// A second in microseconds.
const SECOND: u64 = 1_000_000;
/// An hour in microseconds.
const HOUR: u64 = 3600 * SECOND;
/// The wait after the first failure.
const FIRST_WAIT: u64 = 15 * SECOND;
/// The longest wait.
const LONGEST_WAIT: u64 = 2 * HOUR;
/// The time after which a message is given up.
const PATIENCE: u64 = 24 * HOUR;

/// Returns the identifier of the delivery of a change to a channel. Equal pairs have equal
/// identifiers, so that a change is delivered once.
#[must_use]
pub fn delivery_id(change: &str, channel: &str) -> String {
    let mut digest = Sha256::new();
    for field in [change, channel] {
        digest.update((field.len() as u64).to_le_bytes());
        digest.update(field);
    }
    let mut id = String::with_capacity(32);
    for byte in digest.finalize().iter().take(16) {
        let _ = write!(id, "{byte:02x}");
    }
    id
}

/// Returns the time of the next attempt, in microseconds since 1970. `None`: give up.
///
/// The wait doubles with each attempt, from 15 seconds to two hours, and differs by up to a quarter
/// between deliveries. The receiver may ask for a longer wait. A delivery is given up a day after
/// it was created.
#[must_use]
pub fn next_try(
    delivery: &str,
    created: u64,
    attempts: u32,
    now: u64,
    retry_after: Option<Duration>,
) -> Option<u64> {
    let doubled = FIRST_WAIT.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    let wait = doubled.min(LONGEST_WAIT);
    // From 3/4 to 5/4 of the wait, by 256 steps.
    let jittered = wait / 4 * 3 + wait / 2 * jitter(delivery, attempts) / 255;
    let asked = retry_after.map_or(0, |wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
    let next = now.saturating_add(jittered.max(asked.min(LONGEST_WAIT)));
    (next <= created.saturating_add(PATIENCE)).then_some(next)
}

fn jitter(delivery: &str, attempts: u32) -> u64 {
    let mut digest = Sha256::new();
    digest.update(attempts.to_le_bytes());
    digest.update(delivery);
    u64::from(digest.finalize()[0])
}

/// A delivery whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingDelivery {
    /// The identifier.
    pub id: String,
    /// The change that the delivery announces.
    pub change: String,
}

/// The recent past of a channel.
#[derive(Clone, Copy, Debug)]
pub struct ChannelFacts<'a> {
    /// The time, in microseconds since 1970.
    pub now: u64,
    /// The most alerts per hour.
    pub per_hour: u32,
    /// The changes that were sent in this hour: their identifiers.
    pub sent: &'a [String],
    /// The times at which alerts were held back that no summary has reported.
    pub held_back: &'a [u64],
}

/// The decision on the waiting deliveries of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The deliveries to send now.
    pub send: Vec<String>,
    /// The deliveries to hold back: they are never sent, and a summary reports their number.
    pub hold_back: Vec<String>,
    /// The deliveries of changes that were sent already, or are sent now: they are dropped.
    pub duplicates: Vec<String>,
    /// The number of alerts that a summary reports now. `None`: no summary.
    pub summary: Option<u64>,
}

/// Returns the hour of a time, since 1970.
#[must_use]
pub fn hour(time: u64) -> u64 {
    time / HOUR
}

/// Decides on the waiting deliveries of a channel, oldest first.
///
/// An hour is one of the clock. When the hour is over in which alerts were held back, one summary
/// reports their number. A summary does not count as an alert.
#[must_use]
pub fn plan(facts: &ChannelFacts<'_>, waiting: &[WaitingDelivery]) -> Plan {
    let mut changes: HashSet<&str> = facts.sent.iter().map(String::as_str).collect();
    let mut free = u64::from(facts.per_hour).saturating_sub(changes.len() as u64);
    let mut plan = Plan::default();
    for delivery in waiting {
        if !changes.insert(&delivery.change) {
            plan.duplicates.push(delivery.id.clone());
        } else if free > 0 {
            free -= 1;
            plan.send.push(delivery.id.clone());
        } else {
            plan.hold_back.push(delivery.id.clone());
        }
    }
    let is_over = |time: &&u64| hour(**time) < hour(facts.now);
    let count = facts.held_back.iter().filter(is_over).count() as u64;
    plan.summary = (count > 0).then_some(count);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(count: usize) -> Vec<WaitingDelivery> {
        (0..count)
            .map(|at| WaitingDelivery {
                id: format!("d{at}"),
                change: format!("c{at}"),
            })
            .collect()
    }

    fn facts<'a>(now: u64, sent: &'a [String], held_back: &'a [u64]) -> ChannelFacts<'a> {
        ChannelFacts {
            now,
            per_hour: 3,
            sent,
            held_back,
        }
    }

    #[test]
    fn waits_double_and_end_after_a_day() {
        let (mut now, mut attempts, mut waits) = (0, 0, Vec::new());
        loop {
            attempts += 1;
            let Some(next) = next_try("d", 0, attempts, now, None) else {
                break;
            };
            waits.push((next - now) / SECOND);
            now = next;
        }
        assert!((11..=19).contains(&waits[0]), "{waits:?}");
        assert!((22..=38).contains(&waits[1]), "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= 9000));
        assert!((15..=30).contains(&waits.len()), "{waits:?}");
        assert!(now <= PATIENCE);
    }

    #[test]
    fn waits_of_deliveries_differ() {
        let times: HashSet<_> = (0..50)
            .map(|at| next_try(&format!("d{at}"), 0, 3, 0, None))
            .collect();
        assert!(times.len() > 30);
    }

    #[test]
    fn receiver_may_ask_for_a_longer_wait() {
        let next = |seconds| next_try("d", 0, 1, 0, Some(Duration::from_secs(seconds)));
        assert_eq!(next(600), Some(600 * SECOND));
        assert_eq!(next(1 << 40), Some(LONGEST_WAIT));
        assert_eq!(next(0), next_try("d", 0, 1, 0, None));
    }

    #[test]
    fn alerts_beyond_the_limit_are_held_back_and_counted() {
        let sent = ["x".to_owned()];
        let plan = plan(&facts(10, &sent, &[]), &waiting(5));
        assert_eq!(plan.send, ["d0", "d1"]);
        assert_eq!(plan.hold_back, ["d2", "d3", "d4"]);
        assert_eq!(plan.summary, None);
        // The summary comes once the hour is over.
        let held_back = [10, 10, 10];
        assert_eq!(
            super::plan(&facts(HOUR - 1, &sent, &held_back), &[]).summary,
            None
        );
        assert_eq!(super::plan(&facts(HOUR, &[], &held_back), &[]).summary, Some(3));
    }

    #[test]
    fn change_is_sent_once() {
        let mut twice = waiting(2);
        twice[1].change = "c0".to_owned();
        let plan = plan(&facts(0, &[], &[]), &twice);
        assert_eq!(
            (&plan.send[..], &plan.duplicates[..]),
            (&["d0".to_owned()][..], &["d1".to_owned()][..])
        );
        let sent = ["c0".to_owned()];
        let plan = super::plan(&facts(0, &sent, &[]), &twice);
        assert_eq!(plan.duplicates.len(), 2);
        assert_eq!(delivery_id("a", "b"), delivery_id("a", "b"));
        assert_ne!(delivery_id("ab", "c"), delivery_id("a", "bc"));
    }
}
