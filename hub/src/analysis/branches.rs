//! The branches of a bundle, for the comparison of builds.

use super::result::{BranchOutcome, LineBranches};
use super::stacks::bounded_name;
use backtrail_debugger::branches;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{Result, Watch};

/// The most outcomes in a result.
const OUTCOMES: usize = 20_000;

/// Returns the branches of the crashed thread: the functions with the most executions first.
pub(super) fn line_branches(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<LineBranches>> {
    let (session, thread) = (navigator.session(), navigator.thread()?);
    if thread.history.is_empty() {
        return Ok(Vec::new());
    }
    let mut functions = branches::branches(session, thread, watch)?;
    functions.sort_by_key(|function| std::cmp::Reverse(function.outcomes.values().sum::<u64>()));
    let mut room = OUTCOMES;
    let fitting = functions.into_iter().take_while(|function| {
        let fits = function.outcomes.len() <= room;
        room = room.saturating_sub(function.outcomes.len());
        fits
    });
    let view = |function: branches::FunctionBranches| LineBranches {
        function: bounded_name(&function.function),
        file: bounded_name(&function.file),
        declared: function.declared,
        outcomes: function
            .outcomes
            .into_iter()
            .map(|((line, next), count)| BranchOutcome { line, next, count })
            .collect(),
    };
    Ok(fitting.map(view).collect())
}
