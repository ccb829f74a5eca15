//! Views of an answer to SQL: a flame graph, series over time, a heat map, a distribution.
//!
//! A view chooses columns by their types. An answer that does not fit is an error that names the
//! columns that the view needs.

mod call_tree;
mod columns;
pub mod distribution;
mod graph;
pub mod grid;
pub mod heat;
pub mod scale;
pub mod series;
mod times;

use super::sites::answer::SiteAnswer;
use super::sql::SqlAnswer;
use super::view::{CRASHES, EXACT_CALLS};
use crate::error::{Error, Result};
use backtrail_profile::FunctionProfile;
use backtrail_profile::format::html::{self, ViewData};
use distribution::AnswerDistribution;
use heat::AnswerHeatMap;
use series::TimeSeries;
use std::ops::Range;

/// The name of a flame graph.
const GRAPH_NAME: &str = "SQL";

/// A view of an answer, beside the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerView {
    /// A flame graph, with all views of a profile.
    Graph,
    /// A chart.
    Chart(ChartKind),
}

/// A chart of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartKind {
    /// Series over time.
    Series,
    /// A heat map.
    Heat,
    /// A distribution.
    Distribution,
}

impl AnswerView {
    /// All of them, with their names in addresses and their labels.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Graph, "graph", "flame graph"),
        (Self::Chart(ChartKind::Series), "series", "time series"),
        (Self::Chart(ChartKind::Heat), "heat", "heat map"),
        (
            Self::Chart(ChartKind::Distribution),
            "distribution",
            "distribution",
        ),
    ];

    /// Returns the view of a name.
    ///
    /// # Errors
    /// Fails if there is no view of this name.
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|(_, one, _)| *one == name);
        found.map(|(view, ..)| view).ok_or_else(|| {
            let name: String = name.chars().take(64).collect();
            Error::Invalid(format!(
                "as is graph, series, heat or distribution, not \"{}\"",
                name.escape_debug()
            ))
        })
    }
}

/// The data of a chart.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerChart {
    /// Series over time.
    Series(TimeSeries),
    /// A heat map.
    Heat(AnswerHeatMap),
    /// A distribution.
    Distribution(AnswerDistribution),
}

/// Returns a chart of an answer. Times outside of a range, in microseconds since 1970, are left
/// out.
///
/// # Errors
/// Fails if the answer does not fit the chart.
pub fn chart(answer: &SqlAnswer, kind: ChartKind, range: &Range<i64>) -> Result<AnswerChart> {
    Ok(match kind {
        ChartKind::Series => AnswerChart::Series(series::series(answer, range)?),
        ChartKind::Heat => AnswerChart::Heat(heat::heat_map(answer, range)?),
        ChartKind::Distribution => AnswerChart::Distribution(distribution::distribution(answer)?),
    })
}

/// Returns the page of the flame graph of an answer.
///
/// # Errors
/// Fails if the answer has no stacks, or too many of them.
pub fn graph_page(answer: &SqlAnswer) -> Result<Vec<u8>> {
    let mut profile = graph::profile(answer)?;
    profile.notes.extend(missing_parts(answer));
    let functions = FunctionProfile::new(&profile)?;
    let event = profile.events.iter().next().map(|(event, _)| event);
    let event = event.ok_or_else(|| Error::Invalid("this answer has no stacks".to_owned()))?;
    let data = ViewData::of_profile(GRAPH_NAME, &profile, &functions, event);
    let data = data.with_crashes(CRASHES).with_exact_calls(EXACT_CALLS);
    let mut page = Vec::new();
    html::write(&data, &mut page)?;
    Ok(page)
}

/// Returns sentences about rows and sites that an answer lacks.
#[must_use]
pub fn missing_parts(answer: &SqlAnswer) -> Vec<String> {
    let is_truncated = answer.coverage["truncated"] == true;
    let rows = is_truncated.then(|| {
        format!(
            "The query has more rows than the first {} that are shown.",
            answer.rows.len()
        )
    });
    let sites = answer.sites.iter().filter_map(SiteAnswer::note);
    let notes = answer.notes.iter().cloned();
    rows.into_iter().chain(sites).chain(notes).collect()
}

/// Returns the error of an answer without a time that is shown.
fn no_time_in_range() -> Error {
    Error::Invalid("no row of this answer has a time that is in the chosen time".to_owned())
}

/// Returns the error of an answer without a number at a time that is shown.
fn no_number_in_range() -> Error {
    Error::Invalid("no row of this answer has a number and a time that is chosen".to_owned())
}

/// Returns a sum as a finite number. Sums that are too large become the largest number.
fn finite(sum: f64) -> f64 {
    sum.clamp(f64::MIN, f64::MAX)
}

/// Returns an answer with columns and rows.
#[cfg(test)]
fn sample(columns: &[(&str, &str)], rows: Vec<serde_json::Value>) -> SqlAnswer {
    let columns = columns
        .iter()
        .map(|(name, kind)| serde_json::json!({ "name": name, "type": kind }));
    let columns: Vec<serde_json::Value> = columns.collect();
    SqlAnswer {
        rows,
        coverage: serde_json::json!({ "columns": columns }),
        ..SqlAnswer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn views_have_names() {
        for (view, name, _) in AnswerView::ALL {
            assert_eq!(AnswerView::named(name).unwrap(), view);
        }
        let error = AnswerView::named("<b>\0").unwrap_err().to_string();
        assert_eq!(error, "as is graph, series, heat or distribution, not \"<b>\\0\"");
    }

    #[test]
    fn page_of_a_graph_has_its_functions_and_notes() {
        let rows = vec![json!({ "stacks": "main;</script><b> 3\n", "service": "shop" })];
        let mut answer = sample(&[("service", "Utf8"), ("stacks", "Utf8")], rows);
        answer.coverage["truncated"] = json!(true);
        let page = String::from_utf8(graph_page(&answer).unwrap()).unwrap();
        for text in [
            "\"shop\"",
            "\"main\"",
            "\\u003c/script>\\u003cb>",
            "the first 1 that",
            "/?function=",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn sums_are_finite() {
        assert_eq!(finite(f64::MAX + f64::MAX), f64::MAX);
        assert_eq!(finite(f64::MIN + f64::MIN), f64::MIN);
        assert_eq!(finite(1.5), 1.5);
    }
}
