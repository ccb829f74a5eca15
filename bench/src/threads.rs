//! What several threads make of one stream, beside one thread; beside as many decodes at once that have nothing to do with
//! each other; and beside as many threads that add up in registers, which want nothing of the machine but its processors.

use crate::Failure;
use crate::arguments::Arguments;
use crate::ours::{self, Work};
use crate::report::{Seconds, timed};
use crate::stream::Stream;
use backtrail_decoder::DecodeCachePool;
use serde_json::{Value, json};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Decodes a stream to a history with times and a forest: first, with nothing known and no memory in use, by
/// [`Arguments::jobs`] threads; then in turns, until [`Arguments::seconds`] are over, by one thread, by all together, and by
/// each on its own, and adds up by one, and by each. Seconds.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
    let functions = ours::functions(&stream);
    let work = Work::new(&stream, arguments.engine);
    let decode = |jobs: usize, knowledge: &DecodeCachePool| -> Result<Seconds, Failure> {
        let (decoded, seconds) = timed(|| work.decode(jobs, Some(&functions), knowledge));
        decoded.map(|_| seconds)
    };
    let of_all = DecodeCachePool::default();
    let of_each: Vec<DecodeCachePool> = (0..arguments.jobs).map(|_| DecodeCachePool::default()).collect();
    let first = of_each.first().ok_or("no thread decodes nothing")?;
    let apart = || -> Result<Seconds, Failure> {
        let (ended, seconds) = timed(|| at_once(&of_each, |knowledge| decode(1, knowledge)));
        for one in ended {
            one.ok_or("a decode panicked")??;
        }
        Ok(seconds)
    };
    let sums = |threads| {
        timed(|| at_once(of_each.get(..threads).unwrap_or(&of_each), |_| add_up()))
            .1
            .wall
    };
    let cold = decode(arguments.jobs, &of_all)?;
    let mut turns = Vec::new();
    let limit = Duration::from_secs_f64(arguments.seconds);
    if !limit.is_zero() {
        // What each learns is learnt before the turns.
        apart()?;
    }
    let start = Instant::now();
    while start.elapsed() < limit {
        turns.push(json!({
            "one": decode(1, first)?.wall,
            "together": decode(arguments.jobs, &of_all)?.wall,
            "apart": apart()?.wall,
            "sum": sums(1),
            "sums": sums(arguments.jobs),
        }));
    }
    Ok(json!({
        "engine": arguments.engine.to_string(),
        "jobs": arguments.jobs,
        "bytes": stream.bytes().len(),
        "cold": cold.wall,
        "turns": turns,
    }))
}

/// Does it for all of them, by a thread each; `None` where it panicked.
fn at_once<I: Sync, O: Send>(of: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<Option<O>> {
    let work = &work;
    thread::scope(|scope| {
        let started: Vec<_> = of.iter().map(|one| scope.spawn(move || work(one))).collect();
        started.into_iter().map(|one| one.join().ok()).collect()
    })
}

/// Adds in registers for some 50 ms, several additions at a time, without a load or a store.
fn add_up() -> u64 {
    let mut sums: [u64; 4] = black_box([1, 2, 3, 4]);
    for turn in 0..50_000_000 {
        let [one, two, three, four] = sums;
        let one = one.wrapping_add(two ^ turn);
        let two = two.wrapping_add(three ^ turn);
        let three = three.wrapping_add(four ^ turn);
        sums = [one, two, three, four.wrapping_add(one ^ turn)];
    }
    black_box(sums).into_iter().fold(0, u64::wrapping_add)
}
