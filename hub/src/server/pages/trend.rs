//! Trends as SVG: counts in equal parts of time, as bars.

use super::text::{number, shown_to, utc};
use super::time_axis::times;
use maud::{Markup, html};

/// The number of colors of builds. Further builds share the last one.
const COLORS: usize = 8;
/// The width of the chart of a group, in its own units.
const WIDTH: usize = 960;
/// The height of its bars.
const HEIGHT: usize = 150;
/// The most bars of a chart.
const MOST: usize = 1000;

/// Counts of reports in equal parts of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trend {
    /// The beginning, in microseconds since 1970.
    pub start: i64,
    /// The length of a part in microseconds.
    pub step: i64,
    /// The builds, each with a count for each part. The oldest build is first.
    pub builds: Vec<(String, Vec<u64>)>,
}

/// Returns a row of small bars, without axes.
pub(super) fn sparkline(counts: &[u64], label: &str) -> Markup {
    let counts = counts.get(..counts.len().min(MOST)).unwrap_or_default();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let total = counts
        .iter()
        .fold(0, |sum: u64, count| sum.saturating_add(*count));
    let width = counts.len() * 4;
    html! {
        svg class="spark" viewBox={ "0 0 " (width.max(1)) " 28" } preserveAspectRatio="none" role="img"
            aria-label={ (number(total)) " reports, " (label) } {
            path class="base" d={ "M0 27.500H" (width) } {}
            @for (at, &count) in counts.iter().enumerate() {
                @if count > 0 {
                    @let height = bar(count, most, 26).max(2);
                    rect x=(at * 4) y=(28 - height) width="3" height=(height) {}
                }
            }
        }
    }
}

/// Returns the height of a bar.
fn bar(count: u64, most: u64, height: usize) -> usize {
    (count as f64 / most.max(1) as f64 * height as f64).round() as usize
}

/// Returns a chart with an axis, a color for each build, and a legend.
pub(super) fn chart(trend: &Trend) -> Markup {
    let parts = trend
        .builds
        .iter()
        .map(|(_, counts)| counts.len())
        .max()
        .unwrap_or(0);
    let parts = parts.min(MOST);
    let total = |at: usize| {
        let counts = trend.builds.iter().filter_map(|(_, counts)| counts.get(at));
        counts.fold(0, |sum: u64, count| sum.saturating_add(*count))
    };
    let most = (0..parts).map(total).max().unwrap_or(0);
    if most == 0 {
        return html! { p class="none" { "No reports in this time." } };
    }
    let each = WIDTH as f64 / parts as f64;
    let top = round_up(most);
    let at_time = |at: usize| trend.start.saturating_add(trend.step.saturating_mul(at as i64));
    html! {
        figure class="trend" {
            div class="plot" {
                div class="scale" aria-hidden="true" { span { (number(top)) } span { (number(top / 2)) } span { "0" } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label={ "Reports over time, at most " (number(most)) " in one part" } {
                    @for line in [0, HEIGHT / 2, HEIGHT] {
                        path class="grid" d={ "M0 " (line) "H" (WIDTH) } {}
                    }
                    @for at in 0..parts {
                        @if total(at) > 0 {
                            g { title { (number(total(at))) " reports, " (utc(at_time(at))) } (stack(trend, at, each, top)) }
                        }
                    }
                }
                (times(trend.start, at_time(parts).saturating_sub(trend.start)))
            }
            figcaption class="legend" {
                @for (number, (build, _)) in trend.builds.iter().enumerate().take(COLORS) {
                    span {
                        svg class="swatch" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true" {
                            rect class=(color(number)) width="10" height="10" rx="2" {}
                        }
                        (shown_to(build, 40))
                    }
                }
                @if trend.builds.len() > COLORS {
                    span { "and " (trend.builds.len() - COLORS) " more builds in the last color" }
                }
            }
        }
    }
}

/// Returns the bars of one part of time, one above the other.
fn stack(trend: &Trend, at: usize, each: f64, top: u64) -> Markup {
    let mut below = 0.0;
    let bars = trend
        .builds
        .iter()
        .enumerate()
        .filter_map(|(number, (_, counts))| {
            let count = counts.get(at).copied().filter(|&count| count > 0)?;
            let height = count as f64 / top as f64 * HEIGHT as f64;
            below += height;
            Some((number, HEIGHT as f64 - below, height))
        });
    html! {
        @for (number, y, height) in bars {
            rect class=(color(number)) x=(format!("{:.2}", at as f64 * each)) y=(format!("{y:.2}"))
                width=(format!("{:.2}", (each - 0.6).max(0.6))) height=(format!("{:.2}", height.max(1.0))) {}
        }
    }
}

fn color(number: usize) -> String {
    format!("b{}", number.min(COLORS - 1))
}

/// Returns an even round number that is not smaller.
fn round_up(most: u64) -> u64 {
    let mut unit = 1_u64;
    loop {
        for factor in [2, 4, 6, 10] {
            let round = unit.saturating_mul(factor);
            if round >= most || round == u64::MAX {
                return round;
            }
        }
        unit = unit.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_of_the_scale_is_even_and_round() {
        let tops: Vec<_> = [1, 3, 5, 7, 11, 99, 401].map(round_up).to_vec();
        assert_eq!(tops, [2, 4, 6, 10, 20, 100, 600]);
        assert_eq!(round_up(u64::MAX), u64::MAX);
    }

    #[test]
    fn empty_and_long_trends_are_bounded() {
        assert!(chart(&Trend::default()).into_string().contains("No reports"));
        let trend = Trend {
            start: i64::MAX,
            step: i64::MAX,
            builds: vec![("<b>".to_owned(), vec![u64::MAX; 5000]); 20],
        };
        let html = chart(&trend).into_string();
        assert!(!html.contains("<b>") && html.matches("<rect").count() <= 20 * MOST + COLORS);
        assert!(sparkline(&[0; 5000], "24 h").into_string().len() < 1000);
    }
}
