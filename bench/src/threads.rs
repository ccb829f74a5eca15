//! What several threads make of one stream, beside one thread, and beside as many decodes at once that have nothing to do with
//! each other: more than that the machine does not give.

use crate::Failure;
use crate::arguments::Arguments;
use crate::ours::{self, Work};
use crate::report::{Seconds, timed};
use crate::stream::Stream;
use backtrail_decoder::Knowledge;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// Decodes a stream to a history with times and a forest: first, with nothing known and no memory in use, by
/// [`Arguments::jobs`] threads; then in turns, until [`Arguments::seconds`] are over, by one thread, by all together, and by
/// each on its own. Seconds.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
    let functions = ours::functions(&stream);
    let work = Work::new(&stream, arguments.engine);
    let decode = |jobs: usize, knowledge: &Knowledge| -> Result<Seconds, Failure> {
        let (decoded, seconds) = timed(|| work.decode(jobs, Some(&functions), knowledge));
        decoded.map(|_| seconds)
    };
    let of_all = Knowledge::default();
    let of_each: Vec<Knowledge> = (0..arguments.jobs).map(|_| Knowledge::default()).collect();
    let first = of_each.first().ok_or("no thread decodes nothing")?;
    let apart = || -> Result<Seconds, Failure> {
        let (ended, seconds) = timed(|| {
            thread::scope(|scope| {
                let decode = &decode;
                let start = |knowledge| scope.spawn(move || decode(1, knowledge));
                let started: Vec<_> = of_each.iter().map(start).collect();
                started.into_iter().map(|one| one.join()).collect::<Vec<_>>()
            })
        });
        for one in ended {
            one.map_err(|_| "a decode panicked")??;
        }
        Ok(seconds)
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
