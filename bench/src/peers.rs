//! Measures libipt's two decoders.

use crate::Failure;
use crate::arguments::Arguments;
use crate::code;
use crate::libipt::{Cache, Count};
use crate::report::{joined, memory, seconds, timed};
use crate::stream::{Stream, last_psb};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Returns how far `pt_insn` gets in the given time: the last PSB before that.
pub fn prefix(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open(&arguments.bundle, None)?;
    let cache = Cache::new(&code::ranges(&stream.image))?;
    let until = Duration::try_from_secs_f64(arguments.seconds).map_err(|error| error.to_string())?;
    let until = Instant::now() + until;
    let count = cache.insn(stream.bytes(), &stream.prepared.config, Some(until))?;
    let all = stream.bytes().len() as u64;
    let bytes = if count.offset >= all {
        all
    } else {
        last_psb(stream.bytes(), count.offset).ok_or("the time is too short to reach a second PSB")?
    };
    Ok(json!({ "bytes": bytes, "of": all }))
}

/// Measures the instruction flow decoder.
pub fn insn(arguments: &Arguments) -> Result<Value, Failure> {
    measure(arguments, |cache, stream| {
        cache.insn(stream.bytes(), &stream.prepared.config, None)
    })
}

/// Measures the block decoder.
pub fn blk(arguments: &Arguments) -> Result<Value, Failure> {
    measure(arguments, |cache, stream| {
        cache.blk(stream.bytes(), &stream.prepared.config)
    })
}

fn measure(
    arguments: &Arguments,
    decode: impl Fn(&Cache, &Stream) -> Result<Count, Failure>,
) -> Result<Value, Failure> {
    let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
    let cache = Cache::new(&code::ranges(&stream.image))?;
    let mut runs = Vec::new();
    let mut count = Count::default();
    for _ in 0..arguments.runs.max(1) {
        let (result, seconds) = timed(|| decode(&cache, &stream));
        count = result?;
        runs.push(seconds);
    }
    let counted = json!({
        "bytes": stream.bytes().len(),
        "instructions": count.instructions,
        "blocks": count.blocks,
        "errors": count.errors,
        "seconds": seconds(&runs),
    });
    Ok(joined([counted, memory()]))
}
