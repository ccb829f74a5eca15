//! Measures our engines as the product runs them: history with times, then call forest.

use crate::Failure;
use crate::arguments::Arguments;
use crate::report::{joined, memory, seconds, timed};
use crate::stream::Stream;
use backtrail_debugger::session::SymbolFunctions;
use backtrail_decoder::{
    Config, DecodeCachePool, Decoded, Decoder, Engine, Forest, Functions, History, Image, Input, Instruction,
    Watch,
};
use backtrail_oracle::ENGINES;
use backtrail_pt::{Cofi, Pid};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The numbers of threads to measure.
const JOBS: &[usize] = &[1, 2];

/// Returns our engines with their numbers of threads.
pub fn engines() -> Value {
    let engines: Vec<String> = ENGINES.iter().map(|engine| engine.name().to_owned()).collect();
    json!({ "engines": engines, "jobs": JOBS })
}

/// A stream, and the engine to decode it.
pub struct DecodeJob<'a> {
    input: [Input; 1],
    images: &'a BTreeMap<Pid, Arc<Image>>,
    config: &'a Config,
    engine: &'static dyn Engine,
}

impl<'a> DecodeJob<'a> {
    /// Prepares to decode a stream.
    pub fn new(stream: &'a Stream, engine: &'static dyn Engine) -> Self {
        Self {
            input: [stream.input()],
            images: &stream.prepared.images,
            config: &stream.prepared.config,
            engine,
        }
    }

    /// Decodes flow, history and times by this many threads. Given functions, the call forest as
    /// well.
    pub fn decode(
        &self,
        jobs: usize,
        functions: Option<&SymbolFunctions>,
        knowledge: &DecodeCachePool,
    ) -> Result<Decoded, Failure> {
        let functions = functions.map(|functions| functions as &dyn Functions);
        let functions = |_| functions;
        let decoder = Decoder::new(self.config)
            .jobs(NonZeroUsize::new(jobs).ok_or("the number of threads must not be 0")?)
            .functions(&functions)
            .caches(knowledge);
        let decoder = match self.engine.name() {
            "native" => decoder,
            _ => decoder.engine(self.engine),
        };
        decoder
            .decode(&self.input, self.images)
            .map_err(|error| error.to_string())
    }
}

/// Returns the functions of the thread's process.
pub fn functions(stream: &Stream) -> SymbolFunctions {
    let symbols = stream.process().map(|process| Arc::clone(&process.symbols));
    SymbolFunctions::new(symbols.unwrap_or_default())
}

/// Builds the call forest of a history.
fn forest(stream: &Stream, history: &History) -> Result<Forest, Failure> {
    Forest::build(history, &functions(stream), &Watch::none()).map_err(|error| error.to_string())
}

/// Measures one engine on one stream.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let (stream, opening) = timed(|| Stream::open_cold(&arguments.bundle, arguments.bytes));
    let stream = stream?;
    let work = DecodeJob::new(&stream, arguments.engine);
    let (mut flows, mut forests, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    let mut of_first = None;
    // Decode caches are kept between runs.
    let (knowledge, of_both) = (DecodeCachePool::default(), DecodeCachePool::default());
    for _ in 0..arguments.runs.max(1) {
        let (decoded, seconds) = timed(|| work.decode(arguments.jobs, None, &knowledge));
        flows.push(seconds);
        let decoded = decoded?;
        let history = decoded.threads.first().ok_or("the stream decodes to no thread")?;
        let mut calls = None;
        if arguments.forest {
            let (forest, seconds) = timed(|| forest(&stream, history));
            forests.push(seconds);
            calls = Some(forest?);
        }
        // Later runs may reuse memory that the allocator kept, so the first one determines the
        // peak.
        of_first.get_or_insert_with(|| joined([memory(), summary(history, calls.as_ref())]));
        // Free this memory outside of the next measurement.
        drop((decoded, calls));
        if let Some(&seconds) = forests.last() {
            sums.push(match arguments.jobs {
                1 => flows.last().copied().unwrap_or_default() + seconds,
                // Several threads compute both at once.
                jobs => timed(|| work.decode(jobs, Some(&functions(&stream)), &of_both)).1,
            });
        }
    }
    let measured = json!({
        "engine": arguments.engine.name(),
        "jobs": arguments.jobs,
        "bytes": stream.bytes().len(),
        "open_seconds": opening.wall,
        "seconds": seconds(&flows),
        "forest_seconds": seconds(&forests),
        "both_seconds": seconds(&sums),
    });
    Ok(joined([measured, of_first.unwrap_or_default()]))
}

fn summary(history: &History, forest: Option<&Forest>) -> Value {
    json!({
        "instructions": history.len(),
        "branches": branches(history),
        "errors": history.errors(),
        "history_bytes": history.memory(),
        "forest_bytes": forest.map(Forest::memory),
        "calls": forest.map(Forest::len),
    })
}

/// Returns the number of near branches, taken or not, which an edge decoder reports.
fn branches(history: &History) -> u64 {
    let of_block = |id| {
        let near = |found: &Instruction| !matches!(found.cofi, Cofi::Sequential | Cofi::FarTransfer);
        history.block(id).filter(near).count() as u64
    };
    history.blocks().map(|(id, count)| count * of_block(id)).sum()
}
