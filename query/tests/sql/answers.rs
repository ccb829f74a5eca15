//! Answers of plain SQL: columns, filters, segments that are left out, and formats.

use crate::store::{HOUR, STACKS, Sample, Store, frames};
use datafusion::arrow::ipc::reader::StreamReader;
use serde_json::{Value, json};

#[test]
fn weights_are_summed_by_service() {
    let store = Store::sample(1000);
    let rows =
        store.rows("SELECT service, count(*) AS n, sum(weight) AS w FROM samples GROUP BY 1 ORDER BY 1");
    let weight = |segment: i64, odd: Option<i64>| -> i64 {
        let of = |index: &i64| odd.is_none_or(|odd| index % 2 == odd);
        (0..1000)
            .filter(of)
            .map(|index| 1 + index * (segment + 1) % 10)
            .sum()
    };
    let api = weight(0, Some(1)) + weight(1, None);
    let web = weight(0, Some(0)) + weight(2, None);
    assert_eq!(
        rows,
        [
            json!({"service": "api", "n": 1500, "w": api}),
            json!({"service": "web", "n": 1500, "w": web}),
        ]
    );
}

#[test]
fn every_column_of_every_table_is_readable() {
    let store = Store::sample(10);
    for (table, rows) in [
        ("samples", 30),
        ("stacks", 12),
        ("frames", 12),
        ("contexts", 3),
        ("crashes", 0),
    ] {
        let found = store.rows(&format!("SELECT * FROM {table}"));
        assert_eq!(found.len(), rows, "{table}");
    }
    let first = &store.rows("SELECT * FROM samples ORDER BY time, segment, stack LIMIT 1")[0];
    assert_eq!(first["time"], "2026-11-29T09:00:00Z");
    assert_eq!(
        (&first["date"], &first["hour"]),
        (&json!("2026-11-29"), &json!(9))
    );
    assert_eq!((&first["process"], &first["pid"]), (&json!("server"), &json!(7)));
    let labels = store.rows("SELECT DISTINCT labels['endpoint'] AS e FROM contexts");
    assert_eq!(labels, [json!({"e": "/search"})]);
    let lines = store.rows("SELECT lines[1]['function'] AS f FROM frames WHERE frame = 3 LIMIT 1");
    assert_eq!(lines, [json!({"f": "http::write"})]);
}

#[test]
fn samples_are_those_of_the_time() {
    let store = Store::sample(1000);
    let start = u64::from(HOUR) * 3600 * 1_000_000_000;
    let count = |from: u64, until: u64| {
        let times = json!({"start": start + from, "end": start + until});
        let sql = "SELECT count(*) AS n, count(DISTINCT segment) AS s FROM samples WHERE weight > 0";
        store.run(sql, json!({ "times": times })).rows()[0]["n"].clone()
    };
    const SECOND: u64 = 1_000_000_000;
    // The first hour has a sample in each of 1000 seconds, and the next has two.
    assert_eq!(count(0, 3 * 3600 * SECOND), 3000);
    assert_eq!(count(10 * SECOND, 20 * SECOND), 10);
    assert_eq!(count(10 * SECOND + 1, 20 * SECOND + 1), 10);
    assert_eq!(count(990 * SECOND, (3600 + 5) * SECOND), 20);
    assert_eq!(count(2000 * SECOND, 3000 * SECOND), 0);
    // Functions of stacks still find their segment.
    let times = json!({"start": start, "end": start + 4 * SECOND});
    let sql = "SELECT count(*) AS n FROM samples WHERE matches(stack, 'main')";
    assert_eq!(
        store.run(sql, json!({ "times": times })).rows(),
        [json!({"n": 4})]
    );
}

#[test]
fn sums_beyond_64_bits_are_refused() {
    let mut store = Store::new();
    let samples = [i64::MAX, i64::MAX, -5].map(|weight| Sample {
        second: 1,
        service: "large".into(),
        host: "a".into(),
        weight,
        stack: 0,
    });
    store.add(HOUR, &samples, STACKS, &frames());
    for sql in [
        "SELECT sum(weight) FROM samples",
        "SELECT service, sum(weight) FROM samples GROUP BY 1",
        "SELECT sum(weight) OVER () FROM samples",
    ] {
        let answer = store.run(sql, json!({}));
        assert!(
            answer.error().contains("a sum exceeds 64 bits"),
            "{sql}: {}",
            answer.error()
        );
    }
    let rows = store.rows(
        "SELECT CAST(sum(CAST(weight AS DECIMAL(38, 0))) AS TEXT) AS w, sum(weight) FILTER (WHERE weight < 0) AS n,
         sum(weight) FILTER (WHERE weight = 0) AS none FROM samples",
    );
    let expected = (2 * i128::from(i64::MAX) - 5).to_string();
    assert_eq!(rows[0]["w"], expected);
    assert_eq!(
        (&rows[0]["n"], rows[0].get("none")),
        (&json!(-5), Some(&Value::Null))
    );
    // Sums on the way may exceed 64 bits.
    let rows = store.rows("SELECT sum(x) AS s FROM (VALUES (9223372036854775807), (5), (-6)) t(x)");
    assert_eq!(rows, [json!({"s": i64::MAX - 1})]);
    let rows = store.rows(
        "SELECT sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM (VALUES (1), (2), (4)) t(x)",
    );
    assert_eq!(rows, [json!({"s": 1}), json!({"s": 3}), json!({"s": 6})]);
    assert_eq!(
        store.rows("SELECT sum(x) AS s FROM (VALUES (1.5), (2.5)) t(x)"),
        [json!({"s": 4.0})]
    );
    assert_eq!(
        store.rows("SELECT sum(DISTINCT x) AS s FROM (VALUES (2), (2), (3)) t(x)"),
        [json!({"s": 5})]
    );
}

#[test]
fn wrong_patterns_are_no_damage() {
    let store = Store::sample(10);
    for sql in [
        "SELECT count(*) FROM samples WHERE matches(stack, '(')",
        "SELECT matches(stack, '(') FROM samples",
    ] {
        let errors = store.run(sql, json!({})).error();
        assert!(
            errors.contains("regex parse error") && !errors.contains("decoded"),
            "{errors}"
        );
    }
    let errors = store
        .run("SELECT folded(DISTINCT stack, weight) FROM samples", json!({}))
        .error();
    assert!(errors.contains("cannot have DISTINCT"), "{errors}");
}

/// Returns the number of segments that a query reads.
fn segments(store: &Store, condition: &str) -> Value {
    let answer = store.run(
        &format!("SELECT sum(weight) FROM samples WHERE {condition}"),
        json!({}),
    );
    answer.coverage()["segments"].clone()
}

#[test]
fn segments_without_matching_rows_are_not_read() {
    let store = Store::sample(100);
    assert_eq!(segments(&store, "true"), 3);
    assert_eq!(segments(&store, "service = 'web'"), 2);
    assert_eq!(segments(&store, "service IN ('api', 'db')"), 2);
    assert_eq!(segments(&store, "service = 'db'"), 0);
    assert_eq!(segments(&store, "event = 'wall'"), 0);
    assert_eq!(segments(&store, "hour = 9"), 1);
    assert_eq!(segments(&store, "date = '2026-11-28'"), 0);
    assert_eq!(segments(&store, "time < '2026-11-29T10:00:00Z'"), 1);
    assert_eq!(
        segments(
            &store,
            "time BETWEEN '2026-11-29T10:00:00Z' AND '2026-11-29T11:00:00Z'"
        ),
        2
    );
    assert_eq!(segments(&store, "service = 'web' AND hour = 10"), 1);
    // The catalog has no list of hosts, so that every segment may have one.
    assert_eq!(segments(&store, "host = 'none'"), 3);
}

#[test]
fn filters_of_other_tables_use_partitions_only() {
    let store = Store::sample(10);
    let rows = store.rows("SELECT count(*) AS n FROM stacks WHERE hour = 9");
    assert_eq!(rows, [json!({"n": 4})]);
    let rows = store.rows(
        "SELECT count(*) AS n FROM samples s JOIN stacks k ON s.segment = k.segment AND s.stack = k.stack
         WHERE s.service = 'web' AND array_length(k.frames) = 3",
    );
    let expected = (0..10).filter(|index| index % 2 == 0 && index % 4 == 1).count()
        + (0..10).filter(|index| (index + 2) % 4 == 1).count();
    assert_eq!(rows, [json!({"n": expected})]);
}

#[test]
fn rows_beyond_the_limit_are_left_out_and_reported() {
    let store = Store::sample(1000);
    let answer = store.run("SELECT weight FROM samples", json!({"limits": {"rows": 17}}));
    assert_eq!(answer.rows().len(), 17);
    let coverage = answer.coverage();
    assert_eq!(
        (&coverage["returned"], &coverage["truncated"]),
        (&json!(17), &json!(true))
    );
    let answer = store.run("SELECT weight FROM samples", json!({"limits": {"rows": 3000}}));
    assert_eq!(answer.coverage()["truncated"], false);
    assert_eq!(answer.rows().len(), 3000);
}

#[test]
fn coverage_names_columns_rows_and_bytes() {
    let store = Store::sample(1000);
    let coverage = store
        .run(
            "SELECT service, sum(weight) AS w FROM samples GROUP BY 1",
            json!({}),
        )
        .coverage();
    assert_eq!(
        coverage["columns"][0],
        json!({"name": "service", "type": "Utf8View"})
    );
    assert_eq!(
        (&coverage["rows"], &coverage["segments_total"]),
        (&json!(3000), &json!(3))
    );
    let bytes = coverage["bytes"].as_u64().unwrap();
    let all: u64 = store
        .segments
        .iter()
        .map(|entry| entry["samples"]["bytes"].as_u64().unwrap())
        .sum();
    assert!(bytes > 0 && bytes < 4 * all, "{bytes} of {all}");
}

#[test]
fn csv_and_arrow_have_the_same_rows() {
    let store = Store::sample(10);
    let sql = "SELECT DISTINCT host, hour FROM samples WHERE hour = 9 ORDER BY 1";
    let csv = store.run(sql, json!({"format": "csv"})).text();
    assert_eq!(csv, "host,hour\nhost0,9\nhost1,9\nhost2,9\n");
    let arrow = store.run(sql, json!({"format": "arrow"})).0.stdout;
    let batches: Vec<_> = StreamReader::try_new(&arrow[..], None).unwrap().collect();
    let rows: usize = batches
        .iter()
        .map(|batch| batch.as_ref().unwrap().num_rows())
        .sum();
    assert_eq!(rows, 3);
}

#[test]
fn crashes_are_rows_of_the_request() {
    let store = Store::sample(10);
    let time = u64::from(HOUR) * 3_600_000_000_000;
    let crashes = json!([
        {"id": "a", "time": time, "service": "web", "signal": 11, "group": "g1", "functions": ["json::parse"]},
        {"id": "b", "time": time, "service": "web", "signal": 6, "group": "g2", "functions": []},
    ]);
    let sql = "SELECT c.group_id, count(*) AS n FROM crashes c JOIN samples s
        ON c.service = s.service AND array_has(frames_of(s.segment, s.stack), c.functions[1]) GROUP BY 1";
    let rows = store.run(sql, json!({"crashes": crashes})).rows();
    let parsing = (0..10).filter(|index| index % 2 == 0 && index % 4 < 2).count()
        + (0..10).filter(|index| (index + 2) % 4 < 2).count();
    assert_eq!(rows, [json!({"group_id": "g1", "n": parsing})]);
}

#[test]
fn rows_of_several_stores_are_a_table() {
    let (first, second) = (Store::sample(100), Store::sample(50));
    let sql = "SELECT service, date_trunc('hour', min(time)) AS hour, sum(weight) AS w, count(*) AS n
        FROM samples GROUP BY service";
    let mut rows = Vec::new();
    let mut columns = vec![json!({"name": "site", "type": "Utf8"})];
    for (store, site) in [(&first, "local"), (&second, "eu")] {
        let answer = store.run(sql, json!({}));
        let found = answer.coverage()["columns"].as_array().unwrap().clone();
        columns.truncate(1);
        columns.extend(found);
        rows.extend(answer.rows().into_iter().map(|mut row| {
            row["site"] = site.into();
            row
        }));
    }
    let answers = json!({ "answers": { "columns": columns, "rows": rows } });
    let sql = "SELECT service, sum(n) AS n, count(DISTINCT site) AS sites,
        min(hour) < TIMESTAMP '2030-01-01' AS early FROM answers GROUP BY service ORDER BY service";
    let answer = first.run(sql, answers);
    assert_eq!(
        answer.rows(),
        [
            json!({"service": "api", "n": 225, "sites": 2, "early": true}),
            json!({"service": "web", "n": 225, "sites": 2, "early": true}),
        ]
    );
    first.run("SELECT * FROM answers", json!({})).failure(3);
    let wrong =
        json!({ "answers": { "columns": [{"name": "n", "type": "Int64"}], "rows": [{"n": "many"}] } });
    let failure = first.run("SELECT n FROM answers", wrong).failure(1);
    assert!(failure.contains("table answers"), "{failure}");
}
