//! The axis of time below charts, and the figure of a chart over which a drag selects a time.

use super::text::{seconds_and_parts, utc};
use crate::profiles::sql_view::grid::TimeGrid;
use maud::{Markup, html};
use std::ops::RangeInclusive;

/// A second in microseconds.
const SECOND: i64 = 1_000_000;
/// An hour in microseconds.
const HOUR: i64 = 3600 * SECOND;
/// A day in microseconds.
const DAY: i64 = 24 * HOUR;

/// Returns the times at the start of a chart, at its end, and at the quarters between them. The
/// start and the length are in microseconds. Times of a short chart have seconds, or milliseconds
/// without a date, so that neighbors differ. A chart of one time has that time.
///
/// ```text
/// times(0, 60 * SECOND) has 01-01 00:00:00, 01-01 00:00:15 to 01-01 00:01:00
/// ```
pub(super) fn times(start: i64, length: i64) -> Markup {
    html! {
        div class="times" aria-hidden="true" {
            @if length > 0 {
                @for time in quarters(start, length) { span { (label(time, length)) } }
            } @else {
                span { (utc(start)) }
            }
        }
    }
}

/// Returns a time as the axis of a chart of a length shows it.
fn label(time: i64, length: i64) -> String {
    const DATE: RangeInclusive<usize> = 0..=9;
    const MINUTES: RangeInclusive<usize> = 5..=15;
    const SECONDS: RangeInclusive<usize> = 5..=18;
    const MILLISECONDS: RangeInclusive<usize> = 11..=22;
    let (text, part) = if length < 20 * SECOND {
        (seconds_and_parts(time), MILLISECONDS)
    } else if length < HOUR {
        (utc(time), SECONDS)
    } else if length <= 200 * DAY {
        (utc(time), MINUTES)
    } else {
        (utc(time), DATE)
    };
    text.get(part).unwrap_or_default().to_owned()
}

/// Returns the start, the end, and the quarters between them.
fn quarters(start: i64, length: i64) -> [i64; 5] {
    [0, 1, 2, 3, 4].map(|quarter: i64| {
        let offset = i128::from(length) * i128::from(quarter) / 4;
        start.saturating_add(i64::try_from(offset).unwrap_or(i64::MAX))
    })
}

/// Returns the figure of a chart over which a drag selects a time.
pub(super) fn brushed(class: &str, grid: &TimeGrid, content: &Markup) -> Markup {
    html! {
        figure class=(class) data-brush data-start=(grid.start) data-step=(grid.step) data-count=(grid.count) {
            (content)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_their_places() {
        let text = times(0, 60 * SECOND).into_string();
        for second in ["00:00", "00:15", "00:30", "00:45", "01:00"] {
            assert!(
                text.contains(&format!("<span>01-01 00:{second}</span>")),
                "{text}"
            );
        }
    }

    #[test]
    fn neighbors_differ_at_each_length() {
        let text = |length: i64| times(0, length).into_string();
        assert!(text(0).contains("<span>1970-01-01 00:00:00 UTC</span></div>"));
        assert!(text(SECOND).contains("<span>00:00:00.250</span>"));
        assert!(text(20 * SECOND).contains("<span>01-01 00:00:05</span>"));
        assert!(text(HOUR).contains("<span>01-01 00:15</span>"));
        assert!(text(400 * DAY).contains("<span>1970-04-11</span>"));
        assert!(text(i64::MAX).contains("<span>"));
        for length in [4000, SECOND, 20 * SECOND, HOUR - 1, HOUR, DAY, 201 * DAY] {
            let mut labels = quarters(0, length).map(|time| label(time, length)).to_vec();
            labels.dedup();
            assert_eq!(labels.len(), 5, "{length}: {labels:?}");
        }
    }
}
