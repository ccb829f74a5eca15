//! The files of the store, read by DuckDB, chdb and pyarrow.

use crate::fixture::{Fixture, all, run};
use crate::model::{HOUR, Plain};
use backtrail_profile::{Frame, Profile};
use backtrail_store::{Cancel, CompactionOptions};
use object_store::local::LocalFileSystem;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

/// Prints the same three tables by each reader. The argument is the directory of the store.
const SCRIPT: &str = r#"
import sys
root = sys.argv[1]
path = lambda table: f"{root}/kind={table}/*/*/*.parquet"
TABLES = [
    "SELECT service, count(*), sum(weight) FROM {samples} GROUP BY 1 ORDER BY 1",
    """SELECT f.frame_kind AS kind, coalesce(f.module, '') AS module, sum(s.weight)
       FROM {samples} s JOIN {stacks} k ON s.segment = k.segment AND s.stack = k.stack
       JOIN {frames} f ON f.segment = k.segment AND f.frame = k.frames[1]
       WHERE {length}(k.frames) > 0 GROUP BY 1, 2 ORDER BY 1, 2""",
    """SELECT {route} AS route, sum(s.weight) FROM {samples} s
       JOIN {contexts} c ON s.segment = c.segment AND s.context = c.context GROUP BY 1 ORDER BY 1""",
]
def sql(text, table, length, route):
    names = {name: table(name) for name in ("samples", "stacks", "frames", "contexts")}
    return text.format(length=length, route=route, **names)
def show(rows):
    print("\n".join("\t".join(str(value) for value in row) for row in rows))
    print()

import duckdb
for text in TABLES:
    table = lambda name: f"read_parquet('{path(name)}', hive_partitioning = true)"
    show(duckdb.sql(sql(text, table, "len", "coalesce(c.labels['route'], '')")).fetchall())

import chdb
for text in TABLES:
    table = lambda name: f"file('{path(name)}', Parquet)"
    print(chdb.query(sql(text, table, "length", "c.labels['route']"), "TSV").bytes().decode())

import glob
import pyarrow.parquet as parquet
read = lambda name: [row for file in sorted(glob.glob(path(name)))
                     for row in parquet.ParquetFile(file).read().to_pylist()]
stacks = {(row["segment"], row["stack"]): row["frames"] for row in read("stacks")}
frames = {(row["segment"], row["frame"]): row for row in read("frames")}
contexts = {(row["segment"], row["context"]): dict(row["labels"]) for row in read("contexts")}
services, modules, routes = {}, {}, {}
for row in read("samples"):
    count, weight = services.get(row["service"], (0, 0))
    services[row["service"]] = (count + 1, weight + row["weight"])
    on_stack = stacks[row["segment"], row["stack"]]
    if on_stack:
        frame = frames[row["segment"], on_stack[0]]
        key = (frame["frame_kind"], frame["module"] or "")
        modules[key] = modules.get(key, 0) + row["weight"]
    route = contexts[row["segment"], row["context"]].get("route", "")
    routes[route] = routes.get(route, 0) + row["weight"]
show((key, *sums) for key, sums in sorted(services.items()))
show((*key, weight) for key, weight in sorted(modules.items()))
show(sorted(routes.items()))
"#;

/// Returns samples of several services, kinds of frames and labels.
fn many() -> Vec<Plain> {
    let sample = |number: u32| Plain {
        service: (number % 3) as u8,
        host: (number % 2) as u8,
        event: 0,
        thread: (!number.is_multiple_of(5)).then_some((number % 5) as u8),
        label: (!number.is_multiple_of(4)).then_some((number % 4) as u8),
        second: number * 7 % 7200,
        weight: i64::from(number % 11),
        frames: (0..number % 6)
            .map(|depth| (number * 5 + depth * 3) as u8 % 24)
            .collect(),
    };
    (0..600).map(sample).collect()
}

/// Adds weights by keys, and returns the lines of a table.
fn table(rows: impl Iterator<Item = (String, i64)>) -> String {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for (key, weight) in rows {
        *sums.entry(key).or_default() += weight;
    }
    let lines: Vec<_> = sums.iter().map(|(key, sum)| format!("{key}\t{sum}")).collect();
    lines.join("\n")
}

/// Returns the kind and the module of a sample's innermost frame.
fn innermost(profile: &Profile, sample: &backtrail_profile::Sample) -> Option<String> {
    let frame = profile.stacks.frames(sample.stack).next()?;
    Some(match *profile.frames.get(frame)? {
        Frame::Code { module, .. } => {
            let module = profile.modules.get(module)?;
            format!("code\t{}", profile.text(module.path))
        }
        Frame::Address(_) => "address\t".into(),
        Frame::Function { .. } => "function\t".into(),
        _ => "lost\t".into(),
    })
}

#[test]
#[ignore = "needs DuckDB, chdb and pyarrow: cargo xtask test-query"]
fn other_readers_return_the_sums_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let objects = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let fixture = Fixture::over(Arc::new(objects));
    let samples = many();
    let merged = run({
        let (fixture, samples) = (fixture, samples.clone());
        async move {
            for part in samples.chunks(200) {
                fixture.write(part).await;
            }
            // Files of ingestion and of compaction. Readers see no files that were replaced.
            let store = fixture.store();
            let options = CompactionOptions {
                min_segments: 2,
                ..CompactionOptions::default()
            };
            let compacted = store.compact(HOUR, options, &Cancel::default()).await;
            assert!(compacted.unwrap().is_some());
            let later = backtrail_profile::UnixNanos(u64::MAX / 2);
            let grace = backtrail_store::Store::MIN_GRACE;
            store.collect_garbage(later, grace).await.unwrap();
            store.merge(&all(), &[]).await.unwrap().0
        }
    });
    let services = (0..3u8).map(|service| {
        let of = samples.iter().filter(|sample| sample.service == service);
        let weight: i64 = of.clone().map(|sample| sample.weight).sum();
        format!("service-{service}\t{}\t{weight}", of.count())
    });
    let modules = merged.samples.iter();
    let modules = modules.filter_map(|sample| Some((innermost(&merged, sample)?, sample.weight)));
    let expected = [
        services.collect::<Vec<_>>().join("\n"),
        table(modules),
        table(samples.iter().map(|sample| (sample.route(), sample.weight))),
    ];
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(folder.path())
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "run `cargo xtask test-query`: {problem}");
    let text = String::from_utf8(output.stdout).unwrap();
    let tables: Vec<&str> = text.split("\n\n").filter(|table| !table.is_empty()).collect();
    assert_eq!(tables.len(), 9, "{text}");
    for (reader, tables) in ["DuckDB", "chdb", "pyarrow"].iter().zip(tables.chunks(3)) {
        for (found, expected) in tables.iter().zip(&expected) {
            assert_eq!(found.trim_matches('\n'), expected, "{reader}");
        }
    }
}
