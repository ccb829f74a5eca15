//! SQL over the profile store: the child process `backtrail-query` answers.
//!
//! The engine is large and takes texts of people, so that it is a program of its own. It gets the
//! live segments of the catalog, and the limits. Its end is the end of the query, and the other way
//! round.

use super::query_program;
use super::sql_input::{NamedPlace, SqlInput};
use crate::clock;
use crate::config::Config;
use crate::database::sql_crashes::SqlCrash;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::selection::{SelectionParameters, time_text};
use crate::profiles::sites::answer::SiteAnswer;
use backtrail_profile::UnixNanos;
use backtrail_store::{Hour, SegmentEntry};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::Range;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// The largest answer in bytes.
const MAX_ANSWER: u64 = 32 << 20;
/// The most rows of an answer. In memory, a short row has a hundred times its bytes.
const MAX_ROWS: u64 = 200_000;
/// The largest output of errors in bytes.
const MAX_ERRORS: u64 = 1 << 20;
/// The time that the program has beyond that of the query.
const GRACE: Duration = Duration::from_secs(10);
/// The longest time of a query in seconds.
const MAX_SECONDS: u64 = 600;

/// A query.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlRequest {
    /// The SQL text.
    pub sql: String,
    /// The start of the time that tables have, as in a selection. Empty: a day.
    #[serde(default)]
    pub from: String,
    /// The end.
    #[serde(default)]
    pub until: String,
    /// The most rows of the answer.
    #[serde(default = "rows")]
    pub rows: u64,
    /// The longest time in seconds.
    #[serde(default = "seconds")]
    pub seconds: u64,
    /// Other sites that are asked too: `all`, or names separated by commas.
    #[serde(default)]
    pub sites: String,
    /// A query over the rows of all sites, in the table `answers`. Empty: the rows themselves.
    #[serde(default)]
    pub combine: String,
}

impl Default for SqlRequest {
    fn default() -> Self {
        Self {
            sql: String::new(),
            from: String::new(),
            until: String::new(),
            rows: rows(),
            seconds: seconds(),
            sites: String::new(),
            combine: String::new(),
        }
    }
}

impl SqlRequest {
    /// Returns the longest time of the query.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_secs(self.seconds.clamp(1, MAX_SECONDS))
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// Fails if one is out of range.
    fn check(&self) -> Result<()> {
        let is_between = |number: u64, most: u64| (1..=most).contains(&number);
        if !is_between(self.rows, MAX_ROWS) {
            return Err(Error::Invalid(format!(
                "rows is a number from 1 to {MAX_ROWS}; `backtrail-query` returns more"
            )));
        }
        match is_between(self.seconds, MAX_SECONDS) {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "seconds is a number from 1 to {MAX_SECONDS}"
            ))),
        }
    }

    /// Returns the times of the tables in nanoseconds since 1970, at a time in microseconds.
    ///
    /// # Errors
    /// Fails if a time is malformed.
    pub fn times_at(&self, now: i64) -> Result<Range<u64>> {
        let times = SelectionParameters {
            from: match self.from.as_str() {
                "" => "1d".to_owned(),
                from => from.to_owned(),
            },
            until: self.until.clone(),
            ..SelectionParameters::default()
        };
        Ok(times.selection_at(now)?.times)
    }
}

const fn rows() -> u64 {
    10_000
}

const fn seconds() -> u64 {
    60
}

/// An answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SqlAnswer {
    /// A JSON object for each row.
    pub rows: Vec<Value>,
    /// The columns, and the account of what was read.
    pub coverage: Value,
    /// Whether a site is missing.
    #[serde(default)]
    pub partial: bool,
    /// The sites that were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteAnswer>,
    /// Sentences about what is missing, as names of code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The table `answers` of a query.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GivenRows {
    /// The columns: objects with `name` and `type`.
    pub columns: Vec<Value>,
    /// The rows.
    pub rows: Vec<Value>,
}

/// The input of the program.
#[derive(Serialize)]
struct Input<'a> {
    sql: &'a str,
    segments: Vec<SegmentEntry>,
    limits: Limits,
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<&'a GivenRows>,
    symbols: Vec<NamedPlace>,
    crashes: Vec<SqlCrash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<InputTimes>,
}

/// The time of the samples in nanoseconds since 1970.
#[derive(Serialize)]
struct InputTimes {
    start: u64,
    end: u64,
}

#[derive(Serialize)]
struct Limits {
    seconds: u64,
    rows: u64,
}

/// Answers a query.
///
/// # Errors
/// Fails if the program is not installed, the query is refused, or it reaches a limit.
pub async fn answer(hub: &Arc<Hub>, request: &SqlRequest) -> Result<SqlAnswer> {
    answer_at(hub, request, clock::now()).await
}

/// Answers a query at a time in microseconds since 1970.
///
/// # Errors
/// As [`answer`].
pub async fn answer_at(hub: &Arc<Hub>, request: &SqlRequest, now: i64) -> Result<SqlAnswer> {
    answer_within(hub, request, now, GRACE).await
}

/// Answers a query over the table `answers` alone.
///
/// # Errors
/// As [`answer`].
pub async fn answer_over(hub: &Hub, request: &SqlRequest, given: &GivenRows) -> Result<SqlAnswer> {
    run_query(hub, request, Vec::new(), Some(given), SqlInput::default(), GRACE).await
}

/// Answers a query. The program has the time `grace` beyond that of the query.
async fn answer_within(hub: &Arc<Hub>, request: &SqlRequest, now: i64, grace: Duration) -> Result<SqlAnswer> {
    request.check()?;
    let times = request.times_at(now)?;
    let hours = Hour::range(&(UnixNanos(times.start)..UnixNanos(times.end)));
    let segments = hub.database.live_segments(&hours).await?;
    let input = SqlInput::of(hub, &request.sql, &segments, &times).await?;
    let mut answer = run_query(hub, request, segments, None, input, grace).await?;
    if let Some(coverage) = answer.coverage.as_object_mut() {
        coverage.insert("from".to_owned(), time_text(times.start).into());
        coverage.insert("until".to_owned(), time_text(times.end).into());
    }
    Ok(answer)
}

async fn run_query(
    hub: &Hub,
    request: &SqlRequest,
    segments: Vec<SegmentEntry>,
    answers: Option<&GivenRows>,
    given: SqlInput,
    grace: Duration,
) -> Result<SqlAnswer> {
    let notes = given.notes;
    let input = Input {
        sql: &request.sql,
        segments,
        limits: Limits {
            seconds: request.longest().as_secs(),
            rows: request.rows,
        },
        answers,
        symbols: given.symbols,
        crashes: given.crashes,
        times: given.times.map(|times| InputTimes {
            start: times.start,
            end: times.end,
        }),
    };
    let input = serde_json::to_vec(&input)
        .map_err(|error| Error::Invalid(format!("the query cannot be written: {error}")))?;
    let _place = hub.sql_queries.acquire().await.map_err(|_| Error::Ending)?;
    let output = tokio::time::timeout(request.longest() + grace, run(&hub.config, input)).await;
    let (is_successful, rows, errors) =
        output.map_err(|_| Error::TooLarge("the query took longer than its limit of time".to_owned()))??;
    let last = errors.trim_end().lines().last().unwrap_or_default();
    if !is_successful {
        let reason = last.strip_prefix("backtrail-query: ").unwrap_or(last);
        return Err(Error::Invalid(match reason {
            "" => "the query failed without a reason".to_owned(),
            reason => reason.to_owned(),
        }));
    }
    let rows = rows.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let rows: std::result::Result<Vec<Value>, _> = rows.map(serde_json::from_slice).collect();
    let coverage: Value = serde_json::from_str(last).unwrap_or_default();
    Ok(SqlAnswer {
        rows: rows.map_err(|error| Error::Invalid(format!("the answer is malformed: {error}")))?,
        coverage: coverage.get("coverage").cloned().unwrap_or_default(),
        partial: false,
        sites: Vec::new(),
        notes,
    })
}

/// Runs the program. The end of this future ends it.
async fn run(config: &Config, input: Vec<u8>) -> Result<(bool, Vec<u8>, String)> {
    let mut command = Command::from(query_program::command(config, "run")?);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if !config.query.workers.is_empty() {
        command.arg("--workers").arg(config.query.workers.join(","));
    }
    let failed = || Error::system("run backtrail-query");
    let mut child = command.spawn().map_err(failed())?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(failed()(std::io::Error::other("it has no pipes")));
    };
    let write = async move {
        // A program that refuses the query ends without reading all of it.
        let _ = stdin.write_all(&input).await;
        drop(stdin);
    };
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    let (mut stdout, mut stderr) = (stdout.take(MAX_ANSWER + 1), stderr.take(MAX_ERRORS));
    let read_rows = async {
        stdout.read_to_end(&mut rows).await.map_err(failed())?;
        match rows.len() as u64 > MAX_ANSWER {
            // The return ends the program, which would wait.
            true => Err(Error::TooLarge(format!(
                "the answer has more than {} MiB; select fewer rows or columns",
                MAX_ANSWER >> 20
            ))),
            false => Ok(()),
        }
    };
    let read_errors = async { stderr.read_to_end(&mut errors).await.map_err(failed()) };
    let write = async {
        write.await;
        Ok(())
    };
    tokio::try_join!(write, read_rows, read_errors)?;
    let status = child.wait().await.map_err(failed())?;
    Ok((
        status.success(),
        rows,
        String::from_utf8_lossy(&errors).into_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Query;

    fn config(script: &str, folder: &std::path::Path) -> Config {
        use std::os::unix::fs::PermissionsExt;
        let program = folder.join("engine");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Config {
            data: folder.join("data"),
            query: Query {
                program: Some(program),
                ..Query::default()
            },
            ..Config::default()
        }
    }

    fn request(sql: &str) -> SqlRequest {
        SqlRequest {
            sql: sql.to_owned(),
            rows: 10,
            seconds: 1,
            ..SqlRequest::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_and_coverage_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let script = "#!/bin/sh\ncat >/dev/null\necho '{\"a\":1}'\necho '{\"a\":2}'\n\
                      echo '{\"coverage\":{\"rows\":7}}' >&2\n";
        let hub = Hub::open(config(script, folder.path())).await.unwrap();
        let answer = answer(&hub, &request("SELECT 1")).await.unwrap();
        assert_eq!(answer.rows.len(), 2);
        assert_eq!(answer.coverage["rows"], 7);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn refusals_and_a_missing_program_are_sentences() {
        let folder = tempfile::tempdir().unwrap();
        let script = "#!/bin/sh\necho 'backtrail-query: column x is unknown' >&2\nexit 3\n";
        let hub = Hub::open(config(script, folder.path())).await.unwrap();
        let error = answer(&hub, &request("SELECT x")).await.unwrap_err();
        assert_eq!(error.to_string(), "column x is unknown");
        let other = tempfile::tempdir().unwrap();
        let missing = Config {
            data: other.path().to_owned(),
            ..Config::default()
        };
        let hub = Hub::open(missing).await.unwrap();
        let error = answer(&hub, &request("SELECT 1")).await.unwrap_err();
        assert!(error.to_string().contains("query.program"), "{error}");
    }

    /// Waits until the process that a script has named ends, and returns its number.
    async fn ended(file: &std::path::Path) -> u32 {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let pid = std::fs::read_to_string(file)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            let stat = pid.map(|pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")));
            // A process that was not waited for yet runs no more.
            let is_gone = |stat: std::io::Result<String>| stat.map_or(true, |stat| stat.contains(") Z "));
            if let (Some(pid), true) = (pid, stat.is_some_and(is_gone)) {
                return pid;
            }
            assert!(std::time::Instant::now() < end, "the program runs on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns a program that names its process, and never ends.
    fn endless(folder: &std::path::Path) -> String {
        let pid = folder.join("pid");
        let pid = pid.display();
        format!("#!/bin/sh\necho $$ >{pid}.new\nmv {pid}.new {pid}\nexec sleep 1000\n")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn endless_program_ends_at_the_limit_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::open(config(&endless(folder.path()), folder.path()))
            .await
            .unwrap();
        let request = request("SELECT 1");
        let error = answer_within(&hub, &request, clock::now(), Duration::from_millis(200))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("limit of time"), "{error}");
        ended(&folder.path().join("pid")).await;
        // Its place is free again.
        let all = hub.sql_queries.available_permits();
        answer_within(&hub, &request, clock::now(), Duration::ZERO)
            .await
            .unwrap_err();
        assert_eq!(hub.sql_queries.available_permits(), all);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn canceled_query_ends_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let hub = Hub::open(config(&endless(folder.path()), folder.path()))
            .await
            .unwrap();
        let pid = folder.path().join("pid");
        let request = SqlRequest {
            seconds: 600,
            ..request("SELECT 1")
        };
        let started = async {
            while !pid.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = answer(&hub, &request) => panic!("{answer:?}"),
            () = started => {}
        }
        ended(&pid).await;
    }
}
