//! Runs of jobs by one hub and by two hubs with one database. A script answers SQL.

use super::definition::JobDefinition;
use super::manage;
use super::run::{LEASE, run_due};
use crate::clock;
use crate::config::{Config, Query};
use crate::database::query_jobs::RunRow;
use crate::database::tests::testing::TestDatabase;
use crate::hub::Hub;
use crate::notify::AlertChannel;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The start of all times in these tests.
const START: i64 = 1_790_000_000 * clock::SECOND;
/// The time between two runs of the jobs.
const PERIOD: i64 = 300 * clock::SECOND;

/// Two hubs with one database, and a script that answers SQL.
struct Hubs {
    hubs: [Arc<Hub>; 2],
    folder: PathBuf,
}

impl Hubs {
    async fn open(test: &TestDatabase) -> Self {
        let folder = test.folder().to_owned();
        let program = folder.join("engine");
        // `runs` counts the queries. A file `wait` makes them last.
        let script = format!(
            "#!/bin/sh\ncat >/dev/null\necho run >>{0}/runs\n[ -e {0}/wait ] && exec sleep 60\n\
             cat {0}/answer || {{ echo 'backtrail-query: column x is unknown' >&2; exit 3; }}\n\
             echo '{{\"coverage\":{{\"columns\":[{{\"name\":\"p99\"}},{{\"name\":\"host\"}}]}}}}' >&2\n",
            folder.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let hub = async |name: &str| {
            let config = Config {
                data: folder.join(name),
                database: Some(test.address.clone()),
                alert: vec![channel()],
                query: Query {
                    program: Some(program.clone()),
                    ..Query::default()
                },
                ..Config::default()
            };
            Hub::open(config).await.unwrap()
        };
        Self {
            hubs: [hub("a").await, hub("b").await],
            folder,
        }
    }

    /// Sets the number that the script answers. `None`: the query fails.
    fn answer(&self, value: Option<f64>) {
        let path = self.folder.join("answer");
        match value {
            Some(value) => std::fs::write(path, format!("{{\"p99\":{value},\"host\":\"a\"}}\n")).unwrap(),
            None => drop(std::fs::remove_file(path)),
        }
    }

    fn queries(&self) -> usize {
        let text = std::fs::read_to_string(self.folder.join("runs"));
        text.map_or(0, |text| text.lines().count())
    }

    async fn add(&self, change: impl FnOnce(&mut Value)) -> String {
        let job: JobDefinition = serde_json::from_value(definition(change)).unwrap();
        manage::add(&self.hubs[0], &job, "ada", START).await.unwrap()
    }

    /// Lets both hubs run due jobs at once. Returns the number of runs.
    async fn run(&self, now: i64) -> usize {
        let [a, b] = &self.hubs;
        let (a, b) = tokio::join!(run_due(a, now), run_due(b, now));
        a.unwrap() + b.unwrap()
    }

    async fn runs(&self, job: &str) -> Vec<RunRow> {
        self.hubs[1].database.query_job_runs(job, 1000).await.unwrap()
    }

    /// Returns the events that were announced, the oldest first.
    async fn events(&self) -> Vec<String> {
        self.alerts()
            .await
            .iter()
            .map(|alert| alert["event"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn alerts(&self) -> Vec<Value> {
        let mut deliveries = self.hubs[0].database.deliveries("hook", 1000).await.unwrap();
        deliveries.reverse();
        let read = |payload: String| serde_json::from_str(&payload).unwrap();
        deliveries.into_iter().map(|one| read(one.payload)).collect()
    }
}

fn channel() -> AlertChannel {
    toml::from_str("name = 'hook'\nkind = 'webhook'\nurl = 'http://127.0.0.1:1/'").unwrap()
}

fn definition(change: impl FnOnce(&mut Value)) -> Value {
    let mut job = json!({
        "name": "p99 of checkout",
        "query": { "kind": "sql", "sql": "SELECT p99, host FROM t" },
        "schedule": "every 5m",
        "threshold": { "column": "p99", "comparison": ">", "value": 10 },
    });
    change(&mut job);
    job
}

/// Returns the time of a run by its number, from 1.
fn due(number: i64) -> i64 {
    (START.div_euclid(PERIOD) + number) * PERIOD
}

#[tokio::test(flavor = "multi_thread")]
async fn due_job_runs_once_with_two_hubs() {
    for test in TestDatabase::all().await {
        let hubs = Hubs::open(&test).await;
        hubs.answer(Some(3.5));
        let job = hubs.add(|_| {}).await;
        assert_eq!(hubs.run(due(1) - 1).await, 0);
        for number in 1..=6 {
            assert_eq!(hubs.run(due(number)).await, 1, "{}", test.name());
            assert_eq!(hubs.run(due(number) + 1).await, 0);
        }
        assert_eq!(hubs.queries(), 6);
        let runs = hubs.runs(&job).await;
        assert_eq!(runs.len(), 6);
        for (run, number) in runs.iter().rev().zip(1..) {
            assert_eq!((run.state.as_str(), run.started), ("done", due(number)));
            assert_eq!((run.value.as_deref(), run.row_count), (Some("3.5"), 1));
            assert!(run.ended >= Some(run.started) && run.origin == "schedule");
        }
        let (run, result) = hubs.hubs[1]
            .database
            .last_query_job_result(&job)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(run.started, due(6));
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!(result["columns"], json!(["p99", "host"]));
        assert_eq!(result["rows"], json!([{ "p99": 3.5, "host": "a" }]));
        assert!(hubs.events().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn threshold_alerts_once_and_reports_recovery() {
    for test in TestDatabase::all().await {
        let hubs = Hubs::open(&test).await;
        let job = hubs.add(|_| {}).await;
        let values = [1.0, 11.0, 12.0, 10.5, 9.0, 8.0, 20.0];
        for (value, number) in values.into_iter().zip(1..) {
            hubs.answer(Some(value));
            assert_eq!(hubs.run(due(number)).await, 1);
        }
        let expected = ["job-alert", "job-recovered", "job-alert"];
        assert_eq!(hubs.events().await, expected, "{}", test.name());
        let alerts = hubs.alerts().await;
        assert_eq!(
            (&alerts[0]["value"], &alerts[1]["value"]),
            (&json!(11.0), &json!(9.0))
        );
        assert_eq!(alerts[0]["threshold"], "p99 > 10");
        assert_eq!(alerts[0]["job"]["id"], json!(job));
        let row = hubs.hubs[0].database.query_job(&job).await.unwrap();
        assert!(row.alerting.is_some());
        // Another threshold is not crossed until a run finds so.
        let changed = definition(|job| job["threshold"]["value"] = json!(15));
        let changed: JobDefinition = serde_json::from_value(changed).unwrap();
        manage::change(&hubs.hubs[1], &job, &changed, "ada", due(7))
            .await
            .unwrap();
        assert_eq!(
            hubs.hubs[0].database.query_job(&job).await.unwrap().alerting,
            None
        );
        assert_eq!(hubs.run(due(8)).await, 1);
        assert_eq!(hubs.events().await.len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_killed_hub_fails_and_the_next_runs() {
    for test in TestDatabase::all().await {
        let hubs = Hubs::open(&test).await;
        hubs.answer(Some(1.0));
        let job = hubs.add(|_| {}).await;
        std::fs::write(hubs.folder.join("wait"), "").unwrap();
        let first = hubs.hubs[0].clone();
        let killed = tokio::spawn(async move { run_due(&first, due(1)).await });
        while hubs.queries() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        killed.abort();
        let _ = killed.await;
        std::fs::remove_file(hubs.folder.join("wait")).unwrap();
        // The claim holds until its end, even if the job is due again.
        assert_eq!(hubs.run(due(1) + LEASE - 1).await, 0);
        assert_eq!(hubs.runs(&job).await[0].state, "running");
        assert_eq!(hubs.run(due(1) + LEASE).await, 0);
        let failed = hubs.runs(&job).await.remove(0);
        assert_eq!(failed.state, "failed");
        assert_eq!(
            failed.problem.as_deref(),
            Some("the hub that ran the query has ended")
        );
        assert_eq!(hubs.run(due(2)).await, 1);
        let runs = hubs.runs(&job).await;
        assert_eq!(
            (runs.len(), runs[0].state.as_str()),
            (2, "done"),
            "{}",
            test.name()
        );
        assert_eq!(hubs.events().await, ["job-failed"]);
        assert_eq!(hubs.hubs[0].database.query_job(&job).await.unwrap().failing, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_query_is_stored_and_reported_once() {
    let test = TestDatabase::sqlite().await;
    let hubs = Hubs::open(&test).await;
    let job = hubs.add(|_| {}).await;
    for number in 1..=3 {
        assert_eq!(hubs.run(due(number)).await, 1);
    }
    let runs = hubs.runs(&job).await;
    assert!(
        runs.iter()
            .all(|run| run.state == "failed" && run.value.is_none())
    );
    assert_eq!(runs[0].problem.as_deref(), Some("column x is unknown"));
    assert_eq!(hubs.events().await, ["job-failed"]);
    assert_eq!(hubs.alerts().await[0]["problem"], "column x is unknown");
    hubs.answer(Some(1.0));
    hubs.run(due(4)).await;
    hubs.answer(None);
    hubs.run(due(5)).await;
    assert_eq!(hubs.events().await, ["job-failed", "job-failed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn result_without_the_column_of_the_threshold_is_a_failure() {
    let test = TestDatabase::sqlite().await;
    let hubs = Hubs::open(&test).await;
    hubs.answer(Some(1.0));
    let job = hubs.add(|job| job["threshold"]["column"] = json!("p90")).await;
    assert_eq!(hubs.run(due(1)).await, 1);
    let run = hubs.runs(&job).await.remove(0);
    assert_eq!(run.state, "failed");
    assert_eq!(
        run.problem.as_deref(),
        Some("column missing: the result has no column p90 for the threshold; its columns are p99, host")
    );
    assert_eq!(hubs.events().await, ["job-failed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_runs_now_and_disabled_ones_only_then() {
    let test = TestDatabase::sqlite().await;
    let hubs = Hubs::open(&test).await;
    hubs.answer(Some(1.0));
    let job = hubs.add(|job| job["enabled"] = json!(false)).await;
    assert_eq!(hubs.run(due(5)).await, 0);
    manage::run_now(&hubs.hubs[1], &job, "ada").await.unwrap();
    assert_eq!(hubs.run(due(5)).await, 1);
    assert_eq!(hubs.run(due(5)).await, 0);
    assert_eq!(hubs.runs(&job).await[0].origin, "person");
    // A run that a person wants does not move the schedule.
    let other = hubs.add(|job| job["name"] = json!("other")).await;
    manage::run_now(&hubs.hubs[1], &other, "ada").await.unwrap();
    assert_eq!(hubs.run(START + 1).await, 1);
    assert_eq!(
        hubs.hubs[0].database.query_job(&other).await.unwrap().next_run,
        due(1)
    );
    let error = manage::run_now(&hubs.hubs[0], "x", "ada").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no job x");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_results_and_runs_are_removed() {
    for test in TestDatabase::all().await {
        let hubs = Hubs::open(&test).await;
        hubs.answer(Some(1.0));
        let job = hubs.add(|_| {}).await;
        for number in 1..=53 {
            assert_eq!(run_due(&hubs.hubs[0], due(number)).await.unwrap(), 1);
        }
        let count = async |query: &'static str| -> i64 {
            let reader = hubs.hubs[0].database.reader();
            sqlx::query_scalar(query).fetch_one(reader).await.unwrap()
        };
        assert_eq!(count("SELECT COUNT(*) FROM query_job_runs").await, 53);
        let results = "SELECT COUNT(*) FROM query_job_runs WHERE result IS NOT NULL";
        assert_eq!(count(results).await, 50, "{}", test.name());
        assert_eq!(hubs.run(due(1) + 91 * clock::DAY).await, 1);
        assert!(count("SELECT COUNT(*) FROM query_job_runs").await < 53);
        hubs.hubs[1].database.delete_query_job(&job, "ada").await.unwrap();
        assert_eq!(count("SELECT COUNT(*) FROM query_job_runs").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_is_deleted_in_its_run_leaves_nothing() {
    let test = TestDatabase::sqlite().await;
    let hubs = Hubs::open(&test).await;
    hubs.answer(Some(11.0));
    let job = hubs.add(|_| {}).await;
    std::fs::write(hubs.folder.join("wait"), "").unwrap();
    let first = hubs.hubs[0].clone();
    let running = tokio::spawn(async move { run_due(&first, due(1)).await });
    while hubs.queries() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    hubs.hubs[1].database.delete_query_job(&job, "ada").await.unwrap();
    running.abort();
    let _ = running.await;
    assert_eq!(hubs.run(due(1) + LEASE).await, 0);
    assert!(hubs.runs(&job).await.is_empty() && hubs.events().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_unique_and_jobs_bounded() {
    for test in TestDatabase::all().await {
        let hubs = Hubs::open(&test).await;
        let job = hubs.add(|_| {}).await;
        let named = |name: &str| -> JobDefinition {
            serde_json::from_value(definition(|job| job["name"] = json!(name))).unwrap()
        };
        let hub = &hubs.hubs[0];
        let error = manage::add(hub, &named("p99 of checkout"), "ada", START)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("another job has the name"), "{error}");
        let other = manage::add(hub, &named("b"), "ada", START).await.unwrap();
        let error = manage::change(hub, &other, &named("p99 of checkout"), "ada", START).await;
        assert!(error.is_err());
        manage::change(hub, &job, &named("p99 of checkout"), "ada", START)
            .await
            .unwrap();
        for number in 2..200 {
            manage::add(hub, &named(&format!("n{number}")), "ada", START)
                .await
                .unwrap();
        }
        let error = manage::add(hub, &named("last"), "ada", START).await.unwrap_err();
        assert!(error.to_string().contains("200 jobs"), "{error}");
    }
}
