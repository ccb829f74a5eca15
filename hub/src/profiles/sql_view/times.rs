//! Times of an answer: texts as `2026-11-29T10:00:00.5Z`, which the engine writes.

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// Returns a time in microseconds since 1970. Smaller parts are cut. `None`: the text is no time of
/// the years 0 to 9999.
pub(super) fn micros(text: &str) -> Option<i64> {
    let (date, clock) = match text.split_once(['T', ' ']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = number(parts.next()?, 9999).filter(|_| date.len() == 10)?;
    let month = number(parts.next()?, 12).filter(|month| *month > 0)?;
    let day = number(parts.next()?, 31).filter(|day| *day > 0)?;
    if parts.next().is_some() {
        return None;
    }
    let start = days(year, month, day) * 86_400 * SECOND;
    Some(start + clock.map_or(Some(0), of_day)?)
}

/// Returns a time of day with its offset in microseconds.
fn of_day(clock: &str) -> Option<i64> {
    let (clock, offset) = match (clock.strip_suffix('Z'), clock.rfind(['+', '-'])) {
        (Some(clock), _) => (clock, 0),
        (None, None) => (clock, 0),
        (None, Some(at)) => {
            let (clock, offset) = clock.split_at(at);
            let sign = if offset.starts_with('-') { -1 } else { 1 };
            (clock, sign * seconds(offset.get(1..)?)?)
        }
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let is_number = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let fraction: i64 = fraction.parse().ok().filter(|_| is_number)?;
    Some((seconds(clock)? - offset) * SECOND + fraction)
}

/// Returns the seconds of `hh:mm` or `hh:mm:ss`.
fn seconds(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let hour = number(parts.next()?, 24)?;
    let minute = number(parts.next()?, 59)?;
    let second = match parts.next() {
        None => 0,
        Some(second) => number(second, 60)?,
    };
    parts
        .next()
        .is_none()
        .then_some(hour * 3600 + minute * 60 + second)
}

/// Returns a number of at most four digits that is not larger than `most`.
fn number(text: &str, most: i64) -> Option<i64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= most)
}

/// Returns the days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last day.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_engine_are_read() {
        let noon = 1_795_953_600 * SECOND;
        for (text, expected) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999", -1),
            ("2000-02-29T12:34:56Z", 951_827_696 * SECOND),
            ("2026-11-29T12:00:00Z", noon),
            ("2026-11-29 12:00", noon),
            ("2026-11-29T12:00:00.5Z", noon + SECOND / 2),
            ("2026-11-29T12:00:00.123456789Z", noon + 123_456),
            ("2026-11-29T13:30:00+01:30", noon),
            ("2026-11-29T10:00:00-02:00", noon),
            ("9999-12-31T23:59:59Z", 253_402_300_799 * SECOND),
        ] {
            assert_eq!(micros(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "-",
            "now",
            "2026-11",
            "2026-13-01",
            "2026-00-01",
            "2026-11-29-1",
            "26-011-29",
            "2026-11-29T",
            "2026-11-29T12",
            "2026-11-29T12:00:00.Z",
            "2026-11-29T12:00:00.xZ",
            "2026-11-29T12:00:00+",
            "2026-11-29T12:00:00+1é",
            "+10000-01-01T00:00:00",
            "99999999999999999999-01-01",
            "2026-11-29T12:00:00:00",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
    }
}
