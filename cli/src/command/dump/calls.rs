//! `backtrail dump calls`: the call forest, indented by depth.

use super::range::Range;
use crate::args::Dump;
use crate::exit::Failure;
use crate::output::Output;
use crate::terminal::plain;
use backtrail_debugger::session::Thread;
use backtrail_decoder::{Call, Entered, Left, Watch};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct CallRow {
    position: String,
    end: String,
    depth: u32,
    function: Option<String>,
    address: String,
    entered: &'static str,
    left: &'static str,
}

/// Prints every call that is active at or after `--from`, callers before callees.
pub fn run(range: &Range, args: &Dump, output: &mut Output) -> Result<(), Failure> {
    for thread in range.threads() {
        let forest = range.session.forest(thread, &Watch::none())?;
        let from = range.from(thread)?;
        // Ids ascend in the order in which calls begin, callers before callees.
        let wanted = forest
            .ids()
            .map(|id| (forest.call(id), id))
            .filter(|(call, _)| call.end > from);
        for (call, id) in wanted.take(usize::try_from(range.count).unwrap_or(usize::MAX)) {
            print(range, thread, (&call, forest.depth(id)), args, output)?;
        }
    }
    Ok(())
}

fn print(
    range: &Range,
    thread: &Thread,
    (call, depth): (&Call, u32),
    args: &Dump,
    output: &mut Output,
) -> Result<(), Failure> {
    let symbols = range.session.symbols_at(thread, call.first);
    let function = symbols
        .and_then(|symbols| symbols.function_at(call.function))
        .map(|function| function.name);
    let row = CallRow {
        position: thread.position(call.first).to_string(),
        end: thread.position(call.end).to_string(),
        depth,
        function: function.map(|name| name.to_string()),
        address: call.function.to_string(),
        entered: entered(&call.entered),
        left: left_by(&call.left),
    };
    if args.json {
        return output.json("backtrail-call/1", &row);
    }
    // Bound the indentation, so that deep recursion does not write gigabytes of spaces.
    let indent = "  ".repeat(row.depth.min(64) as usize);
    let name = plain(row.function.as_deref().unwrap_or(&row.address));
    writeln!(
        output,
        "{:<20} {:>10}  {indent}{name}  [{}, {}]",
        row.position,
        call.end - call.first,
        row.entered,
        row.left
    )?;
    Ok(())
}

fn entered(how: &Entered) -> &'static str {
    match how {
        Entered::Call { .. } => "called",
        Entered::TailCall { .. } => "tail-called",
        Entered::Signal { .. } => "signal",
        Entered::Adopted => "adopted",
        Entered::HistoryStart => "running at the start",
        Entered::AfterGap => "running after a gap",
        Entered::Resumed => "resumed",
        _ => "entered unexplained",
    }
}

fn left_by(how: &Left) -> &'static str {
    match how {
        Left::Return => "returned",
        Left::TailCall => "tail call",
        Left::Unwound => "unwound",
        Left::SignalReturn => "signal return",
        Left::Unknown => "left unexplained",
        Left::HistoryEnd => "running at the end",
        Left::Gap => "running at a gap",
    }
}
