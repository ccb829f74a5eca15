//! Times of commands that need recorded values: at random positions, and over the whole log.

use super::{Bench, Failure, milliseconds, opened};
use backtrail_debugger::Navigator;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Commands that show values of the position.
const AT_POSITION: &[&str] = &["info registers", "info locals"];

/// Searches from the end, after commands that prepare them. `tests/fixtures/workloads/values.c`
/// writes `configured` at its start alone, and `finished` after each round.
const SEARCHES: &[(&str, &[&str], &str)] = &[
    ("`last`, whole log", &[], "last configured"),
    (
        "`reverse-continue` to a watchpoint, whole log",
        &["watch configured"],
        "reverse-continue",
    ),
    ("`last`, nearest million", &[], "last finished"),
    (
        "`reverse-continue` to a watchpoint, nearest million",
        &["watch finished"],
        "reverse-continue",
    ),
];

/// The total time of a command at positions in milliseconds. Few of them make an index of a part of
/// the log, which takes seconds.
const TIME_LIMIT: f64 = 120_000.0;

/// The number of warm runs of a search.
const WARM_RUNS: usize = 5;

/// Measures a bundle with values.
pub fn run(bundle: &Path, positions: usize) -> Result<Value, Failure> {
    let mut searches = Vec::new();
    for &(name, prepare, command) in SEARCHES {
        searches.push(search(bundle, name, prepare, command)?);
    }
    let mut navigator = opened(bundle)?;
    let mut bench = Bench::new(&mut navigator)?;
    let end = bench.len;
    bench.time(&format!("goto #{end}")).1?;
    bench.time("last configured").1?;
    for command in AT_POSITION {
        bench.at_positions_within(command, command, positions, TIME_LIMIT)?;
    }
    Ok(json!({ "instructions": end, "searches": searches, "verbs": bench.verbs }))
}

/// Measures a search in a new session, and again in the same one.
fn search(bundle: &Path, name: &str, prepare: &[&str], command: &str) -> Result<Value, Failure> {
    let begin = Instant::now();
    let mut navigator: Navigator = opened(bundle)?;
    let open = milliseconds(begin);
    let mut bench = Bench::new(&mut navigator)?;
    let end = bench.len;
    let mut times = Vec::new();
    let mut distance = 0;
    for _ in 0..=WARM_RUNS {
        bench.time(&format!("goto #{end}")).1?;
        bench.time("delete").1?;
        for command in prepare {
            bench.time(command).1?;
        }
        let (took, answer) = bench.time(command);
        answer?;
        times.push(took);
        distance = end - bench.navigator.index();
    }
    let cold = times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok(json!({
        "command": name,
        "distance": distance,
        "open_ms": open,
        "cold_ms": cold,
        "warm_ms": times.last(),
    }))
}
