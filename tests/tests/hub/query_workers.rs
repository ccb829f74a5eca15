//! SQL by the real `backtrail-query`: two hubs and two workers on one bucket, one of which is
//! killed.
//!
//! `cargo xtask test-query` builds the program, and names it in `BACKTRAIL_QUERY_BIN`.

use super::bucket::{Bucket, Site};
use super::postgres::Postgres;
use backtrail_tests::hub_process::{HubProcess, binary};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The profiles, each with its own stack, and the repetitions of a pair of them in a query.
const PROFILES: u64 = 40;
/// A query that joins each sample with all others, so that it takes long enough for a kill.
const JOINED: &str = "SELECT CAST(count(*) AS BIGINT) AS n FROM samples a JOIN samples b ON a.service = b.service \
                      JOIN samples c ON b.service = c.service JOIN samples d ON c.service = d.service \
                      WHERE (a.weight * b.weight + c.weight * d.weight) % 7 = 3";

/// A worker, which ends with the value.
struct Worker {
    child: Child,
    url: String,
}

impl Worker {
    fn start(site: &Site) -> Self {
        let mut child = Command::new(binary().unwrap())
            .args(["worker", "--listen", "127.0.0.1:0", "--config"])
            .arg(&site.config)
            .envs(site.environment.iter().cloned())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let _ = output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect(&line);
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

/// Asks a hub, and returns the status and the answer.
fn ask(hub: &HubProcess, token: &str, sql: &str) -> (u16, Value) {
    let body = json!({ "sql": sql, "seconds": 120 }).to_string();
    let headers = [("Content-Type", "application/json")];
    let path = "/api/v1/profiles/sql";
    let answer = hub
        .request_with("POST", path, Some(token), &headers, body.as_bytes())
        .unwrap();
    (answer.status, answer.json())
}

/// Returns the number that a query counts in one process.
fn expected() -> u64 {
    let residues = |weights: u64| -> [u64; 7] {
        let mut counts = [0; 7];
        for (one, other) in (1..=weights).flat_map(|one| (1..=weights).map(move |other| (one, other))) {
            counts[(one * other % 7) as usize] += 1;
        }
        counts
    };
    let pairs = residues(PROFILES);
    let sums = (0..7).flat_map(|one| (0..7).map(move |other| (one, other)));
    let wanted = sums.filter(|(one, other)| (one + other) % 7 == 3);
    wanted.map(|(one, other)| pairs[one] * pairs[other]).sum()
}

#[test]
#[ignore = "needs the program that cargo xtask test-query builds"]
fn two_hubs_answer_while_a_worker_on_their_bucket_is_killed() {
    let Some(program) = std::env::var_os("BACKTRAIL_QUERY_BIN") else {
        eprintln!("skipped: BACKTRAIL_QUERY_BIN is not set; cargo xtask test-query sets it");
        return;
    };
    let Some(database) = Postgres::start() else { return };
    let bucket = Bucket::s3s();
    let folder = tempfile::tempdir().unwrap();
    let common = format!(
        "database = \"{}\"\nquery.program = \"{}\"",
        database.address(),
        program.to_string_lossy()
    );
    let mut site = Site::new(folder.path(), "worker", bucket.address, &common);
    // Small files are distributed too.
    let small = ("BACKTRAIL_QUERY_BYTES_PER_THREAD".to_owned(), "1".to_owned());
    site.environment.push(small.clone());
    let start = || [Worker::start(&site), Worker::start(&site)];
    let hubs_with = |workers: &[Worker; 2], name: &str| {
        let urls = workers
            .each_ref()
            .map(|worker| format!("\"{}\"", worker.url))
            .join(", ");
        let more = format!("{common}\nquery.workers = [{urls}]");
        let mut site = Site::new(folder.path(), name, bucket.address, &more);
        site.environment.push(small.clone());
        site
    };
    let mut workers = start();
    let first = hubs_with(&workers, "first");
    let token = first.token(&["ingest", "read", "admin"]);
    let hub = first.start();
    for number in 1..=PROFILES {
        let body = format!("main;work_{number} {number}\n");
        let path = format!("/api/v1/profiles?service=shop&host=web{number}");
        let answer = hub.request("POST", &path, Some(&token), body.as_bytes()).unwrap();
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
    let second = hubs_with(&workers, "second").start();
    for hub in [&hub, &second] {
        let (status, answer) = ask(
            hub,
            &token,
            "SELECT CAST(sum(weight) AS BIGINT) AS n FROM samples",
        );
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["rows"][0]["n"], PROFILES * (PROFILES + 1) / 2, "{answer}");
        assert_eq!(answer["coverage"]["workers"], 2, "{answer}");
    }
    let (status, answer) = ask(&hub, &token, JOINED);
    assert_eq!(
        (status, &answer["rows"][0]["n"]),
        (200, &expected().into()),
        "{answer}"
    );

    // A worker is killed in a query of each hub.
    let mut errors = 0;
    for (turn, wait) in [100, 300, 600, 1000].into_iter().enumerate() {
        if turn > 0 {
            workers = start();
        }
        let site = hubs_with(&workers, &format!("turn{turn}"));
        let hub = site.start();
        let began = Instant::now();
        let (status, answer) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&hub, &token, JOINED));
            std::thread::sleep(Duration::from_millis(wait));
            workers[turn % 2].child.kill().unwrap();
            asked.join().unwrap()
        });
        assert!(began.elapsed() < Duration::from_secs(120));
        match status {
            200 => assert_eq!(answer["rows"][0]["n"], expected(), "after {wait} ms: {answer}"),
            _ => {
                errors += 1;
                assert!(
                    answer.to_string().contains("worker"),
                    "after {wait} ms: {status} {answer}"
                );
            }
        }
        // The next query does without the worker, or without both.
        let (status, answer) = ask(&hub, &token, JOINED);
        assert_eq!(
            (status, &answer["rows"][0]["n"]),
            (200, &expected().into()),
            "{answer}"
        );
    }
    assert!(errors > 0, "no worker was killed in a query");
}
