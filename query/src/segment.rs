//! Dates and hours of segments, as columns.

use backtrail_store::Hour;

/// Returns the day of an hour as the number of days since the Unix epoch.
pub(crate) fn day(hour: Hour) -> i32 {
    i32::try_from(hour.0 / 24).unwrap_or(i32::MAX)
}

/// Returns the hour of the day.
pub(crate) fn hour_of_day(hour: Hour) -> i32 {
    i32::try_from(hour.0 % 24).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_and_hour_are_those_of_the_folder() {
        let hour = Hour(498_873);
        assert_eq!(hour.to_string(), "date=2026-11-29/hour=09");
        // 20 786 days after 1970-01-01 is 2026-11-29.
        assert_eq!((day(hour), hour_of_day(hour)), (20_786, 9));
    }
}
