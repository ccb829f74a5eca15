//! A distribution of weights: bars whose widths grow with their values, and percentiles.

use super::profile_heat_map::{duration, notes};
use super::text::{amount, number, shown_to};
use backtrail_store::Distribution;
use maud::{Markup, html};

/// The width of the chart in its own units.
const WIDTH: f64 = 960.0;
/// The height of its bars.
const HEIGHT: f64 = 150.0;
/// The most bars.
const MOST: usize = 1024;
/// The shares of the percentiles.
const SHARES: [(&str, f64); 4] = [("Median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999)];

/// A distribution of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistributionChart {
    /// The event.
    pub event: String,
    /// The unit of the weights.
    pub unit: String,
    /// The values: label, address, and whether they are shown.
    pub choices: Vec<(&'static str, String, bool)>,
    /// The length of an interval in microseconds. 0: the values are those of samples.
    pub step: i64,
    /// The buckets.
    pub distribution: Distribution,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
}

/// Returns the chart.
#[must_use]
pub fn chart(view: &DistributionChart) -> Markup {
    let DistributionChart {
        distribution, unit, ..
    } = view;
    let event = shown_to(&view.event, 60);
    let buckets = distribution.buckets.get(..distribution.buckets.len().min(MOST));
    let buckets = buckets.unwrap_or_default();
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else {
        return html! { p class="none" { "No samples in this time." } };
    };
    let most = buckets
        .iter()
        .map(|bucket| bucket.count)
        .max()
        .unwrap_or(1)
        .max(1);
    let (low, high) = (place(first.from), place(last.to.saturating_add(1)));
    let scale = WIDTH / (high - low).max(f64::MIN_POSITIVE);
    let of = match view.step {
        0 => "the weight of each sample".to_owned(),
        step => format!("the sum in each {}", duration(step)),
    };
    html! {
        figure class="trend distribution" {
            nav class="kinds" aria-label="Values of the distribution" {
                @for (label, address, is_shown) in &view.choices {
                    @if *is_shown { a href=(address) aria-current="true" { (label) } } @else { a href=(address) { (label) } }
                }
            }
            div class="plot" {
                div class="scale" aria-hidden="true" { span { (number(most)) } span { "0" } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label={ "Distribution of " (event) ": " (of) ", from " (amount(distribution.min, unit))
                        " to " (amount(distribution.max, unit)) } {
                    path class="grid" d={ "M0 " (HEIGHT) "H" (WIDTH) } {}
                    @for bucket in buckets {
                        @let height = (bucket.count as f64 / most as f64 * HEIGHT).max(1.0);
                        @let left = (place(bucket.from) - low) * scale;
                        @let right = (place(bucket.to.saturating_add(1)) - low) * scale;
                        rect x=(format!("{left:.2}")) y=(format!("{:.2}", HEIGHT - height))
                            width=(format!("{:.2}", (right - left - 0.6).max(0.6))) height=(format!("{height:.2}")) {
                            title { (number(bucket.count)) " of " (amount(bucket.from, unit)) " to " (amount(bucket.to, unit)) }
                        }
                    }
                }
                div class="times" aria-hidden="true" {
                    span { (amount(distribution.min, unit)) } span { (amount(distribution.max, unit)) }
                }
            }
            dl class="facts" {
                @for (label, share) in SHARES { div { dt { (label) } dd { (amount(distribution.quantile(share), unit)) } } }
                div { dt { "Largest" } dd { (amount(distribution.max, unit)) } }
                div { dt { "Values" } dd { (number(distribution.count)) } }
                div { dt { "Sum" } dd { (amount(distribution.sum, unit)) } }
            }
            figcaption { (event) ": " (of) ". Widths are logarithmic. A percentile is at most 1/8 too large." }
            (notes(&view.notes))
        }
    }
}

/// Returns the place of a value on a logarithmic axis with both signs.
fn place(value: i64) -> f64 {
    let size = (value.unsigned_abs() as f64 + 1.0).log2();
    if value < 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_store::Bucket;

    fn bucket(from: i64, to: i64, count: u64) -> Bucket {
        Bucket { from, to, count }
    }

    #[test]
    fn bars_are_in_the_order_of_their_values() {
        let view = DistributionChart {
            event: "off-cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
            distribution: Distribution {
                count: 9,
                sum: 1_000_000,
                min: -2,
                max: 1020,
                buckets: vec![bucket(-2, -2, 1), bucket(0, 0, 3), bucket(960, 1023, 5)],
            },
            ..DistributionChart::default()
        };
        let page = chart(&view).into_string();
        let lefts: Vec<f64> = page
            .split("<rect x=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(lefts.len(), 3);
        assert!(
            lefts[0] == 0.0 && lefts[0] < lefts[1] && lefts[1] < lefts[2],
            "{lefts:?}"
        );
        assert!(page.contains("<dt>Median</dt><dd>1.0 µs</dd>"), "{page}");
        assert!(page.contains("3 of 0 ns to 0 ns"), "{page}");
    }

    #[test]
    fn empty_and_extreme_distributions_are_shown() {
        assert!(
            chart(&DistributionChart::default())
                .into_string()
                .contains("No samples")
        );
        let view = DistributionChart {
            distribution: Distribution {
                count: u64::MAX,
                sum: i64::MIN,
                min: i64::MIN,
                max: i64::MAX,
                buckets: vec![
                    bucket(i64::MIN, i64::MIN, u64::MAX),
                    bucket(i64::MAX, i64::MAX, 1),
                ],
            },
            ..DistributionChart::default()
        };
        let page = chart(&view).into_string();
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
