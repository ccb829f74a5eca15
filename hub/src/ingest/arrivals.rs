//! Notes how fast bundles arrive. Analyses wait while more arrive than they can read.
//!
//! A sender waits for the hub to take its bundle, and no person waits for the analysis of the
//! thousandth. Uploads and analyses share the processors, so uploads come first.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time over which bundles are counted.
const WINDOW: Duration = Duration::from_secs(2);
/// The bundles for each place of an analysis in this time, above which analyses wait.
const MOST: usize = 8;
/// The longest time between two starts of analyses. Bundles that arrive for hours stop none.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The bundles that arrived last, and the last start of an analysis.
#[derive(Debug)]
pub struct Arrivals {
    most: usize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    arrived: VecDeque<Instant>,
    started: Option<Instant>,
}

impl Arrivals {
    /// Returns the arrivals at a hub with a number of analyses at once.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            most: MOST * places.max(1),
            seen: Mutex::default(),
        }
    }

    /// Notes that a bundle arrived as a whole.
    pub fn note(&self, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.arrived.push_back(now);
        // One more than the limit says enough.
        if seen.arrived.len() > self.most + 1 {
            seen.arrived.pop_front();
        }
    }

    /// Returns whether an analysis may start now.
    #[must_use]
    pub fn permit_analysis(&self, now: Instant) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |&at: &Instant| now.saturating_duration_since(at) <= WINDOW;
        let is_flood = seen.arrived.len() > self.most && seen.arrived.front().is_some_and(recent);
        let has_waited = |at: Instant| now.saturating_duration_since(at) >= LONGEST_WAIT;
        !is_flood || seen.started.is_none_or(has_waited)
    }

    /// Notes that an analysis starts.
    pub fn note_start(&self, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.started = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_bundles_stop_no_analysis() {
        let arrivals = Arrivals::new(2);
        let start = Instant::now();
        for at in 0..100 {
            let now = start + Duration::from_millis(130 * at);
            arrivals.note(now);
            assert!(arrivals.permit_analysis(now), "after {at} bundles");
            arrivals.note_start(now);
        }
    }

    #[test]
    fn analyses_wait_for_a_flood_but_never_long() {
        let arrivals = Arrivals::new(2);
        let start = Instant::now();
        let mut starts = Vec::new();
        for at in 0..1000_u32 {
            let now = start + Duration::from_millis(20) * at;
            arrivals.note(now);
            if arrivals.permit_analysis(now) {
                arrivals.note_start(now);
                starts.push(at);
            }
        }
        // The first 16 of 50 a second are no flood. Then one starts in five seconds.
        assert_eq!(starts[..16], (0..16).collect::<Vec<_>>());
        assert_eq!(starts[16..], [265, 515, 765]);
        let end = start + Duration::from_secs(20) + WINDOW;
        assert!(arrivals.permit_analysis(end));
    }
}
