//! A heat map: columns of time, each divided into rows. A click on a cell selects its time.

use super::heat_colors::HeatColors;
use super::text::{amount, shown_to};
use super::time_axis::times;
use maud::{Markup, html};

/// The most cells.
const MOST: usize = 1 << 14;

/// Weights by columns and rows of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeatMapChart {
    /// The event.
    pub event: String,
    /// The unit of the weights.
    pub unit: String,
    /// The start of the first column in microseconds since 1970.
    pub start: i64,
    /// The length of a row in microseconds.
    pub step: i64,
    /// The weights of each column, the earliest row first.
    pub columns: Vec<Vec<i64>>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
}

/// Returns the chart.
#[must_use]
pub fn chart(map: &HeatMapChart) -> Markup {
    let rows = map.columns.iter().map(Vec::len).max().unwrap_or(0);
    let columns = map.columns.get(..map.columns.len().min(MOST / rows.max(1)));
    let columns = columns.unwrap_or_default();
    let most = columns.iter().flatten().copied().max().unwrap_or(0);
    if most <= 0 {
        return html! { p class="none" { "No samples in this time." } };
    }
    let colors = HeatColors::new(columns.iter().flatten().map(|weight| *weight as f64));
    let cells = columns.iter().enumerate().flat_map(|(x, column)| {
        let cell = move |(row, weight): (usize, &i64)| (x, rows - 1 - row, *weight as f64);
        column.iter().enumerate().map(cell)
    });
    let length = map.step.saturating_mul(i64::try_from(rows).unwrap_or(i64::MAX));
    let at_time = |at: usize| {
        map.start
            .saturating_add(length.saturating_mul(i64::try_from(at).unwrap_or(i64::MAX)))
    };
    let weights: Vec<String> = columns.iter().flatten().map(i64::to_string).collect();
    let event = shown_to(&map.event, 60);
    html! {
        figure class="trend heat" id="heat" data-start=(map.start) data-step=(map.step) data-rows=(rows)
            data-columns=(columns.len()) data-unit=(shown_to(&map.unit, 20)) data-weights=(weights.join(",")) {
            div class="plot" {
                svg viewBox={ "0 0 " (columns.len()) " " (rows) } preserveAspectRatio="none" tabindex="0" role="application"
                    aria-label={ "Heat map of " (event) ". Arrow keys walk the cells, with Shift they select more, "
                        "Enter shows the profile of the selected time." } {
                    (colors.draw(cells))
                    path class="brush" id="heat-brush" d="" {}
                }
                (times(map.start, at_time(columns.len()).saturating_sub(map.start)))
            }
            figcaption {
                (event) " by time: a column is " (duration(length)) ", and a row in it is " (duration(map.step))
                ", the earliest at the bottom. A dark cell has " (amount(colors.top as i64, &map.unit)) " or more. "
                "Click a cell, or drag over several, for the profile of their time."
            }
            p class="cell" id="heat-cell" role="status" {}
            (notes(&map.notes))
        }
    }
}

/// Returns sentences below a chart.
pub(super) fn notes(notes: &[String]) -> Markup {
    html! { @for note in notes.iter().take(4) { p class="none" { (shown_to(note, 300)) } } }
}

/// Returns a length in microseconds.
pub(super) fn duration(micros: i64) -> String {
    let micros = micros.unsigned_abs();
    let (unit, size) = match micros {
        0..=999 => ("µs", 1.0),
        1_000..=999_999 => ("ms", 1e3),
        1_000_000..=119_999_999 => ("s", 1e6),
        120_000_000..=7_199_999_999 => ("min", 6e7),
        _ => ("h", 3.6e9),
    };
    let number = (micros as f64 / size * 100.0).round() / 100.0;
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_decimals_at_most() {
        for (micros, text) in [
            (0, "0 µs"),
            (1_250, "1.25 ms"),
            (28_333_333, "28.33 s"),
            (30_000_000, "30 s"),
            (7_200_000_000, "2 h"),
        ] {
            assert_eq!(duration(micros), text);
        }
    }

    #[test]
    fn cells_have_the_color_of_their_weight() {
        let map = HeatMapChart {
            event: "cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
            step: 20_000,
            columns: vec![vec![0, 80, 0], vec![10, 0, -5]],
            ..HeatMapChart::default()
        };
        let page = chart(&map).into_string();
        // The first row of a column is at the bottom.
        assert!(page.contains("class=\"level l8\" d=\"M0 1h1v1h-1z\""), "{page}");
        assert!(page.contains("d=\"M1 2h1v1h-1z\""), "{page}");
        assert_eq!(page.matches("class=\"level").count(), 2);
        assert!(page.contains("data-weights=\"0,80,0,10,0,-5\""), "{page}");
        assert!(
            page.contains("a column is 60 ms, and a row in it is 20 ms"),
            "{page}"
        );
    }

    #[test]
    fn empty_and_huge_maps_are_bounded() {
        assert!(
            chart(&HeatMapChart::default())
                .into_string()
                .contains("No samples")
        );
        let map = HeatMapChart {
            start: i64::MAX,
            step: i64::MAX,
            columns: vec![vec![i64::MAX; 50]; 5000],
            ..HeatMapChart::default()
        };
        let page = chart(&map).into_string();
        assert!(page.len() < 1 << 20, "{}", page.len());
    }
}
