//! Runs the analyzer.

use super::code::Code;
use crate::Failure;
use crate::arguments::Arguments;
use crate::report::{joined, memory, seconds, timed};
use crate::stream::Stream;
use iptr_decoder::{DecodeOptions, decode};
use iptr_edge_analyzer::EdgeAnalyzer;
use iptr_edge_analyzer::control_flow_handler::fuzz_bitmap::FuzzBitmapControlFlowHandler;
use serde_json::{Value, json};

/// The size of the bitmap: AFL++'s `MAP_SIZE` (its `include/config.h`).
const BITMAP: usize = 1 << 16;

/// Decodes the whole stream with one analyzer for all runs. Its caches are warm after the first.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
    let mut bitmap = vec![0u8; BITMAP];
    let handler = FuzzBitmapControlFlowHandler::new(&mut *bitmap, None);
    let mut analyzer = EdgeAnalyzer::new(handler, Code::new(&stream.image));
    let mut runs = Vec::new();
    for _ in 0..arguments.runs.max(1) {
        let (result, seconds) = timed(|| decode(stream.bytes(), DecodeOptions::default(), &mut analyzer));
        result.map_err(|error| format!("{error}: {error:?}"))?;
        runs.push(seconds);
    }
    drop(analyzer);
    let set = bitmap.iter().filter(|&&count| count > 0).count();
    let result = json!({ "set": set, "bytes": stream.bytes().len(), "seconds": seconds(&runs) });
    Ok(joined([result, memory()]))
}
