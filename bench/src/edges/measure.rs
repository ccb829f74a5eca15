//! Runs the analyzer with the selected handler.

use super::code::Code;
use super::counter::Counter;
#[cfg(feature = "edges-cache")]
use super::list::List;
use crate::Failure;
use crate::arguments::{Arguments, Handler};
use crate::report::{joined, memory, seconds, timed};
use crate::stream::Stream;
use iptr_decoder::{DecodeOptions, decode};
#[cfg(feature = "edges-cache")]
use iptr_edge_analyzer::control_flow_handler::fuzz_bitmap::FuzzBitmapControlFlowHandler;
use iptr_edge_analyzer::{EdgeAnalyzer, HandleControlFlow};
use serde_json::{Value, json};
use std::convert::Infallible;

/// The size of the bitmap: AFL++'s `MAP_SIZE` (its `include/config.h`).
#[cfg(feature = "edges-cache")]
const BITMAP: usize = 1 << 16;

/// Decodes the whole stream with one analyzer for all runs. Its caches are warm after the first.
pub fn run(arguments: &Arguments) -> Result<Value, Failure> {
    let stream = Stream::open_cold(&arguments.bundle, arguments.bytes)?;
    let all = stream.bytes().len();
    let result = match arguments.handler {
        Handler::Count => {
            let (counter, runs) = measure(&stream, arguments, Counter::default())?;
            json!({ "blocks": counter.blocks, "seconds": runs })
        }
        #[cfg(feature = "edges-cache")]
        Handler::List => {
            let (list, runs) = measure(&stream, arguments, List::new(all))?;
            json!({ "blocks": list.count(), "seconds": runs })
        }
        #[cfg(feature = "edges-cache")]
        Handler::Bitmap => {
            let mut bitmap = vec![0u8; BITMAP];
            let handler = FuzzBitmapControlFlowHandler::new(&mut *bitmap, None);
            let (_, runs) = measure(&stream, arguments, handler)?;
            let set = bitmap.iter().filter(|&&count| count > 0).count();
            json!({ "set": set, "seconds": runs })
        }
        #[cfg(not(feature = "edges-cache"))]
        Handler::List | Handler::Bitmap => {
            return Err("built without the feature `edges-cache`".to_owned());
        }
    };
    Ok(joined([result, json!({ "bytes": all }), memory()]))
}

fn measure<H>(stream: &Stream, arguments: &Arguments, handler: H) -> Result<(H, Value), Failure>
where
    H: HandleControlFlow<Error = Infallible>,
{
    let mut analyzer = EdgeAnalyzer::new(handler, Code::new(&stream.image));
    let mut runs = Vec::new();
    for _ in 0..arguments.runs.max(1) {
        let (result, seconds) = timed(|| decode(stream.bytes(), DecodeOptions::default(), &mut analyzer));
        result.map_err(|error| format!("{error}: {error:?}"))?;
        runs.push(seconds);
    }
    Ok((analyzer.into_handler_and_reader().0, seconds(&runs)))
}
