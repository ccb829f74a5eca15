//! Compares several threads on one stream with one thread.

use crate::Failure;
use crate::arguments::Arguments;
use crate::ours::{self, DecodeJob};
use crate::report::{Seconds, timed};
use crate::stream::Stream;
use backtrail_decoder::DecodeCachePool;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Decodes a stream to a history with times and a forest.
///
/// The first decode uses [`Arguments::jobs`] threads, with empty caches and memory. Further rounds
/// run until [`Arguments::seconds`] are over. Each round decodes by one thread, and by all threads
/// together. Results are in seconds.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
    let functions = ours::functions(&stream);
    let work = DecodeJob::new(&stream, arguments.engine);
    let decode = |jobs: usize, knowledge: &DecodeCachePool| -> Result<Seconds, Failure> {
        let (decoded, seconds) = timed(|| work.decode(jobs, Some(&functions), knowledge));
        decoded.map(|_| seconds)
    };
    let of_all = DecodeCachePool::default();
    let of_one = DecodeCachePool::default();
    let cold = decode(arguments.jobs, &of_all)?;
    let mut turns = Vec::new();
    let limit = Duration::from_secs_f64(arguments.seconds);
    if !limit.is_zero() {
        // Fill the caches before the rounds.
        decode(1, &of_one)?;
    }
    let start = Instant::now();
    while start.elapsed() < limit {
        turns.push(json!({
            "one": decode(1, &of_one)?.wall,
            "together": decode(arguments.jobs, &of_all)?.wall,
        }));
    }
    Ok(json!({
        "engine": arguments.engine.name(),
        "jobs": arguments.jobs,
        "bytes": stream.bytes().len(),
        "cold": cold.wall,
        "turns": turns,
    }))
}
