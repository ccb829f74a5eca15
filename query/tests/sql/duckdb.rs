//! The same queries by DuckDB, over the same files.

use crate::store::Store;
use std::process::Command;

/// Queries with the same words in both dialects. `{samples}` and so on are the tables.
const QUERIES: &[&str] = &[
    "SELECT service, host, count(*), sum(weight), min(weight), max(weight) FROM {samples} GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT hour, stack, sum(weight) FROM {samples} WHERE service = 'web' GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT count(*) FROM {samples} WHERE time >= TIMESTAMP '2026-11-29 09:10:00' AND time < TIMESTAMP '2026-11-29 10:20:00'",
    "SELECT count(DISTINCT host), count(DISTINCT segment), avg(weight) FROM {samples}",
    "SELECT s.service, len(k.frames), sum(s.weight) FROM {samples} s JOIN {stacks} k
     ON s.segment = k.segment AND s.stack = k.stack GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT segment, sum(weight) AS w FROM {samples} GROUP BY 1 HAVING sum(weight) > 10 ORDER BY w DESC LIMIT 2",
    "SELECT service, weight, row_number() OVER (PARTITION BY service ORDER BY weight DESC, time, segment, stack)
     FROM {samples} ORDER BY 1, 3 LIMIT 20",
    "SELECT frame_kind, module, \"offset\", lines[1].function FROM {frames} ORDER BY segment, frame",
    "SELECT service, quantile_cont(weight, 0.99), quantile_cont(weight, 0.5) FROM {samples} GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM {contexts} WHERE labels['endpoint'] = '/search'",
    "WITH a AS (SELECT host, sum(weight) AS w FROM {samples} WHERE hour = 9 GROUP BY 1),
     b AS (SELECT host, sum(weight) AS w FROM {samples} WHERE hour = 10 GROUP BY 1)
     SELECT a.host, b.w - a.w FROM a JOIN b USING (host) ORDER BY 1",
];

/// Reads the queries from standard input and writes their rows, with numbers in one notation.
const SCRIPT: &str = r#"
import duckdb, json, sys
connection = duckdb.connect()
connection.execute("SET TimeZone='UTC'")
for sql in json.load(sys.stdin):
    for row in connection.execute(sql).fetchall():
        print(",".join(repr(round(float(v), 6)) if isinstance(v, (int, float)) or type(v).__name__ == "Decimal" else str(v) for v in row))
    print()
"#;

/// Returns rows of comma-separated values with numbers as Python writes floating-point numbers.
fn normalized(csv: &str) -> String {
    // The ids of segments may be digits alone.
    let value = |value: &str| match value.parse::<f64>() {
        Ok(number) if value.len() < 32 => format!("{:?}", (number * 1e6).round() / 1e6),
        _ => value.to_owned(),
    };
    let line = |line: &str| line.split(',').map(value).collect::<Vec<_>>().join(",") + "\n";
    csv.lines().skip(1).map(line).collect()
}

#[test]
#[ignore = "needs DuckDB: cargo xtask test-query"]
fn answers_equal_those_of_duckdb() {
    let store = Store::sample(5000);
    let replaced = |sql: &str, table: fn(&str, &str) -> String| {
        let folder = store.path().display().to_string();
        ["samples", "stacks", "frames", "contexts"]
            .iter()
            .fold(sql.to_owned(), |sql, name| {
                sql.replace(&format!("{{{name}}}"), &table(&folder, name))
            })
    };
    let duck: Vec<String> = QUERIES
        .iter()
        .map(|sql| {
            replaced(sql, |folder, name| {
                format!(
                    "(SELECT * REPLACE (hour::INTEGER AS hour)
                      FROM read_parquet('{folder}/kind={name}/*/*/*.parquet', hive_partitioning = true))"
                )
            })
        })
        .collect();
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &duck).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "DuckDB failed: run `cargo xtask test-query`"
    );
    let expected = String::from_utf8(output.stdout).unwrap();
    let expected: Vec<&str> = expected.split("\n\n").collect();
    for (sql, expected) in QUERIES.iter().zip(expected) {
        let own = replaced(sql, |_, name| name.to_owned())
            .replace("quantile_cont(weight, 0.99)", "p99(weight)")
            .replace("quantile_cont(weight, 0.5)", "p50(weight)")
            .replace("len(", "array_length(")
            .replace("lines[1].function", "lines[1]['function']");
        let answer = store.run(&own, serde_json::json!({"format": "csv"}));
        assert!(answer.0.status.success(), "{sql}: {}", answer.error());
        let found = normalized(&answer.text());
        // Python writes a missing value as None.
        let expected = expected.trim().replace("None", "");
        assert_eq!(found.trim(), expected, "{sql}");
        assert!(!expected.is_empty(), "{sql}");
    }
}
