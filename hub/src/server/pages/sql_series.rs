//! Series over time of an answer to SQL, as lines. A drag over them selects a shorter time.

use super::profile_heat_map::notes;
use super::text::{decimal, shown_to, utc};
use super::time_axis::{brushed, times};
use crate::profiles::sql_view::series::{SeriesLine, TimeSeries};
use maud::{Markup, html};
use std::fmt::Write as _;

/// The width of the chart in its own units.
const WIDTH: f64 = 960.0;
/// The height of the chart in its own units.
const HEIGHT: f64 = 200.0;
/// The number of colors.
const COLORS: usize = 8;
/// The longest name of a series in characters.
const MAX_NAME: usize = 60;
/// The longest name of a series at a point.
const MAX_SHORT_NAME: usize = 24;

/// The axis of numbers: round bounds, one of which is 0 or on its other side.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ValueAxis {
    low: f64,
    high: f64,
}

impl ValueAxis {
    fn new(series: &TimeSeries) -> Self {
        let values = || series.lines.iter().flat_map(|line| line.values.iter().flatten());
        let low = values().copied().fold(0.0, f64::min);
        let high = values().copied().fold(0.0, f64::max);
        match (round_out(low), round_out(high)) {
            (0.0, 0.0) => Self { low: 0.0, high: 1.0 },
            (low, high) => Self { low, high },
        }
    }

    /// Returns the place of a number in the chart. Large numbers are above.
    fn place(&self, value: f64) -> f64 {
        // The difference of the bounds may be infinite.
        let size = self.low.abs().max(self.high.abs()).max(f64::MIN_POSITIVE);
        let [low, high, value] = [self.low, self.high, value].map(|value| value / size);
        let share = (value - low) / (high - low).max(f64::MIN_POSITIVE);
        HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    }

    fn middle(&self) -> f64 {
        self.low / 2.0 + self.high / 2.0
    }
}

/// Returns a round number that is not closer to 0.
fn round_out(value: f64) -> f64 {
    let size = value.abs();
    if size == 0.0 {
        return 0.0;
    }
    let unit = 10_f64.powf(size.log10().floor());
    let rounds = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].map(|factor| factor * unit);
    let round = rounds
        .into_iter()
        .find(|round| *round >= size && round.is_finite());
    round.unwrap_or(size).copysign(value)
}

/// Returns the chart.
#[must_use]
pub fn chart(series: &TimeSeries) -> Markup {
    let grid = &series.grid;
    let axis = ValueAxis::new(series);
    let each = WIDTH / grid.count.max(1) as f64;
    let lines = series
        .lines
        .get(..series.lines.len().min(COLORS))
        .unwrap_or_default();
    let label = format!(
        "{} series over time, from {} to {}",
        lines.len(),
        decimal(axis.low),
        decimal(axis.high)
    );
    let drawing = html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
            @for y in [0.0, HEIGHT / 2.0, HEIGHT, axis.place(0.0)] {
                path class="grid" d={ "M0 " (format!("{y:.2}")) "H" (WIDTH) } {}
            }
            @for (number, line) in lines.iter().enumerate() {
                path class={ "line s" (number) } d=(path(line, &axis, each)) {}
            }
            @for at in 0..grid.count {
                @if lines.iter().any(|line| value(line, at).is_some()) {
                    rect class="point" x=(format!("{:.2}", at as f64 * each)) y="0"
                        width=(format!("{each:.2}")) height=(HEIGHT) {
                        title { (utc(grid.time(at))) (values(lines, at)) }
                    }
                }
            }
            rect class="brush" x="0" y="0" width="0" height=(HEIGHT) {}
        }
    };
    let content = html! {
        div class="plot" {
            div class="scale" aria-hidden="true" {
                @for bound in [axis.high, axis.middle(), axis.low] { span { (decimal(bound)) } }
            }
            (drawing)
            (times(grid.start, grid.length()))
        }
        figcaption class="legend" {
            @for (number, line) in lines.iter().enumerate() {
                span {
                    svg class="swatch" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true" {
                        rect class={ "b" (number) } width="10" height="10" rx="2" {}
                    }
                    (shown_to(&line.name, MAX_NAME))
                }
            }
        }
        p class="none" { "Drag over the chart to select a shorter time." }
        (notes(&series.notes))
    };
    brushed("trend lines", grid, &content)
}

fn value(line: &SeriesLine, at: usize) -> Option<f64> {
    line.values.get(at).copied().flatten()
}

/// Returns the numbers of an interval, with the names of their series.
fn values(lines: &[SeriesLine], at: usize) -> String {
    let mut text = String::new();
    for line in lines {
        if let Some(value) = value(line, at) {
            let name = shown_to(&line.name, MAX_SHORT_NAME);
            let _ = write!(text, "\n{name}: {}", decimal(value));
        }
    }
    text
}

/// Returns the outline of a line. A missing number is a gap, and a number between two gaps a dot.
fn path(line: &SeriesLine, axis: &ValueAxis, each: f64) -> String {
    let mut path = String::new();
    for at in 0..line.values.len() {
        let Some(number) = value(line, at) else {
            continue;
        };
        let (x, y) = ((at as f64 + 0.5) * each, axis.place(number));
        let is_first = at.checked_sub(1).and_then(|before| value(line, before)).is_none();
        let command = if is_first { 'M' } else { 'L' };
        let _ = write!(path, "{command}{x:.2} {y:.2}");
        if is_first && value(line, at + 1).is_none() {
            path.push_str("h0.01");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::sql_view::grid::TimeGrid;

    fn series(lines: Vec<(&str, Vec<Option<f64>>)>) -> TimeSeries {
        let count = lines.first().map_or(0, |(_, values)| values.len());
        TimeSeries {
            grid: TimeGrid {
                start: 0,
                step: 60_000_000,
                count,
                is_exact: true,
            },
            lines: lines
                .into_iter()
                .map(|(name, values)| SeriesLine {
                    name: name.to_owned(),
                    values,
                })
                .collect(),
            notes: vec!["a note".to_owned()],
        }
    }

    #[test]
    fn gaps_are_not_drawn() {
        let lines = vec![("cpu", vec![Some(10.0), Some(5.0), None, Some(0.0)])];
        let page = chart(&series(lines)).into_string();
        assert!(
            page.contains("d=\"M120.00 0.00L360.00 100.00M840.00 200.00h0.01\""),
            "{page}"
        );
        assert_eq!(page.matches("<title>").count(), 3);
        assert!(page.contains("1970-01-01 00:03:00 UTC\ncpu: 0"), "{page}");
        assert!(
            page.contains("data-start=\"0\" data-step=\"60000000\" data-count=\"4\""),
            "{page}"
        );
        assert!(page.contains("a note"));
    }

    #[test]
    fn bounds_are_round() {
        let rounds = [1.0, 1.5, 3.0, 7.5, 99.0, -0.03, 0.0].map(round_out);
        assert_eq!(rounds, [1.0, 2.0, 4.0, 8.0, 100.0, -0.04, 0.0]);
        let axis = ValueAxis::new(&series(vec![("a", vec![Some(-30.0), Some(10.0)])]));
        assert_eq!((axis.low, axis.high, axis.middle()), (-40.0, 10.0, -15.0));
    }

    #[test]
    fn extreme_and_empty_series_are_bounded() {
        let extremes = [f64::MIN, f64::MAX, 5e-324, 0.0].map(Some).to_vec();
        for values in [
            extremes,
            vec![Some(5e-324)],
            vec![None; 3],
            vec![Some(0.0); 2000],
            vec![],
        ] {
            let lines = vec![("<b>\0", values); 20];
            let page = chart(&series(lines)).into_string();
            for bad in ["NaN", "inf", "<b>", "\0"] {
                assert!(!page.contains(bad), "{bad}");
            }
            assert_eq!(page.matches("class=\"line ").count(), COLORS);
            assert!(page.len() < 1 << 20, "{}", page.len());
        }
    }
}
