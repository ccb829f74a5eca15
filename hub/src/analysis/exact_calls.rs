//! The functions of which a bundle has complete calls, for links from profiles to exact calls.

use super::modules::Modules;
use super::result::ExactCalls;
use super::stacks::bounded_name;
use backtrail_debugger::calls::Calls;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{Result, Watch};

/// The most functions in a result.
const FUNCTIONS: usize = 4096;
/// The most calls that are counted, the newest first.
const COUNTED: usize = 4_000_000;

/// Returns the functions that the crashed thread called, and that returned: those with the newest
/// calls first. Functions without a name are left out, because profiles name functions.
pub(super) fn exact_calls(navigator: &Navigator, watch: &Watch<'_>) -> Result<Vec<ExactCalls>> {
    let (session, thread) = (navigator.session(), navigator.thread()?);
    if thread.history.is_empty() {
        return Ok(Vec::new());
    }
    let calls = Calls::new(session, thread, watch)?;
    let modules = Modules::of(session);
    let mut found = Vec::new();
    for complete in calls.complete((FUNCTIONS, COUNTED), watch)? {
        let function = complete.function;
        let first = calls.forest().call(complete.newest).first;
        let symbols = session.symbols_at(thread, first);
        let Some(name) = symbols.and_then(|symbols| symbols.function_at(function)) else {
            continue;
        };
        let view = calls.view(complete.newest, 0)?;
        found.push(ExactCalls {
            function: bounded_name(&name.name),
            build_id: modules.place(function.0).and_then(|place| place.build_id),
            position: view.position,
            calls: complete.calls,
            instructions: view.instructions,
            duration: view.duration.map(|duration| duration.to_string()),
        });
    }
    Ok(found)
}
