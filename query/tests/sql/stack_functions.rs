//! The functions of stacks, and percentiles.

use crate::store::{BUILD_ID, Frame, HOUR, STACKS, Sample, Store, frames};
use serde_json::{Value, json};

/// Returns the first value of the first row.
fn value(rows: &[Value]) -> Value {
    rows[0].as_object().unwrap().values().next().unwrap().clone()
}

#[test]
fn names_on_a_stack_are_the_innermost_first() {
    let store = Store::sample(4);
    let rows =
        store.rows("SELECT stack, frames_of(segment, stack) AS f FROM stacks WHERE hour = 9 ORDER BY 1");
    let names: Vec<_> = rows.iter().map(|row| row["f"].clone()).collect();
    assert_eq!(
        names,
        [
            json!(["json::skip_space", "json::parse", "main"]),
            json!(["libc.so.6+0x1f0", "json::skip_space", "json::parse", "main"]),
            json!(["http::write", "main"]),
            json!(["main"]),
        ]
    );
}

#[test]
fn segment_may_be_left_out_beside_the_stack() {
    let store = Store::sample(100);
    for (long, short) in [
        (
            "SELECT count(*) FROM samples WHERE matches(segment, stack, '^json::')",
            "SELECT count(*) FROM samples WHERE matches(stack, '^json::')",
        ),
        (
            "SELECT flamegraph(s.segment, s.stack, s.weight) FROM samples s",
            "SELECT flamegraph(s.stack, s.weight) FROM samples s",
        ),
        (
            "SELECT frames_of(segment, stack)[1], sum(weight) FROM samples GROUP BY 1 ORDER BY 1",
            "SELECT frames_of(stack)[1], sum(weight) FROM samples GROUP BY 1 ORDER BY 1",
        ),
    ] {
        let [long, short] = [long, short].map(|sql| store.run(sql, json!({"format": "csv"})).text());
        let rows = |text: &str| text.lines().skip(1).map(String::from).collect::<Vec<_>>();
        assert_eq!(rows(&long), rows(&short));
        assert!(rows(&long)[0].len() > 1);
    }
}

#[test]
fn pattern_matches_functions_and_modules() {
    let store = Store::sample(400);
    let count = |pattern: &str| {
        let sql =
            format!("SELECT count(*) FROM samples WHERE hour = 9 AND matches(segment, stack, '{pattern}')");
        value(&store.rows(&sql))
    };
    assert_eq!(count("json::parse"), 200);
    assert_eq!(count("^http::"), 100);
    assert_eq!(count("libc"), 100);
    assert_eq!(count("/usr/bin/server"), 400);
    assert_eq!(count("(?i)JSON::PARSE|http"), 300);
    assert_eq!(count("nothing"), 0);
}

#[test]
fn names_come_from_the_symbols_of_the_request() {
    let store = Store::sample(4);
    let symbols = json!([{"build_id": BUILD_ID, "offset": 0x1f0, "functions": ["copy", "memcpy"]}]);
    let sql = "SELECT frames_of(segment, stack) AS f FROM stacks WHERE stack = 1 LIMIT 1";
    let rows = store.run(sql, json!({"symbols": symbols})).rows();
    let names = json!(["copy", "memcpy", "json::skip_space", "json::parse", "main"]);
    assert_eq!(rows, [json!({"f": names})]);
    let sql = "SELECT count(*) FROM stacks WHERE matches(segment, stack, '^memcpy$')";
    assert_eq!(value(&store.run(sql, json!({"symbols": symbols})).rows()), 3);
}

#[test]
fn flame_graph_has_the_weights_of_all_segments() {
    let store = Store::sample(1000);
    let total = value(&store.rows("SELECT sum(weight) FROM samples"));
    let tree = value(&store.rows("SELECT flamegraph(segment, stack, weight) FROM samples"));
    let tree: Value = serde_json::from_str(tree.as_str().unwrap()).unwrap();
    assert_eq!((&tree["name"], &tree["value"]), (&json!("all"), &total));
    let main = &tree["children"][0];
    assert_eq!((&main["name"], &main["value"]), (&json!("main"), &total));
    let folded = value(&store.rows("SELECT folded(segment, stack, weight) FROM samples"));
    let lines: Vec<(&str, i64)> = folded
        .as_str()
        .unwrap()
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(stack, weight)| (stack, weight.parse().unwrap()))
        .collect();
    assert_eq!(
        lines.iter().map(|(_, weight)| weight).sum::<i64>(),
        total.as_i64().unwrap()
    );
    for (stack, name) in [
        (1, "main;json::parse;json::skip_space;libc.so.6+0x1f0"),
        (3, "main"),
    ] {
        let sql = format!("SELECT sum(weight) FROM samples WHERE stack = {stack}");
        let found = lines.iter().find(|(line, _)| *line == name).unwrap();
        assert_eq!(json!(found.1), value(&store.rows(&sql)), "{name}");
    }
}

#[test]
fn flame_graphs_of_groups_are_separate() {
    let store = Store::sample(1000);
    let rows = store.rows(
        "SELECT service, sum(weight) AS w, flamegraph(segment, stack, weight) AS tree
         FROM samples GROUP BY 1 ORDER BY 1",
    );
    assert_eq!(rows.len(), 2);
    for row in rows {
        let tree: Value = serde_json::from_str(row["tree"].as_str().unwrap()).unwrap();
        assert_eq!(tree["value"], row["w"]);
    }
}

#[test]
fn percentiles_are_exact_or_called_approximate() {
    let mut store = Store::new();
    let samples: Vec<Sample> = (1..=101)
        .map(|weight| Sample {
            second: 0,
            service: "web".into(),
            host: "a".into(),
            weight,
            stack: 0,
        })
        .collect();
    store.add(HOUR, &samples, STACKS, &frames());
    let sql = "SELECT p50(weight) AS a, p90(weight) AS b, p95(weight) AS c, p99(weight) AS d FROM samples";
    assert_eq!(
        store.rows(sql),
        [json!({"a": 51.0, "b": 91.0, "c": 96.0, "d": 100.0})]
    );
    let near = value(&store.rows("SELECT approx_p99(weight) FROM samples"))
        .as_f64()
        .unwrap();
    assert!((99.0..=101.0).contains(&near), "{near}");
}

#[test]
fn wrong_calls_are_reported_as_wrong_queries() {
    let store = Store::sample(10);
    for (sql, word) in [
        ("SELECT matches(segment, stack, '(') FROM samples", "regex"),
        ("SELECT matches(segment, stack, host) FROM samples", "constant"),
        (
            "SELECT matches(stack, 'a') FROM (SELECT stack FROM samples) s",
            "segment",
        ),
        ("SELECT matches(1) FROM samples", "matches"),
        ("SELECT p99(weight) OVER () FROM samples", "OVER"),
        ("SELECT flamegraph(segment, stack, host) FROM samples", ""),
    ] {
        let failure = store.run(sql, json!({})).failure(3);
        assert!(failure.contains(word), "{sql}: {failure}");
    }
}

#[test]
fn frames_of_a_deep_stack_are_complete() {
    let mut store = Store::new();
    let deep: Vec<u32> = (0..30_000).map(|_| 0).collect();
    let sample = Sample {
        second: 0,
        service: "web".into(),
        host: "a".into(),
        weight: 5,
        stack: 0,
    };
    store.add(HOUR, &[sample], &[&deep], &[Frame::Lines(&["f"])]);
    let rows = store.rows(
        "SELECT array_length(frames_of(stack)) AS n, flamegraph(stack, weight) AS t FROM samples GROUP BY 1",
    );
    assert_eq!(rows[0]["n"], 30_000);
    assert_eq!(rows[0]["t"].as_str().unwrap().matches("\"f\"").count(), 30_000);
}
