//! Views of an answer to SQL. A chart is a part of the page for SQL. The reason why there is no
//! flame graph is a page for its frame.

use super::profile_heat_map::notes;
use super::text::shown_to;
use super::{sql_distribution, sql_heat_map, sql_series};
use crate::profiles::sql_view::AnswerChart;
use maud::{DOCTYPE, Markup, html};

/// Returns a chart, and sentences about its answer.
#[must_use]
pub fn chart(chart: &AnswerChart, about: &[String]) -> Markup {
    html! {
        section class="panel chart" aria-label="Chart of the answer" {
            @match chart {
                AnswerChart::Series(series) => (sql_series::chart(series)),
                AnswerChart::Heat(map) => (sql_heat_map::chart(map)),
                AnswerChart::Distribution(view) => (sql_distribution::chart(view)),
            }
            (notes(about))
        }
    }
}

/// Returns a page with the reason why there is no flame graph. The page for SQL reads it out of its
/// frame.
#[must_use]
pub fn problem(message: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="color-scheme" content="light dark";
                title { "No flame graph" }
            }
            body { p id="sql-problem" { (shown_to(message, 500)) } }
        }
    }
}
