//! The times of pushed samples: those that the store keeps, and those that count from boot.

use super::selection::time_text;
use crate::clock;
use crate::error::{Error, Result};
use backtrail_profile::format::perf_data;
use backtrail_profile::{Profile, UnixNanos};
use std::ops::RangeInclusive;

/// Nanoseconds of a day.
const DAY: u64 = 86_400_000_000_000;
/// The time by which a clock may be ahead of this one, in nanoseconds.
const AHEAD: u64 = 3_600_000_000_000;
/// The longest time since boot in days. Later times are times of day.
const LONGEST_UPTIME: u64 = 3650;

/// The arrival of a push, and the age at which samples are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time of arrival.
    pub time: UnixNanos,
    /// The age in days.
    pub days: u32,
}

impl Arrival {
    /// Returns the arrival of a push now.
    #[must_use]
    pub fn now(days: u32) -> Self {
        Self {
            time: UnixNanos(clock::now().unsigned_abs().saturating_mul(1000)),
            days,
        }
    }

    fn accepted(self) -> RangeInclusive<u64> {
        let age = u64::from(self.days).saturating_mul(DAY);
        self.time.0.saturating_sub(age)..=self.time.0.saturating_add(AHEAD)
    }
}

/// Moves samples whose times count from boot, so that the last one is at the arrival. Returns
/// whether it moved them. Only `perf.data` has no time of day.
pub fn move_from_boot(profile: &mut Profile, bytes: &[u8], arrival: Arrival) -> bool {
    let last = profile.samples.iter().filter_map(|sample| sample.time).max();
    let Some(last) = last.filter(|last| perf_data::is_perf_data(bytes) && last.0 < LONGEST_UPTIME * DAY)
    else {
        return false;
    };
    let moved = |time: UnixNanos| UnixNanos(arrival.time.0.saturating_sub(last.0 - time.0));
    for sample in &mut profile.samples {
        sample.time = sample.time.map(moved);
    }
    true
}

/// Checks that the store keeps samples of these times.
///
/// # Errors
/// Fails if a sample is older than the store keeps, or more than an hour ahead.
pub fn check(profile: &Profile, arrival: Arrival) -> Result<()> {
    let accepted = arrival.accepted();
    let mut times = profile
        .samples
        .iter()
        .filter_map(|sample| sample.time.or(profile.start));
    let Some(wrong) = times.find(|time| !accepted.contains(&time.0)) else {
        return Ok(());
    };
    Err(Error::Invalid(format!(
        "the profile has a sample of {}, and the hub takes samples of the last {} days up to an hour ahead; \
         check the clock of the sender",
        time_text(wrong.0),
        arrival.days
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::format::folded;

    const ARRIVAL: Arrival = Arrival {
        time: UnixNanos(20_000 * DAY),
        days: 90,
    };

    fn with_times(times: &[u64]) -> Profile {
        let mut profile = folded::read(&b"main 1\n"[..]).unwrap();
        let sample = profile.samples[0];
        let at = |time: &u64| backtrail_profile::Sample {
            time: Some(UnixNanos(*time)),
            ..sample
        };
        profile.samples = times.iter().map(at).collect();
        profile
    }

    #[test]
    fn times_since_boot_end_at_the_arrival() {
        let mut profile = with_times(&[5_000, 9_000, 7_000]);
        assert!(move_from_boot(&mut profile, b"PERFILE2", ARRIVAL));
        let times: Vec<_> = profile
            .samples
            .iter()
            .map(|sample| sample.time.unwrap().0)
            .collect();
        let last = ARRIVAL.time.0;
        assert_eq!(times, [last - 4_000, last, last - 2_000]);
        check(&profile, ARRIVAL).unwrap();
    }

    #[test]
    fn times_of_day_stay() {
        for (bytes, time) in [
            (&b"PERFILE2"[..], ARRIVAL.time.0 - 5),
            (b"other", 9_000),
            (b"main 1\n", 9_000),
        ] {
            let mut profile = with_times(&[time]);
            assert!(!move_from_boot(&mut profile, bytes, ARRIVAL));
            assert_eq!(profile.samples[0].time, Some(UnixNanos(time)));
        }
    }

    #[test]
    fn samples_that_are_not_kept_are_refused() {
        let now = ARRIVAL.time.0;
        for time in [now, now - 89 * DAY, now + AHEAD] {
            check(&with_times(&[now, time]), ARRIVAL).unwrap();
        }
        for time in [9_000, now - 91 * DAY, now + AHEAD + 1, now + 400 * DAY] {
            let error = check(&with_times(&[now, time]), ARRIVAL).unwrap_err().to_string();
            assert!(error.contains("the last 90 days"), "{error}");
        }
        // The start is the time of samples without one.
        let mut profile = folded::read(&b"main 1\n"[..]).unwrap();
        check(&profile, ARRIVAL).unwrap();
        profile.start = Some(UnixNanos(7));
        assert!(check(&profile, ARRIVAL).is_err());
    }
}
