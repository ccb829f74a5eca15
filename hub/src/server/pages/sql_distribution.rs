//! A distribution of an answer to SQL: bars and percentiles.

use super::text::{counted, decimal, number, shown_to};
use crate::profiles::sql_view::distribution::AnswerDistribution;
use maud::{Markup, html};

/// The width of the chart in its own units.
const WIDTH: f64 = 960.0;
/// The height of its bars.
const HEIGHT: f64 = 150.0;
/// The names of the percentiles.
const PERCENTILES: [&str; 4] = ["Median", "90 %", "99 %", "99.9 %"];

/// Returns the chart.
#[must_use]
pub fn chart(view: &AnswerDistribution) -> Markup {
    let scale = &view.scale;
    let column = shown_to(&view.column, 60);
    let most = view.counts.iter().copied().max().unwrap_or(1).max(1);
    let each = WIDTH / view.counts.len().max(1) as f64;
    let (low, high) = (decimal(scale.low()), decimal(scale.high()));
    let middle = decimal(scale.bounds(scale.count() / 2).0);
    html! {
        figure class="trend distribution" {
            div class="plot" {
                div class="scale" aria-hidden="true" { span { (number(most)) } span { "0" } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label={ "Distribution of " (column) ", from " (low) " to " (high) } {
                    path class="grid" d={ "M0 " (HEIGHT) "H" (WIDTH) } {}
                    @for (bar, &count) in view.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                        @let height = (count as f64 / most as f64 * HEIGHT).max(1.0);
                        rect x=(format!("{:.2}", bar as f64 * each)) y=(format!("{:.2}", HEIGHT - height))
                            width=(format!("{:.2}", (each - 1.0).max(0.6))) height=(format!("{height:.2}")) {
                            title { (label(view, bar, count)) }
                        }
                    }
                }
                div class="times" aria-hidden="true" { span { (low) } span { (middle) } span { (high) } }
            }
            dl class="facts" {
                @for (name, value) in PERCENTILES.iter().zip(view.percentiles) { div { dt { (name) } dd { (decimal(value)) } } }
                div { dt { "Smallest" } dd { (low) } }
                div { dt { "Largest" } dd { (high) } }
                div { dt { "Values" } dd { (number(view.count)) } }
            }
            figcaption {
                (column) ": the number of rows by value"
                @if scale.is_logarithmic() { ", on a logarithmic axis" } "."
            }
            @if view.missing > 0 {
                p class="none" { (counted(view.missing, "row")) " without a finite number: null, NaN or infinite." }
            }
        }
    }
}

/// Returns the text of a bar.
fn label(view: &AnswerDistribution, bar: usize, count: u64) -> String {
    match view.scale.bounds(bar) {
        (from, to) if from == to => format!("{} of {}", number(count), decimal(from)),
        (from, to) => format!("{} of {} to {}", number(count), decimal(from), decimal(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_percentiles_are_shown() {
        let view = AnswerDistribution {
            column: "<b>\0".to_owned(),
            counts: vec![4, 0, 1],
            count: 5,
            percentiles: [1.5, 2.0, 3.0, f64::MAX],
            missing: 1,
            ..AnswerDistribution::default()
        };
        let page = chart(&view).into_string();
        assert_eq!(page.matches("<title>").count(), 2);
        for text in [
            "<dt>Median</dt><dd>1.5</dd>",
            "<dt>99.9 %</dt><dd>1.798e308</dd>",
            "<dt>Values</dt><dd>5</dd>",
            "1 row without a finite number",
            "&lt;b&gt;␀",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        let empty = chart(&AnswerDistribution::default()).into_string();
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
