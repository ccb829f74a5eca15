//! Where execution went on after the conditional branches of each source line.
//!
//! A compiler may invert a branch, so "taken" has no meaning of its own. The outcome of a branch is
//! therefore the line that runs next in the same function. The counts of a line in several inlined
//! copies of a function are added. Branches in gaps are unknown and not counted.

use crate::error::Result;
use crate::session::{Session, Thread};
use backtrail_decoder::{Stage, Watch};
use backtrail_pt::{Avma, Cofi};
use backtrail_symbolizer::{Frame, Symbolizer};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of instructions between two checks for cancellation.
const OFTEN: u64 = 1 << 16;

/// The branches of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionBranches {
    /// The demangled name. Code of an inlined function counts as that function's.
    pub function: Arc<str>,
    /// The source file of the lines.
    pub file: Arc<str>,
    /// The line at which the function is declared. `None`: unknown.
    pub declared: Option<u32>,
    /// By line, and the line that ran next. `None`: the branch left the function.
    pub outcomes: BTreeMap<(u32, Option<u32>), u64>,
}

/// The executions of a branch.
#[derive(Clone, Copy, Debug, Default)]
struct Executions {
    taken: u64,
    not_taken: u64,
}

/// A branch: its address, that after it, and its target.
type Site = (Avma, Avma, Avma);

/// Returns the branches in the decoded history of a thread, by function and file. Code without
/// lines, and code whose module is no longer mapped at the end, is left out.
///
/// # Errors
///
/// When canceled.
pub fn branches(session: &Session, thread: &Thread, watch: &Watch<'_>) -> Result<Vec<FunctionBranches>> {
    let history = &thread.history;
    let Some(process) = session.process(thread) else {
        return Ok(Vec::new());
    };
    let mut gaps = history.gaps().map(|(index, _)| index).peekable();
    let mut executions: FxHashMap<Site, Executions> = FxHashMap::default();
    let mut branch: Option<Site> = None;
    for (index, instruction) in (0u64..).zip(history.walk(0)) {
        if index % OFTEN == 0 {
            watch.report(Stage::Measure, index, history.len())?;
        }
        let mut after_gap = false;
        while gaps.next_if(|gap| *gap <= index).is_some() {
            after_gap = true;
        }
        if let Some(site) = branch.take().filter(|_| !after_gap) {
            // A signal, or the end of tracing, is no outcome.
            if instruction.pc == site.2 {
                executions.entry(site).or_default().taken += 1;
            } else if instruction.pc == site.1 {
                executions.entry(site).or_default().not_taken += 1;
            }
        }
        if let Cofi::Conditional { target } = instruction.cofi
            && target != instruction.next()
        {
            branch = Some((instruction.pc, instruction.next(), target));
        }
    }
    Ok(by_line(process.symbols_at_end(), &executions))
}

fn by_line(symbols: &Symbolizer, executions: &FxHashMap<Site, Executions>) -> Vec<FunctionBranches> {
    let mut functions: BTreeMap<(Arc<str>, Arc<str>), FunctionBranches> = BTreeMap::new();
    for (&(at, next, target), counts) in executions {
        let frames = symbols.frames_at(at);
        let Some((frame, location)) = frames
            .first()
            .and_then(|frame| Some((frame, frame.location.as_ref()?)))
            .filter(|(_, location)| location.line != 0)
        else {
            continue;
        };
        let key = (Arc::clone(&frame.function), Arc::clone(&location.file));
        let function = functions.entry(key).or_insert_with(|| FunctionBranches {
            function: Arc::clone(&frame.function),
            file: Arc::clone(&location.file),
            declared: frame.declared.as_ref().map(|(_, line)| *line),
            outcomes: BTreeMap::new(),
        });
        for (to, count) in [(target, counts.taken), (next, counts.not_taken)] {
            if count > 0 {
                let line = line_in(&symbols.frames_at(to), frame, &location.file);
                *function.outcomes.entry((location.line, line)).or_default() += count;
            }
        }
    }
    functions.into_values().collect()
}

/// Returns the line of the same copy of a function at another address.
fn line_in(frames: &[Frame<Avma>], of: &Frame<Avma>, file: &str) -> Option<u32> {
    let same = frames
        .iter()
        .find(|frame| frame.entry == of.entry && frame.function == of.function)?;
    let location = same.location.as_ref()?;
    (location.line != 0 && *location.file == *file).then_some(location.line)
}
