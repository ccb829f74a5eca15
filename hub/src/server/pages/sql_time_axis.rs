//! The axis of time below charts of answers to SQL, and their figure.

use super::text::{quarters, utc};
use crate::profiles::sql_view::grid::TimeGrid;
use maud::{Markup, html};

/// A second in microseconds.
const SECOND: i64 = 1_000_000;
/// A day in microseconds.
const DAY: i64 = 86_400 * SECOND;

/// Returns times of the intervals.
pub(super) fn times(grid: &TimeGrid) -> Markup {
    let length = grid.time(grid.count).saturating_sub(grid.start);
    let part = match (length, grid.step) {
        (length, _) if length > 200 * DAY => 0..10,
        (_, step) if step < 60 * SECOND => 5..19,
        _ => 5..16,
    };
    html! {
        div class="times" aria-hidden="true" {
            @for time in quarters(grid.start, length) {
                span { (utc(time).get(part.clone()).unwrap_or_default()) }
            }
        }
    }
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
        // Six intervals do not have quarters.
        let grid = TimeGrid {
            start: 0,
            step: 10 * SECOND,
            count: 6,
            is_exact: true,
        };
        let text = times(&grid).into_string();
        for second in ["00:00", "00:15", "00:30", "00:45", "01:00"] {
            assert!(
                text.contains(&format!("<span>01-01 00:{second}</span>")),
                "{text}"
            );
        }
    }

    #[test]
    fn times_are_as_exact_as_the_step() {
        let text = |step: i64, count: usize| {
            let grid = TimeGrid {
                start: 0,
                step,
                count,
                is_exact: true,
            };
            times(&grid).into_string()
        };
        assert!(text(SECOND, 4).contains("<span>01-01 00:00:01</span>"));
        assert!(text(60 * SECOND, 4).contains("<span>01-01 00:01</span>"));
        assert!(text(DAY, 400).contains("<span>1970-04-11</span>"));
        assert!(text(i64::MAX, usize::MAX / 8).contains("<span>"));
    }
}
