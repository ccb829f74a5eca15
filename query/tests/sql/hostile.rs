//! Hostile queries and damaged files end within the limits, with one sentence.

use crate::store::Store;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn statements_beyond_reading_are_refused() {
    let store = Store::sample(10);
    let target = store.path().join("stolen.csv");
    for sql in [
        &*format!("COPY samples TO '{}'", target.display()),
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE TABLE t AS SELECT * FROM samples",
        "INSERT INTO samples SELECT * FROM samples",
        "DROP TABLE samples",
        "SET datafusion.execution.batch_size = 1",
        "SELECT * INTO t FROM samples",
        "EXPLAIN COPY samples TO '/tmp/x'",
        "SELECT 1; DROP TABLE samples",
        "PREPARE p AS SELECT 1",
        "BEGIN",
    ] {
        let failure = store.run(sql, json!({})).failure(3);
        assert!(
            failure.contains("not allowed") || failure.contains("wrong"),
            "{sql}: {failure}"
        );
    }
    assert!(!target.exists());
}

#[test]
fn files_outside_the_store_are_unreachable() {
    let store = Store::sample(10);
    for sql in [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM \"/etc/passwd\"",
        "SELECT * FROM read_parquet('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM 'file:///etc/passwd'",
        "SELECT * FROM 'https://example.com/x.parquet'",
        "SELECT read_text('/etc/passwd')",
    ] {
        store.run(sql, json!({})).failure(3);
    }
}

#[test]
fn endless_queries_end_at_the_time_limit() {
    let store = Store::sample(1000);
    for sql in [
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
        "SELECT count(*) FROM samples a, samples b, samples c, samples d WHERE a.weight + b.weight > c.weight + d.weight",
        "SELECT sum(value) FROM generate_series(1, 9000000000000000000)",
    ] {
        let began = Instant::now();
        let answer = store.run(sql, json!({"limits": {"seconds": 2, "memory_bytes": 256 << 20}}));
        let failure = answer.failure(1);
        assert!(failure.contains("limit"), "{sql}: {failure}");
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{sql}: {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn deep_and_long_queries_end_with_an_answer_or_a_sentence() {
    let store = Store::sample(10);
    let limits = json!({"limits": {"seconds": 60, "memory_bytes": 512 << 20}});
    let repeated =
        |head: &str, part: &str, count: usize, tail: &str| format!("{head}{}{tail}", part.repeat(count));
    let list = (0..100_000)
        .map(|number| number.to_string())
        .collect::<Vec<_>>()
        .join(",");
    for (sql, is_answered) in [
        (repeated("SELECT ", "(", 10_000, "1"), false),
        (repeated("SELECT ", "NOT ", 1_500, "true"), false),
        (repeated("SELECT 1", "+1", 300, ""), true),
        (repeated("SELECT 1", "+1", 100_000, ""), false),
        (
            repeated(
                "SELECT count(*) FROM samples WHERE weight = 1",
                " OR weight = 1",
                450,
                "",
            ),
            true,
        ),
        (repeated("SELECT 1", " UNION ALL SELECT 1", 400, ""), true),
        (
            format!("SELECT count(*) FROM samples WHERE weight IN ({list})"),
            true,
        ),
        (
            repeated("SELECT ", "abs(", 45, &format!("1{}", ")".repeat(45))),
            true,
        ),
        (repeated("SELECT 1", "::int", 300, ""), true),
    ] {
        let answer = store.run(&sql, limits.clone());
        let head: String = sql.chars().take(40).collect();
        match is_answered {
            true => assert!(answer.0.status.success(), "{head}: {}", answer.error()),
            false => drop(answer.failure(3)),
        }
    }
}

#[test]
fn malformed_requests_end_with_a_sentence() {
    let store = Store::sample(10);
    for request in [
        "",
        "null",
        "{\"sql\": 1}",
        "{\"sql\": \"SELECT 1\", \"format\": \"xml\"}",
        "{\"sql\": \"SELECT 1\", \"segments\": [{\"id\": \"../x\"}]}",
        &"[".repeat(100_000),
    ] {
        let failure = store.request(request, &[]).failure(1);
        assert!(failure.contains("request"), "{failure}");
    }
    let mut segments = store.segments.clone();
    segments[0]["id"] = "../../etc/passwd".into();
    store.run("SELECT 1", json!({"segments": segments})).failure(1);
}

#[test]
fn damaged_file_is_named() {
    let mut store = Store::sample(3000);
    let key = store.key(1, "samples");
    let path = store.file(1, "samples");
    let good = fs::read(&path).unwrap();
    let middle = good.len() / 3;
    let mut flipped = good.clone();
    flipped[middle..middle + 400].fill(0xff);
    let mut footer = good.clone();
    let end = footer.len();
    footer[end - 200..end - 8].fill(0x5a);
    for (damage, content) in [
        ("flipped", flipped),
        ("footer", footer),
        ("cut", good[..good.len() / 2].to_vec()),
        ("zeros", vec![0; good.len()]),
    ] {
        fs::write(&path, &content).unwrap();
        store.segments[1]["samples"]["bytes"] = content.len().into();
        let sql = "SELECT service, host, sum(weight), max(time), min(stack) FROM samples GROUP BY 1, 2";
        let failure = store.run(sql, json!({})).failure(1);
        assert!(
            failure.contains(&key) && failure.contains("damaged"),
            "{damage}: {failure}"
        );
    }
    fs::remove_file(&path).unwrap();
    let failure = store.run("SELECT sum(weight) FROM samples", json!({})).failure(1);
    assert!(failure.contains(&key) && failure.contains("missing"), "{failure}");
}

#[test]
fn damaged_names_are_reported_with_their_file() {
    let mut store = Store::sample(10);
    for kind in ["stacks", "frames"] {
        let path = store.file(0, kind);
        let good = fs::read(&path).unwrap();
        fs::write(&path, &good[..good.len() / 2]).unwrap();
        let failure = store
            .run("SELECT folded(stack, weight) FROM samples", json!({}))
            .failure(1);
        assert!(failure.contains(&store.key(0, kind)), "{failure}");
        fs::write(&path, good).unwrap();
    }
    // A stack that names a frame which its segment does not have.
    let sample = crate::store::Sample {
        second: 0,
        service: "x".into(),
        host: "y".into(),
        weight: 1,
        stack: 0,
    };
    store.add(
        crate::store::HOUR + 2,
        &[sample],
        &[&[4_000_000_000]],
        &crate::store::frames(),
    );
    let failure = store
        .run("SELECT folded(stack, weight) FROM samples", json!({}))
        .failure(1);
    assert!(
        failure.contains(&store.key(3, "stacks")) && failure.contains("4000000000"),
        "{failure}"
    );
}
