//! Hours of UTC, the unit of partitions.

use backtrail_profile::UnixNanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Nanoseconds of an hour.
const LENGTH: u64 = 3_600_000_000_000;

/// An hour of UTC: the number of hours since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hour(pub u32);

impl Hour {
    /// Returns the hour that contains a time.
    #[must_use]
    pub fn of(time: UnixNanos) -> Self {
        // 2^64 nanoseconds are less than 2^23 hours.
        Self((time.0 / LENGTH) as u32)
    }

    /// Returns the first nanosecond of the hour.
    #[must_use]
    pub fn start(self) -> UnixNanos {
        UnixNanos(u64::from(self.0).saturating_mul(LENGTH))
    }

    /// Returns the first nanosecond after the hour.
    #[must_use]
    pub fn end(self) -> UnixNanos {
        UnixNanos(self.start().0.saturating_add(LENGTH))
    }

    /// Returns the hours that overlap a range of times.
    #[must_use]
    pub fn range(times: &Range<UnixNanos>) -> Range<Self> {
        if times.is_empty() {
            return Self(0)..Self(0);
        }
        let last = Self::of(UnixNanos(times.end.0 - 1));
        Self::of(times.start)..Self(last.0.saturating_add(1))
    }

    /// Returns the hour of a partition, as [`Hour`]'s `Display` writes it.
    pub(crate) fn parse(date: &str, hour: &str) -> Option<Self> {
        let mut parts = date.strip_prefix("date=")?.splitn(3, '-');
        let mut number = || parts.next()?.parse::<u32>().ok();
        let (year, month, day) = (number()?, number()?, number()?);
        let hour_of_day: u32 = hour.strip_prefix("hour=")?.parse().ok()?;
        if !(1970..=2554).contains(&year) || !(1..=12).contains(&month) || hour_of_day > 23 {
            return None;
        }
        let found = Self(days_before(year, month)?.checked_add(day.checked_sub(1)?)? * 24 + hour_of_day);
        // The text of a date that does not exist differs.
        (found.to_string() == format!("{date}/{hour}")).then_some(found)
    }
}

/// The partition: `date=2026-11-29/hour=09`.
impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0 / 24);
        write!(f, "date={year:04}-{month:02}-{day:02}/hour={:02}", self.0 % 24)
    }
}

fn is_leap(year: u32) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}

fn days_of(year: u32, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from 1970 to the first of a month.
fn days_before(year: u32, month: u32) -> Option<u32> {
    let years = (1970..year).map(|year| 365 + u32::from(is_leap(year)));
    let months = (1..month).map(|month| days_of(year, month));
    years
        .chain(months)
        .try_fold(0, |sum: u32, days| sum.checked_add(days))
}

/// Returns year, month and day of a number of days since 1970.
fn date(mut days: u32) -> (u32, u32, u32) {
    let mut year = 1970;
    // 146 097 days are 400 years.
    year += days / 146_097 * 400;
    days %= 146_097;
    loop {
        let length = 365 + u32::from(is_leap(year));
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let mut month = 1;
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn partition_is_the_date_and_hour_of_utc() {
        // 2026-11-29T09:48:43Z
        let hour = Hour::of(UnixNanos(1_795_945_723_000_000_000));
        assert_eq!(hour.to_string(), "date=2026-11-29/hour=09");
        assert_eq!(Hour(0).to_string(), "date=1970-01-01/hour=00");
    }

    #[test]
    fn wrong_partitions_are_refused() {
        for (date, hour) in [
            ("date=2026-02-29", "hour=00"),
            ("date=2026-1-01", "hour=00"),
            ("date=2026-01-01", "hour=24"),
            ("date=9999999-01-01", "hour=00"),
            ("2026-01-01", "hour=00"),
        ] {
            assert_eq!(Hour::parse(date, hour), None, "{date}/{hour}");
        }
    }

    #[test]
    fn range_ends_before_an_hour_that_it_does_not_touch() {
        let hour = Hour(7);
        assert_eq!(Hour::range(&(hour.start()..hour.end())), Hour(7)..Hour(8));
        let one_more = UnixNanos(hour.end().0 + 1);
        assert_eq!(Hour::range(&(hour.start()..one_more)), Hour(7)..Hour(9));
    }

    proptest! {
        #[test]
        fn partition_of_an_hour_is_read_back(hour in 0u32..5_000_000) {
            let text = Hour(hour).to_string();
            let (date, part) = text.split_once('/').unwrap();
            prop_assert_eq!(Hour::parse(date, part), Some(Hour(hour)));
        }
    }
}
