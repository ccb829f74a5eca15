//! Measures searches in a history, as for reverse breakpoints and hit counts.

use crate::Failure;
use crate::arguments::Arguments;
use crate::ours::{self, DecodeJob};
use crate::report::timed;
use crate::stream::Stream;
use backtrail_decoder::{DecodeCachePool, Functions, History, PcSet};
use backtrail_pt::Avma;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The number of searches, from positions all over the history.
const SEARCHES: u64 = 2000;

/// Decodes the stream, and searches for function entries.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open(&arguments.bundle, arguments.bytes)?;
    let decoded = DecodeJob::new(&stream, arguments.engine).decode(
        arguments.jobs,
        None,
        &DecodeCachePool::default(),
    )?;
    let history = decoded.threads.first().ok_or("the stream decodes to no thread")?;
    let calls = entries(&stream, history);
    let all: Vec<Avma> = calls.keys().copied().collect();
    let often = calls.iter().max_by_key(|&(_, &count)| count).map(|(&pc, _)| pc);
    let often = often.ok_or("no function is entered")?;
    let mut once = calls.iter().filter(|&(_, &count)| count == 1).map(|(&pc, _)| pc);
    let once = once.next().ok_or("no function is entered once")?;

    let without = history.memory();
    let (_, making) = timed(|| history.next_at(0, &often.into()));
    let measure = |pc: Avma| {
        let set = PcSet::from(pc);
        json!({
            "hits": history.count_at(0..history.len(), &set),
            "next": microseconds(|| history.next_at(0, &set)),
            "prev": microseconds(|| history.prev_at(history.len(), &set)),
            "count": microseconds(|| history.count_at(0..history.len(), &set)),
        })
    };
    Ok(json!({
        "bytes": stream.bytes().len(),
        "instructions": history.len(),
        "history_bytes": without,
        "index_bytes": history.memory() - without,
        "first_seconds": making.wall,
        "never": measure(between(history, often)),
        "once": measure(once),
        "often": measure(often),
        "anywhere": anywhere(history, &all),
    }))
}

/// Returns the number of entries at each function's first instruction.
fn entries(stream: &Stream, history: &History) -> BTreeMap<Avma, u64> {
    let functions = ours::functions(stream);
    let mut calls = BTreeMap::new();
    for (id, executed) in history.blocks() {
        for found in history.block(id) {
            if functions
                .range_of(found.pc)
                .is_some_and(|range| range.start == found.pc)
            {
                *calls.entry(found.pc).or_insert(0) += executed;
            }
        }
    }
    calls.retain(|_, count| *count > 0);
    calls
}

/// Returns an address near another one at which no instruction began.
fn between(history: &History, near: Avma) -> Avma {
    let executed = history.executed_pcs();
    let mut others = (1..).map(|offset| near + offset);
    others
        .find(|pc| executed.binary_search(pc).is_err())
        .unwrap_or_default()
}

/// Searches backward for each of the functions, from positions all over the history. Returns the
/// median, the 99th percentile, and the maximum, in microseconds.
fn anywhere(history: &History, functions: &[Avma]) -> Value {
    let turns = functions.iter().cycle();
    let mut times: Vec<f64> = (1..=SEARCHES)
        .zip(turns)
        .map(|(number, &function)| {
            let from = (u128::from(history.len()) * u128::from(number) / u128::from(SEARCHES)) as u64;
            timed(|| history.prev_at(from, &function.into())).1.wall * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |hundredths: usize| times.get((times.len() * hundredths / 100).min(times.len() - 1));
    json!({ "functions": functions.len(), "p50": at(50), "p99": at(99), "longest": at(100) })
}

/// Returns the median of some runs.
fn microseconds<T>(work: impl Fn() -> T) -> f64 {
    let mut times: Vec<f64> = (0..9)
        .map(|_| timed(|| std::hint::black_box(work())).1.wall * 1e6)
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}
