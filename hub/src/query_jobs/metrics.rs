//! Results of jobs as metrics of Prometheus.

use super::execute::JobResult;
use super::manage::Job;
use super::threshold::number_in;
use crate::clock;
use crate::error::Result;
use crate::hub::Hub;
use std::fmt::Write as _;

/// The most columns of a job that are metrics.
const MAX_COLUMNS: usize = 20;
/// The longest label in characters.
const MAX_LABEL: usize = 100;

/// The metrics of jobs: the name, and the help text.
const FAMILIES: [(&str, &str); 4] = [
    ("value", "Numbers of the first row of the last result."),
    ("result_timestamp_seconds", "The time of the last result."),
    ("alerting", "1 if the threshold is crossed."),
    ("failing", "1 if the last run failed."),
];

/// Adds the metrics of the jobs that are to be metrics.
///
/// # Errors
/// Fails if the database fails.
pub async fn write(hub: &Hub, text: &mut String) -> Result<()> {
    let mut lines: [String; 4] = Default::default();
    for job in hub.database.query_jobs().await?.into_iter().map(Job::from) {
        if !job.definition.as_ref().is_ok_and(|definition| definition.metrics) {
            continue;
        }
        let last = hub.database.last_query_job_result(&job.row.id).await?;
        add(
            &mut lines,
            &job,
            last.as_ref().map(|(run, text)| (run.started, text.as_str())),
        );
    }
    for ((name, help), lines) in FAMILIES.iter().zip(&lines) {
        if !lines.is_empty() {
            let name = format!("backtrail_hub_query_job_{name}");
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{lines}");
        }
    }
    Ok(())
}

fn add(lines: &mut [String; 4], job: &Job, last: Option<(i64, &str)>) {
    let name = label(&job.row.name);
    let [values, times, alerting, failing] = lines;
    if let Some((started, text)) = last {
        let result: JobResult = serde_json::from_str(text).unwrap_or_default();
        for (column, number) in numbers(&result) {
            let column = label(column);
            let _ = writeln!(
                values,
                "backtrail_hub_query_job_value{{job=\"{name}\",column=\"{column}\"}} {number}"
            );
        }
        let seconds = started / clock::SECOND;
        let _ = writeln!(
            times,
            "backtrail_hub_query_job_result_timestamp_seconds{{job=\"{name}\"}} {seconds}"
        );
    }
    let flag = |since: Option<i64>| u8::from(since.is_some());
    let _ = writeln!(
        alerting,
        "backtrail_hub_query_job_alerting{{job=\"{name}\"}} {}",
        flag(job.row.alerting)
    );
    let _ = writeln!(
        failing,
        "backtrail_hub_query_job_failing{{job=\"{name}\"}} {}",
        flag(job.row.failing)
    );
}

fn numbers(result: &JobResult) -> impl Iterator<Item = (&String, f64)> {
    let row = result.rows.first();
    let columns = result.columns.iter();
    columns
        .filter_map(move |column| Some((column, number_in(row?, column)?)))
        .take(MAX_COLUMNS)
}

/// Returns the value of a label, escaped as the text format demands.
fn label(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars().take(MAX_LABEL) {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            letter if letter.is_control() => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::query_jobs::JobRow;
    use serde_json::json;

    #[test]
    fn labels_are_escaped_and_columns_bounded() {
        let row = JobRow {
            id: "1".to_owned(),
            name: "a\"b\\c\nd".to_owned(),
            definition: "{}".to_owned(),
            is_enabled: true,
            author: String::new(),
            created: 0,
            revision: 0,
            next_run: 0,
            is_wanted: false,
            run: None,
            alerting: Some(5),
            failing: None,
        };
        let columns: Vec<String> = (0..30).map(|at| format!("c{at}")).collect();
        let row_of = columns
            .iter()
            .map(|column| (column.clone(), json!(1.5)))
            .collect();
        let result = JobResult {
            rows: vec![row_of],
            columns,
            notes: Vec::new(),
        };
        let text = serde_json::to_string(&result).unwrap();
        let mut lines = Default::default();
        add(&mut lines, &Job::from(row), Some((7_000_000, &text)));
        let [values, times, alerting, failing] = lines;
        assert_eq!(values.lines().count(), MAX_COLUMNS);
        let first = r#"backtrail_hub_query_job_value{job="a\"b\\c\nd",column="c0"} 1.5"#;
        assert_eq!(values.lines().next(), Some(first));
        assert!(times.ends_with(" 7\n") && alerting.ends_with(" 1\n") && failing.ends_with(" 0\n"));
    }
}
