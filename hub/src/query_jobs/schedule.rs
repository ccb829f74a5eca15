//! Schedules: equal intervals, from a fixed point of each.

use crate::clock::{DAY, HOUR, SECOND};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const MINUTE: i64 = 60 * SECOND;
/// The longest interval.
const LONGEST: i64 = 7 * DAY;

/// A schedule. All times are UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Schedule {
    /// The time between two runs in microseconds.
    period: i64,
    /// The time of a run after a multiple of the period.
    offset: i64,
}

impl Schedule {
    /// Returns the first time after another one. Both are microseconds since 1970.
    ///
    /// ```
    /// use backtrail_hub::query_jobs::schedule::Schedule;
    ///
    /// let schedule: Schedule = "hourly at :15".parse()?;
    /// let minutes = |minutes: i64| minutes * 60_000_000;
    /// assert_eq!(schedule.next(minutes(10)), minutes(15));
    /// assert_eq!(schedule.next(minutes(15)), minutes(75));
    /// # Ok::<(), backtrail_hub::Error>(())
    /// ```
    #[must_use]
    pub fn next(self, after: i64) -> i64 {
        self.latest(after).saturating_add(self.period)
    }

    /// Returns the last time until another one, which may be that one. Both are microseconds since
    /// 1970.
    #[must_use]
    pub fn latest(self, until: i64) -> i64 {
        let passed = until.saturating_sub(self.offset).div_euclid(self.period);
        passed.saturating_mul(self.period).saturating_add(self.offset)
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| {
            let text: String = text.chars().take(64).collect();
            Error::Invalid(format!(
                "the schedule \"{}\" is unknown; write `every 15m`, `every 6h`, `hourly`, `hourly at :15`, \
                 `daily` or `daily at 03:30` (UTC), and at most 7 days",
                text.escape_debug()
            ))
        })
    }
}

fn parse(text: &str) -> Option<Schedule> {
    let lower = text.trim().to_ascii_lowercase();
    let (first, rest) = lower.split_once(' ').unwrap_or((&lower, ""));
    let at = match rest.trim() {
        "" => None,
        rest => Some(rest.strip_prefix("at ").map(str::trim)),
    };
    match (first, at) {
        ("every", _) => interval(rest.trim()),
        ("hourly", None) => Some(Schedule {
            period: HOUR,
            offset: 0,
        }),
        ("hourly", Some(Some(at))) => Some(Schedule {
            period: HOUR,
            offset: number(at.strip_prefix(':')?, 59)? * MINUTE,
        }),
        ("daily", None) => Some(Schedule {
            period: DAY,
            offset: 0,
        }),
        ("daily", Some(Some(at))) => {
            let (hour, minute) = at.split_once(':')?;
            Some(Schedule {
                period: DAY,
                offset: number(hour, 23)? * HOUR + number(minute, 59)? * MINUTE,
            })
        }
        _ => None,
    }
}

fn interval(text: &str) -> Option<Schedule> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits)?;
    let unit = match unit.trim() {
        "m" | "min" | "minute" | "minutes" => MINUTE,
        "h" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        _ => return None,
    };
    let period = count.parse::<i64>().ok()?.checked_mul(unit)?;
    (MINUTE..=LONGEST)
        .contains(&period)
        .then_some(Schedule { period, offset: 0 })
}

/// Returns a number of one or two digits.
fn number(text: &str, most: i64) -> Option<i64> {
    let is_short = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_short)?;
    (number <= most).then_some(number)
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { period, offset } = *self;
        let (hour, minute) = (offset / HOUR, offset % HOUR / MINUTE);
        match (period, offset) {
            (HOUR, 0) => write!(formatter, "hourly"),
            (HOUR, _) => write!(formatter, "hourly at :{minute:02}"),
            (DAY, 0) => write!(formatter, "daily"),
            (DAY, _) => write!(formatter, "daily at {hour:02}:{minute:02}"),
            _ if period % DAY == 0 => write!(formatter, "every {}d", period / DAY),
            _ if period % HOUR == 0 => write!(formatter, "every {}h", period / HOUR),
            _ => write!(formatter, "every {}m", period / MINUTE),
        }
    }
}

impl TryFrom<String> for Schedule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Schedule> for String {
    fn from(schedule: Schedule) -> Self {
        schedule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_and_written() {
        for (text, written) in [
            ("every 5m", "every 5m"),
            (" Every 90 minutes ", "every 90m"),
            ("every 60m", "hourly"),
            ("every 6 hours", "every 6h"),
            ("every 1 day", "daily"),
            ("every 7d", "every 7d"),
            ("hourly", "hourly"),
            ("hourly at :5", "hourly at :05"),
            ("daily at 03:30", "daily at 03:30"),
            ("daily at 0:00", "daily"),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), written, "{text}");
            assert_eq!(written.parse::<Schedule>().unwrap(), schedule);
        }
    }

    #[test]
    fn other_texts_are_refused_in_a_sentence() {
        for text in [
            "",
            "every",
            "every 0m",
            "every 30s",
            "every 8d",
            "every -5m",
            "every 99999999999999999999m",
            "every 9223372036854775807d",
            "hourly at 15",
            "hourly at :60",
            "daily at 24:00",
            "daily at 3",
            "daily at 003:00",
            "daily at",
            "weekly",
            "every 5é",
            "* * * * *",
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains("every 15m"), "{text}: {error}");
        }
    }

    #[test]
    fn runs_have_equal_distances() {
        let at = |day: i64, hour: i64, minute: i64| day * DAY + hour * HOUR + minute * MINUTE;
        let daily: Schedule = "daily at 03:30".parse().unwrap();
        assert_eq!(daily.next(at(10, 3, 29)), at(10, 3, 30));
        assert_eq!(daily.next(at(10, 3, 30)), at(11, 3, 30));
        // A run that is late does not move the next one.
        let often: Schedule = "every 15m".parse().unwrap();
        assert_eq!(often.next(at(1, 0, 16) + 7), at(1, 0, 30));
        assert_eq!(often.latest(at(1, 0, 16) + 7), at(1, 0, 15));
        assert_eq!(daily.latest(at(10, 3, 30)), at(10, 3, 30));
        assert_eq!(daily.latest(at(10, 3, 29)), at(9, 3, 30));
        let _ = (often.next(i64::MAX), daily.next(i64::MIN));
    }
}
