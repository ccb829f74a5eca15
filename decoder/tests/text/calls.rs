//! The call forest of a trace as text.

use crate::address::Labels;
use backtrail_decoder::{Config, Decoder, Engine, Entered, Forest, Image, Input, Left, Watch};
use backtrail_pt::Tid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns a line per call, indented by its depth: function, instruction numbers, entry, exit.
pub fn calls(
    engine: &dyn Engine,
    trace: &[u8],
    image: &Image,
    config: &Config,
    addresses: &Labels,
) -> Vec<String> {
    let input = Input::Thread {
        tid: Tid(1),
        trace: Arc::new(trace.to_vec()),
        image: Arc::new(image.clone()),
    };
    let decoded = Decoder::new(config)
        .engine(engine)
        .decode(&[input], &BTreeMap::new())
        .unwrap();
    let forest = Forest::build(&decoded.threads[0], &(), &Watch::none()).unwrap();
    let line = |id| {
        let call = forest.call(id);
        let entered = match call.entered {
            Entered::Call { .. } => "called",
            Entered::TailCall { .. } => "tail-called",
            Entered::Signal { .. } => "signal",
            Entered::Adopted => "adopted",
            Entered::HistoryStart => "begins",
            Entered::AfterGap => "after-gap",
            Entered::Resumed => "resumed",
            _ => "unknown",
        };
        let left = match call.left {
            Left::Return => "returns",
            Left::TailCall => "tail-calls",
            Left::Unwound => "unwound",
            Left::SignalReturn => "signal-returns",
            Left::Unknown => "unknown",
            Left::HistoryEnd => "ends",
            Left::Gap => "gap",
        };
        let indent = "  ".repeat(forest.depth(id) as usize);
        let name = addresses.name(call.function.0);
        format!("{indent}{name} {}..{} {entered} {left}", call.first, call.end)
    };
    forest.ids().map(line).collect()
}
