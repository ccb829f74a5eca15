//! The weights of a selection over time, as bars. A drag over them selects a shorter time.

use super::profile_heat_map::duration;
use super::text::{amount, shown_to, utc};
use super::time_axis::times;
use maud::{Markup, html};

/// The width of the chart in its own units.
const WIDTH: usize = 960;
/// The height of its bars.
const HEIGHT: usize = 64;

/// Weights in equal intervals of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesChart {
    /// The event.
    pub event: String,
    /// The unit of the weights.
    pub unit: String,
    /// The start in microseconds since 1970.
    pub start: i64,
    /// The length of an interval in microseconds.
    pub step: i64,
    /// The weights.
    pub weights: Vec<i64>,
}

/// Returns the chart.
#[must_use]
pub fn chart(series: &SeriesChart) -> Markup {
    let SeriesChart {
        event,
        unit,
        start,
        step,
        weights,
    } = series;
    let most = weights.iter().copied().max().unwrap_or(0);
    if most <= 0 {
        return html! {};
    }
    let each = WIDTH as f64 / weights.len() as f64;
    let at_time = |at: usize| start.saturating_add(step.saturating_mul(i64::try_from(at).unwrap_or(0)));
    let value = |weight: i64| amount(weight, unit);
    html! {
        figure class="trend series" id="series" data-brush data-start=(start) data-step=(step) data-count=(weights.len()) {
            div class="plot" {
                div class="scale" aria-hidden="true" { span { (value(most)) } span { "0" } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label={ (shown_to(event, 60)) " over time, at most " (value(most)) " in one interval" } {
                    path class="grid" d={ "M0 " (HEIGHT) "H" (WIDTH) } {}
                    @for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
                        @let height = (weight as f64 / most as f64 * HEIGHT as f64).max(1.0);
                        rect x=(format!("{:.2}", at as f64 * each)) y=(format!("{:.2}", HEIGHT as f64 - height))
                            width=(format!("{:.2}", (each - 1.0).max(0.5))) height=(format!("{height:.2}")) {
                            title { (value(weight)) ", " (utc(at_time(at))) }
                        }
                    }
                    rect class="brush" x="0" y="0" width="0" height=(HEIGHT) {}
                }
                (times(*start, at_time(weights.len()).saturating_sub(*start)))
            }
            figcaption {
                (shown_to(event, 60)) " in each " (duration(*step)) "; drag to select a shorter time"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_with_weight_is_a_bar() {
        let series = SeriesChart {
            event: "cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
            start: 0,
            step: 1_000_000,
            weights: vec![0, 1_500_000_000, 0, 500_000_000],
        };
        let page = chart(&series).into_string();
        assert_eq!(page.matches("<title>").count(), 2);
        assert!(page.contains("<span>1.50 s</span><span>0</span>"), "{page}");
        assert!(page.contains("in each 1 s;"), "{page}");
        assert_eq!(chart(&SeriesChart::default()).into_string(), "");
    }
}
