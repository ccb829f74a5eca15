//! The watched number of a job over its runs: a small line for lists, and a chart.

use super::text::{counted, number, shown_to};
use super::time_axis::times;
use maud::{Markup, html};

/// The width of the chart in its own units.
const WIDTH: f64 = 960.0;
/// The height of the chart.
const HEIGHT: f64 = 120.0;
/// The width and height of a line in a list.
const SPARK: (f64, f64) = (96.0, 28.0);
/// The most points of a line.
const MOST: usize = 1000;

/// A run's number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValuePoint {
    /// The time in microseconds since 1970.
    pub time: i64,
    /// The number. `None`: the run failed, or its result has none.
    pub value: Option<f64>,
}

/// The bounds of a chart, and the place of points in it.
struct Scale {
    low: f64,
    high: f64,
    first: i64,
    last: i64,
    size: (f64, f64),
}

impl Scale {
    fn new(points: &[ValuePoint], bound: Option<f64>, size: (f64, f64)) -> Option<Self> {
        let values = points.iter().filter_map(|point| point.value);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.chain(bound).filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return None;
        }
        if low == high {
            let around = (low.abs() * 0.1).max(1.0);
            (low, high) = (low - around, high + around);
        }
        let times = || points.iter().map(|point| point.time);
        Some(Self {
            low,
            high,
            first: times().min()?,
            last: times().max()?,
            size,
        })
    }

    fn x(&self, time: i64) -> f64 {
        let length = self.last.saturating_sub(self.first).max(1) as f64;
        (time.saturating_sub(self.first) as f64 / length * (self.size.0 - 4.0)) + 2.0
    }

    fn y(&self, value: f64) -> f64 {
        // Halves, because the difference of two large numbers may have no number.
        let range = self.high / 2.0 - self.low / 2.0;
        let share = ((value / 2.0 - self.low / 2.0) / range).clamp(0.0, 1.0);
        self.size.1 - 2.0 - share * (self.size.1 - 4.0)
    }

    /// Returns the path of a line. A run without a number is a gap.
    fn path(&self, points: &[ValuePoint]) -> String {
        let mut path = String::new();
        let mut is_open = false;
        for point in points {
            match point.value {
                None => is_open = false,
                Some(value) => {
                    let letter = if is_open { 'L' } else { 'M' };
                    let (x, y) = (self.x(point.time), self.y(value));
                    path.push_str(&format!("{letter}{x:.1} {y:.1}"));
                    if !is_open {
                        // A point alone has a length of its own.
                        path.push_str("h0.1");
                    }
                    is_open = true;
                }
            }
        }
        path
    }
}

fn newest(points: &[ValuePoint]) -> &[ValuePoint] {
    points
        .get(points.len().saturating_sub(MOST)..)
        .unwrap_or_default()
}

/// Returns a small line, the oldest point first.
pub(super) fn spark(points: &[ValuePoint], label: &str) -> Markup {
    let points = newest(points);
    let Some(scale) = Scale::new(points, None, SPARK) else {
        return html! { span class="dim" { "no values" } };
    };
    html! {
        svg class="spark line" viewBox={ "0 0 " (SPARK.0) " " (SPARK.1) } preserveAspectRatio="none" role="img"
            aria-label={ (shown_to(label, 100)) ", from " (short(scale.low)) " to " (short(scale.high)) } {
            path class="values" d=(scale.path(points)) {}
        }
    }
}

/// Returns a chart with the threshold as a line, the oldest point first.
pub(super) fn chart(points: &[ValuePoint], label: &str, bound: Option<f64>) -> Markup {
    let points = newest(points);
    let Some(scale) = Scale::new(points, bound, (WIDTH, HEIGHT)) else {
        return html! { p class="none" { "No run has a number yet." } };
    };
    let length = scale.last.saturating_sub(scale.first);
    html! {
        figure class="trend values" {
            div class="plot" {
                div class="scale" aria-hidden="true" { span { (short(scale.high)) } span { (short(scale.low)) } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label={ (shown_to(label, 100)) " over time, from " (short(scale.low)) " to " (short(scale.high)) } {
                    path class="grid" d={ "M0 " (HEIGHT) "H" (WIDTH) } {}
                    @if let Some(bound) = bound {
                        path class="bound" d={ "M0 " (format!("{:.1}", scale.y(bound))) "H" (WIDTH) } {
                            title { "Threshold " (short(bound)) }
                        }
                    }
                    path class="values" d=(scale.path(points)) {}
                }
                (times(scale.first, length))
            }
            figcaption { (shown_to(label, 100)) " over " (counted(points.len() as u64, "run")) @if bound.is_some() { "; the dashed line is the threshold" } }
        }
    }
}

/// Returns a number in few characters.
#[must_use]
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e6 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", number(size as u64));
    }
    let (scaled, letter) = match size {
        size if size >= 1e15 || (size < 1e-3 && size > 0.0) => return format!("{value:.2e}"),
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    format!("{scaled:.digits$}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (-12.0, "-12"),
            (123_456.0, "123,456"),
            (0.0312, "0.0312"),
            (12.345, "12.35"),
            (1_234_567.0, "1.23M"),
            (2.5e12, "2500.0G"),
            (1e-9, "1.00e-9"),
            (f64::MAX, "1.80e308"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn failed_runs_are_gaps() {
        let values = [Some(1.0), None, Some(3.0), Some(2.0)];
        let points: Vec<_> = values
            .iter()
            .zip(0..)
            .map(|(&value, time)| ValuePoint { time, value })
            .collect();
        let page = chart(&points, "p99", Some(2.5)).into_string();
        let path = page.split("class=\"values\" d=\"").nth(1).unwrap();
        let path = path.split('"').next().unwrap();
        assert_eq!(
            (path.matches('M').count(), path.matches('L').count()),
            (2, 1),
            "{path}"
        );
        assert!(page.contains("class=\"bound\""));
        assert!(chart(&points[1..2], "p99", None).into_string().contains("No run"));
        assert!(spark(&[], "p99").into_string().contains("no values"));
    }

    #[test]
    fn extreme_numbers_have_places() {
        let points = [f64::MAX, f64::MIN, 0.0].map(|value| ValuePoint {
            time: i64::MAX,
            value: Some(value),
        });
        let page = chart(&points, "x", None).into_string();
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
