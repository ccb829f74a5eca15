//! The executions of functions that the compiler inlined.

use crate::breakpoint::Scan;
use crate::error::{Error, Result};
use crate::functions::InlinedFunction;
use crate::lines::{Entrance, LineStarts};
use crate::session::{Session, Thread};
use backtrail_decoder::{CallId, Watch};
use std::collections::HashMap;
use std::sync::Arc;

/// An execution of an inlined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The function.
    pub function: Arc<str>,
    /// The call that executed it.
    pub call: CallId,
    /// Its first instruction.
    pub first: u64,
    /// After its last instruction. Instructions of its caller may be in between.
    pub end: u64,
    /// Whether it begins here, and does not continue an earlier execution.
    pub is_certain: bool,
}

/// Returns the executions of inlined functions in a thread, in order.
///
/// # Errors
///
/// If the beginning of the history is not decoded yet; when canceled.
pub fn executions(
    session: &Session,
    thread: &Thread,
    copies: &[InlinedFunction],
    watch: &Watch<'_>,
) -> Result<Vec<Execution>> {
    if copies.is_empty() || thread.history.is_empty() {
        return Ok(Vec::new());
    }
    thread.needs_beginning()?;
    let process = session.process(thread);
    let process = process.ok_or_else(|| Error::Cannot("the trace describes no process".to_owned()))?;
    let lines = LineStarts {
        history: &thread.history,
        is_partial: thread.is_partial(),
        forest: session.forest(thread, watch)?,
        lines: process.lines(),
        statements: &thread.statements,
        filter: None,
        watch,
    };
    let mut found = Vec::new();
    for function in copies {
        let is_meant = |index| {
            process.has_one_epoch() || process.epoch_at(thread.history.version(index)) == function.epoch
        };
        find(&lines, function, is_meant, &mut found)?;
    }
    found.sort_by_key(|execution| (execution.first, std::cmp::Reverse(execution.end)));
    Ok(found)
}

/// Adds the executions of one copy.
fn find(
    lines: &LineStarts<'_>,
    function: &InlinedFunction,
    is_meant: impl Fn(u64) -> bool,
    found: &mut Vec<Execution>,
) -> Result<()> {
    let copy = &function.copy;
    let begin = found.len();
    let mut scan = Scan::new(lines, &copy.code, 0);
    while let Some(index) = scan.next(lines.history.len())? {
        let entrance = copy.entrance(lines, index)?.filter(|_| is_meant(index));
        let Some((entrance, call)) = entrance.zip(lines.forest.call_at(index)) else {
            continue;
        };
        found.push(Execution {
            function: Arc::clone(&function.name),
            call,
            first: index,
            end: index,
            is_certain: entrance == Entrance::Certain,
        });
    }
    // An execution ends before the next one in the same call.
    let mut next: HashMap<CallId, u64> = HashMap::new();
    for execution in found.iter_mut().skip(begin).rev() {
        let call = execution.call;
        let limit = next.insert(call, execution.first);
        let limit = limit.unwrap_or_else(|| lines.forest.call(call).end);
        execution.end = copy.end(lines, call, execution.first, limit)?;
    }
    Ok(())
}
