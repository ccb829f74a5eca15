//! Limits of memory, scanned bytes and time, spilling, and cancellation.

use crate::store::{Answer, Store};
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A query that needs a group per row of the product of two tables.
fn many_groups(factor: u32) -> String {
    format!(
        "SELECT count(*) AS n FROM (SELECT value % 1000000000 AS k, count(*) AS c
         FROM generate_series(1, {factor}) GROUP BY 1) t WHERE c = 1"
    )
}

/// Runs a request and returns the answer with the highest resident memory in bytes.
fn run_measured(store: &Store, sql: &str, limits: serde_json::Value) -> (Answer, u64) {
    let request = json!({"sql": sql, "segments": store.segments, "limits": limits}).to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_backtrail-query"))
        .args(["run", "--objects"])
        .arg(store.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let status = format!("/proc/{}/status", child.id());
    let highest = thread::spawn(move || {
        let mut highest = 0;
        while let Ok(text) = fs::read_to_string(&status) {
            let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:")) else {
                break;
            };
            let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
            highest = highest.max(kilobytes * 1024);
            thread::sleep(Duration::from_millis(2));
        }
        highest
    });
    let answer = Answer(child.wait_with_output().unwrap());
    (answer, highest.join().unwrap())
}

/// The memory of the process that has not begun a query, and the most that it exceeds its limit by.
const IDLE: u64 = 300 << 20;

#[test]
fn memory_stays_near_the_limit() {
    let store = Store::sample(10);
    let limit: u64 = 64 << 20;
    for sql in [
        &*many_groups(20_000_000),
        "SELECT array_agg(value) FROM generate_series(1, 500000000)",
        "SELECT length(string_agg(repeat('x', 1000), '')) FROM generate_series(1, 10000000)",
        "SELECT repeat('x', 2000000000)",
        "SELECT p99(value) FROM generate_series(1, 500000000)",
    ] {
        let limits = json!({"memory_bytes": limit, "seconds": 20});
        let (answer, highest) = run_measured(&store, sql, limits);
        assert!(highest < limit + IDLE, "{sql}: {highest}");
        if !answer.0.status.success() {
            let failure = answer.failure(1);
            assert!(
                failure.contains("limit") || failure.contains("failed"),
                "{sql}: {failure}"
            );
        }
    }
}

#[test]
fn rows_beyond_the_memory_are_spilled_and_removed() {
    let store = Store::sample(10);
    let temp = tempfile::tempdir().unwrap();
    let sql = "SELECT text, place FROM (SELECT text, row_number() OVER (ORDER BY text DESC) AS place
        FROM (SELECT repeat(cast(value AS varchar), 40) AS text FROM generate_series(1, 400000)))
        WHERE place % 100000 = 0 ORDER BY place";
    let request =
        |memory: u64| json!({"sql": sql, "limits": {"memory_bytes": memory, "seconds": 300}}).to_string();
    let temp_path = temp.path().to_str().unwrap();
    let large = store.request(&request(2 << 30), &["--temp", temp_path]);
    let small = store.request(&request(160 << 20), &["--temp", temp_path]);
    assert_eq!(small.rows(), large.rows());
    assert_eq!(small.rows().len(), 4);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn bytes_beyond_the_limit_are_not_read() {
    let store = Store::sample(3000);
    let limits = json!({"limits": {"scanned_bytes": 2000}});
    let failure = store
        .run("SELECT sum(weight) FROM samples", limits.clone())
        .failure(1);
    assert!(failure.contains("2000 bytes"), "{failure}");
    let failure = store
        .run("SELECT folded(stack, weight) FROM samples", limits)
        .failure(1);
    assert!(failure.contains("2000 bytes"), "{failure}");
}

#[test]
fn spilled_rows_are_removed_at_the_time_limit_and_after_a_kill() {
    let store = Store::sample(10);
    let temp = tempfile::tempdir().unwrap();
    let sql = "SELECT * FROM generate_series(1, 4000000000) ORDER BY value DESC";
    let request = json!({"sql": sql, "limits": {"seconds": 2, "memory_bytes": 128 << 20}}).to_string();
    let temp_path = temp.path().to_str().unwrap();
    store.request(&request, &["--temp", temp_path]).failure(1);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    let mut child = Command::new(env!("CARGO_BIN_EXE_backtrail-query"))
        .args(["run", "--temp", temp_path, "--objects"])
        .arg(store.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let request = request.replace("\"seconds\":2", "\"seconds\":600");
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let began = Instant::now();
    while fs::read_dir(temp.path()).unwrap().count() == 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    let next = json!({"sql": "SELECT 1 AS one"}).to_string();
    assert_eq!(
        store.request(&next, &["--temp", temp_path]).rows(),
        [json!({"one": 1})]
    );
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}
