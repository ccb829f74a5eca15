//! Compares several threads on one stream with one thread. For comparison, the same number of
//! independent decodes, and of threads that only add numbers in registers, are measured too.

use crate::Failure;
use crate::arguments::Arguments;
use crate::ours::{self, DecodeJob};
use crate::report::{Seconds, timed};
use crate::stream::Stream;
use backtrail_decoder::DecodeCachePool;
use serde_json::{Value, json};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Decodes a stream to a history with times and a forest.
///
/// The first decode uses [`Arguments::jobs`] threads, with empty caches and memory. Further rounds
/// run until [`Arguments::seconds`] are over. Each round decodes by one thread, by all threads
/// together, and by each thread separately. It also adds numbers by one thread, and by each.
/// Results are in seconds.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
    let functions = ours::functions(&stream);
    let work = DecodeJob::new(&stream, arguments.engine);
    let decode = |jobs: usize, knowledge: &DecodeCachePool| -> Result<Seconds, Failure> {
        let (decoded, seconds) = timed(|| work.decode(jobs, Some(&functions), knowledge));
        decoded.map(|_| seconds)
    };
    let of_all = DecodeCachePool::default();
    let of_each: Vec<DecodeCachePool> = (0..arguments.jobs).map(|_| DecodeCachePool::default()).collect();
    let first = of_each.first().ok_or("the number of threads must not be 0")?;
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
        // Fill the caches before the rounds.
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

/// Runs `work` on all items, one thread each. Returns `None` for a thread that panicked.
fn at_once<I: Sync, O: Send>(of: &[I], work: impl Fn(&I) -> O + Sync) -> Vec<Option<O>> {
    let work = &work;
    thread::scope(|scope| {
        let started: Vec<_> = of.iter().map(|one| scope.spawn(move || work(one))).collect();
        started.into_iter().map(|one| one.join().ok()).collect()
    })
}

/// Adds numbers in registers for about 50 ms: several additions at a time, without loads or stores.
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
