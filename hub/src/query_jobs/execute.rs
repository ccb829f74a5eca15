//! The answer to a job's query, in rows and bounded.

use super::definition::{JobDefinition, JobQuery, MAX_ROWS};
use super::threshold::{Threshold, number_in};
use crate::clock;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::builds;
use crate::profiles::changed_branches::ChangedBranch;
use crate::profiles::query::EventSeries;
use crate::profiles::regressions::{self, RegressionParameters, RegressionReport, ReportedChange};
use crate::profiles::selection::{SelectionParameters, time_text};
use crate::profiles::sites::answer::SiteAnswer;
use crate::profiles::sites::queries;
use crate::profiles::sites::sql;
use crate::profiles::sql::SqlRequest;
use crate::profiles::top;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The most bytes of the rows that are kept.
const MAX_BYTES: usize = 256 << 10;
/// The most columns that are kept.
const MAX_COLUMNS: usize = 100;
/// The longest time of SQL in seconds.
const SQL_SECONDS: u64 = 300;
/// The most notes that are kept.
const MAX_NOTES: usize = 20;

/// A row: values by column.
pub type ResultRow = Map<String, Value>;

/// The result of a run that is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// The columns in their order.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<ResultRow>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
}

/// A slower function of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The function.
    pub function: String,
    /// Its source file. Empty: unknown.
    pub file: String,
    /// Its module. Empty: unknown.
    pub module: String,
    /// The change in words.
    pub change: String,
}

/// The findings of a comparison of two builds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The earlier build.
    pub before: String,
    /// The later build.
    pub after: String,
    /// The slower functions, the largest change first.
    pub slower: Vec<Finding>,
}

/// All that a query found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOutput {
    /// The rows that are kept.
    pub result: JobResult,
    /// The number of rows before the limit.
    pub row_count: usize,
    /// The slower functions of a comparison of builds.
    pub findings: Option<Findings>,
}

impl JobOutput {
    fn new(columns: Vec<String>, rows: Vec<ResultRow>, mut notes: Vec<String>) -> Self {
        let row_count = rows.len();
        let mut columns = columns;
        columns.truncate(MAX_COLUMNS);
        let mut bytes = 0;
        let mut kept = Vec::new();
        for mut row in rows.into_iter().take(MAX_ROWS as usize) {
            row.retain(|column, _| columns.contains(column));
            bytes += serde_json::to_string(&row).map_or(MAX_BYTES, |text| text.len());
            if bytes > MAX_BYTES {
                break;
            }
            kept.push(row);
        }
        notes.truncate(MAX_NOTES);
        if kept.len() < row_count {
            notes.push(format!(
                "{} of {}{row_count} rows are kept; select fewer rows or columns",
                kept.len(),
                // One more than the limit was asked for.
                if row_count == MAX_ROWS as usize + 1 {
                    "at least "
                } else {
                    ""
                }
            ));
        }
        Self {
            result: JobResult {
                columns,
                rows: kept,
                notes,
            },
            row_count,
            findings: None,
        }
    }

    /// Checks that the result has the column of the job's threshold, if its columns are known.
    ///
    /// # Errors
    /// Fails if the column is missing, because the threshold would never be crossed.
    pub fn check_threshold(&self, job: &JobDefinition) -> Result<()> {
        let columns = &self.result.columns;
        match &job.threshold {
            Some(Threshold { column, .. }) if !columns.is_empty() && !columns.contains(column) => {
                let shown: Vec<&str> = columns.iter().take(20).map(String::as_str).collect();
                Err(Error::Invalid(format!(
                    "column missing: the result has no column {column} for the threshold; its columns are {}",
                    shown.join(", ")
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number that the job watches: that of the threshold, the number of slower
    /// functions, or the first number of the first row.
    #[must_use]
    pub fn watched(&self, job: &JobDefinition) -> Option<f64> {
        if let (None, Some(findings)) = (&job.threshold, &self.findings) {
            return Some(findings.slower.len() as f64);
        }
        let row = self.result.rows.first()?;
        match &job.threshold {
            Some(threshold) => number_in(row, &threshold.column),
            None => first_number(&self.result.columns, row),
        }
    }
}

fn first_number(columns: &[String], row: &ResultRow) -> Option<f64> {
    let mut numbers = columns
        .iter()
        .filter(|column| matches!(row.get(*column), Some(Value::Number(_))))
        .filter_map(|column| number_in(row, column));
    numbers.next()
}

/// The time after which the samples of a moment have arrived. Agents send each ten seconds.
const ARRIVAL: i64 = 60 * clock::SECOND;

/// The times of a run in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimes {
    /// The start of the run.
    pub now: i64,
    /// The time that the run is for.
    pub due: i64,
}

impl RunTimes {
    /// Returns the end of a series. Its last interval is complete: the samples have arrived.
    const fn end_of_series(self) -> i64 {
        self.due.saturating_sub(ARRIVAL)
    }
}

/// Answers the query of a job.
///
/// # Errors
/// Fails if the query is refused or reaches a limit, or the store fails.
pub async fn execute(hub: &Arc<Hub>, query: &JobQuery, times: RunTimes) -> Result<JobOutput> {
    let now = times.now;
    match query {
        JobQuery::Sql {
            sql,
            from,
            sites,
            combine,
        } => {
            let request = SqlRequest {
                sql: sql.clone(),
                from: from.clone(),
                sites: sites.clone(),
                combine: combine.clone(),
                // One more shows that there are more.
                rows: u64::from(MAX_ROWS) + 1,
                seconds: SQL_SECONDS,
                ..SqlRequest::default()
            };
            sql_rows(hub, &request, now).await
        }
        JobQuery::Top { selection, rows } => top_rows(hub, selection, *rows, now).await,
        JobQuery::Series { selection, intervals } => {
            series_rows(hub, selection, *intervals, times.end_of_series()).await
        }
        JobQuery::Regression { compare } => compared(hub, compare, now).await,
    }
}

async fn sql_rows(hub: &Arc<Hub>, request: &SqlRequest, now: i64) -> Result<JobOutput> {
    let answer = sql::answer_at(hub, request, now).await?;
    let sites = answer.sites.iter().filter_map(SiteAnswer::note);
    let notes = sites.chain(answer.notes).collect();
    let mut columns = named_columns(&answer.coverage);
    let rows: Vec<ResultRow> = answer
        .rows
        .into_iter()
        .filter_map(|row| match row {
            Value::Object(row) => Some(row),
            _ => None,
        })
        .collect();
    for row in &rows {
        for column in row.keys() {
            if columns.len() < MAX_COLUMNS && !columns.contains(column) {
                columns.push(column.clone());
            }
        }
    }
    Ok(JobOutput::new(columns, rows, notes))
}

/// Returns the columns that the account of a query names, in their order.
fn named_columns(coverage: &Value) -> Vec<String> {
    let columns = coverage["columns"].as_array();
    let names = columns.into_iter().flatten().filter_map(|column| {
        let name = column.as_str().or_else(|| column["name"].as_str());
        name.map(str::to_owned)
    });
    names.collect()
}

async fn top_rows(hub: &Arc<Hub>, selection: &SelectionParameters, rows: u32, now: i64) -> Result<JobOutput> {
    let found = top::top(hub, &selection.selection_at(now)?, rows as usize).await?;
    let row = |one: top::TopFunction| {
        row_of([
            ("function", json!(one.function)),
            ("share", json!(one.share)),
            ("weight", json!(one.weight)),
            ("unit", json!(found.unit)),
            ("module", json!(one.module)),
            ("file", json!(one.file)),
        ])
    };
    let columns = ["function", "share", "weight", "unit", "module", "file"];
    let rows = found.rows.into_iter().map(row).collect();
    Ok(JobOutput::new(texts(&columns), rows, found.notes))
}

/// Returns the weights of equal parts of a time. `end` is its end unless the selection has one.
async fn series_rows(
    hub: &Arc<Hub>,
    selection: &SelectionParameters,
    intervals: u32,
    end: i64,
) -> Result<JobOutput> {
    let selection = selection.selection_at(end)?;
    let answer = queries::series(hub, &selection, u64::from(intervals)).await?;
    let sites = answer.sites.iter().filter_map(SiteAnswer::note);
    let notes = sites.chain(answer.notes).collect();
    let columns = ["event", "time", "weight", "unit"];
    let rows = answer.series.iter().flat_map(latest_first).collect();
    Ok(JobOutput::new(texts(&columns), rows, notes))
}

fn latest_first(series: &EventSeries) -> impl Iterator<Item = ResultRow> {
    let intervals = series.weights.iter().enumerate().rev();
    intervals.map(|(at, weight)| {
        let start = series.step.saturating_mul(at as u64).saturating_add(series.start);
        row_of([
            ("event", json!(series.event)),
            ("time", json!(time_text(start))),
            ("weight", json!(weight)),
            ("unit", json!(series.unit)),
        ])
    })
}

/// The columns of a comparison of builds.
const COMPARED: [&str; 10] = [
    "function",
    "direction",
    "before",
    "after",
    "difference",
    "low",
    "high",
    "module",
    "file",
    "branch",
];

/// Compares two builds. Builds that cannot be compared yet are no failure.
async fn compared(hub: &Arc<Hub>, parameters: &RegressionParameters, now: i64) -> Result<JobOutput> {
    let mut parameters = parameters.clone();
    let nothing = |note: String| {
        let mut output = JobOutput::new(texts(&COMPARED), Vec::new(), vec![note]);
        output.findings = Some(Findings::default());
        Ok(output)
    };
    if parameters.before.is_empty() {
        let Some([before, after]) = builds::newest_two(hub, &parameters, now).await? else {
            return nothing("fewer than two builds of the service have samples in this time".to_owned());
        };
        // Each build has as many observations as the other, though one runs for a short time.
        if parameters.before_from.is_empty() {
            parameters.before_from = time_text(before.first_sample);
        }
        parameters.from = time_text(after.first_sample);
        parameters.before = before.build;
        parameters.after = after.build;
    }
    let report = match regressions::compare_at(hub, &parameters, now).await {
        Ok(report) => report,
        Err(Error::Comparison(error)) => return nothing(error.to_string()),
        Err(error) => return Err(error),
    };
    Ok(of_report(parameters.before, parameters.after, report))
}

fn of_report(before: String, after: String, report: RegressionReport) -> JobOutput {
    let slower = report
        .changes
        .iter()
        .filter(|change| change.direction == "slower");
    let slower = slower
        .map(|change| Finding {
            function: change.function.clone(),
            file: change.file.clone(),
            module: change.module.clone(),
            change: in_words(change),
        })
        .collect();
    let row = |change: &ReportedChange| {
        row_of([
            ("function", json!(change.function)),
            ("direction", json!(change.direction)),
            ("before", json!(change.before)),
            ("after", json!(change.after)),
            ("difference", json!(change.after - change.before)),
            ("low", json!(change.low)),
            ("high", json!(change.high)),
            ("module", json!(change.module)),
            ("file", json!(change.file)),
            (
                "branch",
                json!(change.branch.as_ref().map(ChangedBranch::in_words)),
            ),
        ])
    };
    let rows = report.changes.iter().map(row).collect();
    let mut notes = vec![format!(
        "build {before} in {} observations, build {after} in {}, {} functions",
        report.units[0], report.units[1], report.functions
    )];
    notes.extend(report.notes);
    let mut output = JobOutput::new(texts(&COMPARED), rows, notes);
    output.findings = Some(Findings {
        before,
        after,
        slower,
    });
    output
}

/// Returns a change as `3.10 % to 6.05 % of the time (+2.51 to +3.29 points)`.
fn in_words(change: &ReportedChange) -> String {
    let branch = change
        .branch
        .as_ref()
        .map(|branch| format!("; {}", branch.in_words()));
    format!(
        "{:.2} % to {:.2} % of the earlier weight ({:+.2} to {:+.2} points){}",
        change.before * 100.0,
        change.after * 100.0,
        change.low * 100.0,
        change.high * 100.0,
        branch.unwrap_or_default()
    )
}

fn row_of<const COUNT: usize>(values: [(&str, Value); COUNT]) -> ResultRow {
    let values = values.into_iter();
    values.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the time in microseconds that a run began at, plus the time that it took.
#[must_use]
pub fn later(now: i64, length: std::time::Duration) -> i64 {
    now.saturating_add(i64::try_from(length.as_micros()).unwrap_or(clock::HOUR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, text: &str) -> JobOutput {
        let rows = (0..count).map(|at| row_of([("text", json!(text)), ("n", json!(at)), ("x", json!(0))]));
        JobOutput::new(texts(&["text", "n"]), rows.collect(), Vec::new())
    }

    #[test]
    fn results_are_bounded_in_rows_and_bytes() {
        let few = rows(3, "a");
        assert_eq!((few.result.rows.len(), few.row_count), (3, 3));
        assert!(few.result.notes.is_empty() && !few.result.rows[0].contains_key("x"));
        let many = rows(5000, "a");
        assert_eq!((many.result.rows.len(), many.row_count), (1000, 5000));
        assert!(
            many.result.notes[0].starts_with("1000 of 5000 rows"),
            "{:?}",
            many.result.notes
        );
        let large = rows(100, &"x".repeat(10_000));
        assert_eq!(large.result.rows.len(), 26);
        assert!(serde_json::to_string(&large.result).unwrap().len() < MAX_BYTES + 1000);
        assert_eq!(rows(1, &"x".repeat(MAX_BYTES)).result.rows.len(), 0);
    }

    #[test]
    fn watched_number_is_the_thresholds_or_the_first() {
        let text = json!({ "name": "j", "schedule": "hourly", "query": { "kind": "sql", "sql": "x" } });
        let mut job: JobDefinition = serde_json::from_value(text.clone()).unwrap();
        let output = rows(2, "7");
        assert_eq!(output.watched(&job), Some(0.0));
        let mut with = text;
        with["threshold"] = json!({ "column": "text", "comparison": ">", "value": 1 });
        let with: JobDefinition = serde_json::from_value(with).unwrap();
        assert_eq!(output.watched(&with), Some(7.0));
        assert_eq!(JobOutput::default().watched(&with), None);
        output.check_threshold(&with).unwrap();
        JobOutput::default().check_threshold(&with).unwrap();
        let other = JobOutput::new(texts(&["n", "p99"]), Vec::new(), Vec::new());
        assert_eq!(
            other.check_threshold(&with).unwrap_err().to_string(),
            "column missing: the result has no column text for the threshold; its columns are n, p99"
        );
        job.query = JobQuery::Regression {
            compare: RegressionParameters::default(),
        };
        let compared = JobOutput {
            findings: Some(Findings::default()),
            ..JobOutput::default()
        };
        assert_eq!(compared.watched(&job), Some(0.0));
    }

    #[test]
    fn columns_keep_the_order_of_the_query() {
        let coverage = json!({ "columns": ["z", "a"] });
        assert_eq!(named_columns(&coverage), ["z", "a"]);
        let coverage = json!({ "columns": [{ "name": "z" }, { "name": "a" }, 3] });
        assert_eq!(named_columns(&coverage), ["z", "a"]);
        assert!(named_columns(&Value::Null).is_empty());
    }
}
