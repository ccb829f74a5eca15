//! A heat map of an answer to SQL: numbers or names by time. A drag selects a shorter time.

use super::heat_colors::HeatColors;
use super::profile_heat_map::notes;
use super::text::{decimal, number, shown_to, utc};
use super::time_axis::{brushed, times};
use crate::profiles::sql_view::heat::{AnswerHeatMap, HeatRows};
use maud::{Markup, html};

/// The height of a row with a name, in pixels. `hub.css` has the same height of names.
const NAME_HEIGHT: usize = 18;
/// The height of a map of numbers, in pixels.
const HEIGHT: usize = 240;
/// The longest name in characters.
const MAX_NAME: usize = 60;

/// Returns the chart.
#[must_use]
pub fn chart(map: &AnswerHeatMap) -> Markup {
    let rows = map.rows.count();
    let colors = HeatColors::new(map.columns.iter().flatten().copied());
    let cells = map.columns.iter().enumerate().flat_map(|(x, column)| {
        let cell = move |(row, weight): (usize, &f64)| (x, place(map, row), *weight);
        column.iter().enumerate().map(cell)
    });
    let height = match map.rows {
        HeatRows::Names(_) => rows * NAME_HEIGHT,
        HeatRows::Numbers(_) => HEIGHT,
    };
    let column = shown_to(&map.column, MAX_NAME);
    let drawing = html! {
        svg viewBox={ "0 0 " (map.columns.len().max(1)) " " (rows.max(1)) } height=(height) preserveAspectRatio="none"
            role="img" aria-label={ "Heat map of " (column) " over time, with " (rows) " rows" } {
            (colors.draw(cells))
            @for (x, cells) in map.columns.iter().enumerate() {
                @for (row, cell) in cells.iter().enumerate().filter(|(_, cell)| **cell != 0.0) {
                    rect class="point" x=(x) y=(place(map, row)) width="1" height="1" {
                        title { (label(map, row, *cell)) ", " (utc(map.grid.time(x))) }
                    }
                }
            }
            rect class="brush" x="0" y="0" width="0" height=(rows) {}
        }
    };
    let content = html! {
        div class="plot" {
            @match &map.rows {
                HeatRows::Names(names) => ol class="names" { @for name in names { li { (shown_to(name, MAX_NAME)) } } },
                HeatRows::Numbers(scale) => div class="scale" aria-hidden="true" {
                    @let middle = scale.bounds(scale.count() / 2).0;
                    @for bound in [scale.high(), middle, scale.low()] { span { (decimal(bound)) } }
                },
            }
            (drawing)
            (times(map.grid.start, map.grid.length()))
        }
        figcaption {
            @match &map.rows {
                HeatRows::Names(_) => {
                    "The sum of " (column) " by time. Sums of 0 and less have no color. "
                },
                HeatRows::Numbers(scale) => {
                    "The number of rows by time and " (column)
                    @if scale.is_logarithmic() { ", on a logarithmic axis" } ". "
                },
            }
            "A dark cell has " (decimal(colors.top)) " or more. Drag over the map to select a shorter time."
        }
        (notes(&map.notes))
    };
    brushed("trend cells", &map.grid, &content)
}

/// Returns the place of a row from the top. The smallest numbers are at the bottom.
fn place(map: &AnswerHeatMap, row: usize) -> usize {
    match map.rows {
        HeatRows::Names(_) => row,
        HeatRows::Numbers(_) => map.rows.count().saturating_sub(row + 1),
    }
}

/// Returns the text of a cell.
fn label(map: &AnswerHeatMap, row: usize, cell: f64) -> String {
    match &map.rows {
        HeatRows::Names(names) => {
            let name = names.get(row).map_or("", |name| name.as_str());
            format!("{}: {}", shown_to(name, MAX_NAME), decimal(cell))
        }
        HeatRows::Numbers(scale) => {
            let count = number(cell as u64);
            match scale.bounds(row) {
                (from, to) if from == to => format!("{count} of {}", decimal(from)),
                (from, to) => format!("{count} of {} to {}", decimal(from), decimal(to)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::sql_view::grid::TimeGrid;
    use crate::profiles::sql_view::scale::ValueScale;

    fn map(rows: HeatRows, columns: Vec<Vec<f64>>) -> AnswerHeatMap {
        AnswerHeatMap {
            grid: TimeGrid {
                start: 0,
                step: 60_000_000,
                count: columns.len(),
                is_exact: true,
            },
            column: "n".to_owned(),
            rows,
            columns,
            notes: Vec::new(),
        }
    }

    #[test]
    fn names_have_a_row_each() {
        let names = HeatRows::Names(vec!["<b>".to_owned(), "b".to_owned()]);
        let page = chart(&map(names, vec![vec![80.0, 0.0], vec![10.0, -5.0]])).into_string();
        assert!(page.contains("class=\"level l8\" d=\"M0 0h1v1h-1z\""), "{page}");
        assert!(page.contains("class=\"level l1\" d=\"M1 0h1v1h-1z\""), "{page}");
        assert_eq!(page.matches("class=\"level").count(), 2);
        assert!(
            page.contains("<title>b: −5, 1970-01-01 00:01:00 UTC</title>"),
            "{page}"
        );
        assert!(page.contains("<li>&lt;b&gt;</li>"), "{page}");
    }

    #[test]
    fn empty_and_extreme_maps_are_bounded() {
        let names = vec!["\0<b>".repeat(1000); 50];
        for (rows, cell) in [
            (HeatRows::Names(names.clone()), f64::MAX),
            (HeatRows::Names(names), 5e-324),
            (HeatRows::Numbers(ValueScale::default()), 7.0),
            (HeatRows::default(), 0.0),
        ] {
            let count = rows.count();
            let page = chart(&map(rows, vec![vec![cell; count]; 120])).into_string();
            for bad in ["NaN", "inf", "<b>", "\0"] {
                assert!(!page.contains(bad), "{bad}");
            }
            assert!(page.len() < 3 << 20, "{}", page.len());
        }
    }
}
