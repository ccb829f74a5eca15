//! The axis of time below charts of answers to SQL, and their figure.

use super::text::utc;
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
            @for quarter in [0, 1, 2, 3, 4] {
                span { (utc(grid.time(grid.count * quarter / 4)).get(part.clone()).unwrap_or_default()) }
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
