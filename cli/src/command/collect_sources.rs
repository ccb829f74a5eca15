//! `backtrail collect-sources`: reads source files for the collector's sender.
//!
//! The sender starts it. It reads one request per line on standard input, and answers each with one
//! line of JSON. It ends when the sender ends.

use crate::exit::Failure;
use crate::sources::{self, AllowedSources, Selection, SourceAnswer, SourceExtent, SourceRequest};
use backtrail_collector::sender;
use std::io::{BufRead, Write};

/// The processor time of one request in seconds.
const SECONDS: u64 = 60;
/// The longest request in bytes.
const MAX_REQUEST: u64 = 1 << 20;

/// Answers requests until the sender ends.
pub fn run() -> Result<(), Failure> {
    sender::confine_source_reader()?;
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    loop {
        let mut line = String::new();
        let mut bounded = std::io::Read::take(&mut input, MAX_REQUEST);
        if bounded.read_line(&mut line)? == 0 {
            return Ok(());
        }
        sender::limit_processor_time(SECONDS)?;
        let request: SourceRequest = serde_json::from_str(&line).map_err(Failure::failed)?;
        let selection = Selection {
            allowed: AllowedSources::Below(&request.allowed),
            extent: SourceExtent::Files,
        };
        let answer = match sources::collect(&request.bundle, selection, &request.target) {
            Ok(found) => SourceAnswer {
                files: found.files_as_text(),
                problems: found.problems,
            },
            Err(failure) => SourceAnswer {
                problems: vec![failure.message().to_owned()],
                ..SourceAnswer::default()
            },
        };
        let text = serde_json::to_string(&answer).map_err(Failure::failed)?;
        writeln!(output, "{text}")?;
        output.flush()?;
    }
}
