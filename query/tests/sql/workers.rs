//! Queries with workers: the same answers, and workers that go away.

use crate::store::{Answer, Store};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A worker on a port of this machine, which ends with the value.
struct Worker {
    child: Child,
    url: String,
}

impl Worker {
    fn start(store: &Store, token: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_backtrail-query"))
            .args(["worker", "--listen", "127.0.0.1:0", "--objects"])
            .arg(store.path())
            .env("BACKTRAIL_QUERY_TOKEN", token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let url = format!("http://{address}");
        Self { child, url }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a query by workers with tiny parts, so that small files are distributed too.
fn run(store: &Store, sql: &str, workers: &[&Worker], token: &str, format: &str) -> Answer {
    let urls: Vec<&str> = workers.iter().map(|worker| worker.url.as_str()).collect();
    let child = start(store, sql, &urls, token, format);
    Answer(child.wait_with_output().unwrap())
}

fn start(store: &Store, sql: &str, urls: &[&str], token: &str, format: &str) -> Child {
    let request = json!({"sql": sql, "segments": store.segments, "format": format}).to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_backtrail-query"))
        .args(["run", "--workers", &urls.join(","), "--objects"])
        .arg(store.path())
        .env("BACKTRAIL_QUERY_TOKEN", token)
        .env("BACKTRAIL_QUERY_BYTES_PER_THREAD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    child
}

/// Queries of every kind of node that is distributed.
const QUERIES: &[&str] = &[
    "SELECT service, host, count(*), sum(weight) FROM samples GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT time, stack, weight FROM samples WHERE service = 'web' ORDER BY time, segment, stack LIMIT 50",
    "SELECT s.host, array_length(k.frames), sum(s.weight) FROM samples s JOIN stacks k
     ON s.segment = k.segment AND s.stack = k.stack GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT service, p99(weight), p50(weight) FROM samples GROUP BY 1 ORDER BY 1",
    "SELECT host, count(*) FROM samples WHERE matches(stack, 'json') GROUP BY 1 ORDER BY 1",
    "SELECT frames_of(stack)[1], sum(weight) FROM samples GROUP BY 1 ORDER BY 1",
    "SELECT folded(stack, weight) FROM samples",
    "SELECT service, flamegraph(segment, stack, weight) FROM samples GROUP BY 1 ORDER BY 1",
    "SELECT count(DISTINCT host) FROM samples WHERE hour = 10",
];

#[test]
fn answers_of_two_workers_equal_those_of_one_process() {
    let store = Store::sample(4000);
    let workers = [Worker::start(&store, "secret"), Worker::start(&store, "secret")];
    for sql in QUERIES {
        let one = store.run(sql, json!({"format": "csv"})).text();
        let two = run(&store, sql, &[&workers[0], &workers[1]], "secret", "csv");
        assert!(two.0.status.success(), "{sql}: {}", two.error());
        assert_eq!(two.text(), one, "{sql}");
        assert!(one.lines().count() > 1, "{sql}");
    }
    let coverage = run(&store, QUERIES[0], &[&workers[0], &workers[1]], "secret", "json").coverage();
    assert!(coverage["bytes"].as_u64().unwrap() > 1000, "{coverage}");
    assert_eq!(coverage["workers"], 2);
}

#[test]
fn worker_refuses_another_secret() {
    let store = Store::sample(1000);
    let workers = [Worker::start(&store, "secret"), Worker::start(&store, "secret")];
    let failure = run(&store, QUERIES[0], &[&workers[0], &workers[1]], "other", "csv").failure(1);
    assert!(failure.contains("token"), "{failure}");
    let output = Command::new(env!("CARGO_BIN_EXE_backtrail-query"))
        .args(["worker", "--listen", "0.0.0.0:0", "--objects"])
        .arg(store.path())
        .env_remove("BACKTRAIL_QUERY_TOKEN")
        .output();
    let failure = Answer(output.unwrap()).failure(1);
    assert!(failure.contains("BACKTRAIL_QUERY_TOKEN"), "{failure}");
}

#[test]
fn worker_that_is_not_there_is_left_out() {
    let store = Store::sample(1000);
    let worker = Worker::start(&store, "");
    // The port is free again at once.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!("http://{address}");
    let one = store.run(QUERIES[0], json!({"format": "csv"})).text();
    let child = start(&store, QUERIES[0], &[&gone, &worker.url], "", "csv");
    let answer = Answer(child.wait_with_output().unwrap());
    assert_eq!(answer.text(), one, "{}", answer.error());
    let child = start(&store, QUERIES[0], &[&gone], "", "csv");
    let alone = Answer(child.wait_with_output().unwrap());
    assert_eq!(alone.text(), one, "{}", alone.error());
    assert_eq!(alone.coverage()["workers"], 0);
}

#[test]
fn killed_worker_is_an_error_and_not_a_wrong_answer() {
    let store = Store::sample(2000);
    let sql = "SELECT count(*) AS n FROM samples a JOIN samples b ON a.service = b.service
        WHERE a.weight * b.weight % 7 = 3";
    let expected = store.run(sql, json!({"format": "csv"})).text();
    let mut errors = 0;
    for wait in [0, 150, 400] {
        let (mut first, second) = (Worker::start(&store, ""), Worker::start(&store, ""));
        let child = start(&store, sql, &[&first.url, &second.url], "", "csv");
        thread::sleep(Duration::from_millis(wait));
        first.child.kill().unwrap();
        let began = Instant::now();
        let answer = Answer(child.wait_with_output().unwrap());
        assert!(began.elapsed() < Duration::from_secs(60));
        match answer.0.status.success() {
            true => assert_eq!(answer.text(), expected, "after {wait} ms"),
            false => {
                errors += 1;
                let failure = answer.failure(1);
                assert!(failure.contains("worker"), "after {wait} ms: {failure}");
            }
        }
    }
    assert!(errors > 0, "the worker was never killed in the query");
}
