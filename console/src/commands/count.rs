//! The number of executions of code: `count`.

use super::Context;
use crate::output::{CountView, Output, ThreadCount};
use backtrail_debugger::Result;
use backtrail_debugger::breakpoint::Hits;
use backtrail_debugger::calls::Calls;
use backtrail_debugger::functions::{self, FunctionCode};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::{Process, Thread};
use backtrail_decoder::Watch;

/// `count`: the number of calls of a function, or of executions of other code, in all threads.
pub(super) fn count(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    let session = navigator.session();
    let mut view = CountView::of(arguments);
    let mut problem = None;
    for process in session.processes() {
        let (hits, line, code) = match counted(context, process, arguments) {
            Ok(counted) => counted,
            Err(error) => {
                problem = Some(error);
                continue;
            }
        };
        view.line = view.line.or(line);
        let is_of_process = |thread: &Thread| {
            let process_of = session.process(thread);
            process_of.is_some_and(|process_of| process_of.pid == process.pid)
        };
        let has_history = |thread: &&Thread| !thread.history.is_empty() && is_of_process(thread);
        for thread in session.threads().iter().filter(has_history) {
            let count = count_in(navigator, thread, &hits, code.as_ref(), context.watch)?;
            view.add(count, thread.tid == navigator.position().tid());
        }
    }
    match problem {
        Some(problem) if view.is_empty() => Err(problem),
        _ => Ok(Output::Count(view)),
    }
}

/// Returns the code in a process that is counted. The number is the next line with code if the
/// requested one has none.
fn counted(
    context: &Context<'_>,
    process: &Process,
    arguments: &str,
) -> Result<(Hits, Option<u32>, Option<FunctionCode>)> {
    // A name between slashes is of functions, and else it may be of a line.
    let code = functions::code(process, arguments);
    match (
        context.navigator.resolve_in(process, arguments, context.watch),
        code,
    ) {
        (Ok(resolved), code) => Ok((resolved.hits, resolved.nearest, code.ok())),
        (Err(_), Ok(code)) => {
            let epochs = process.epochs().iter().enumerate();
            let of_epoch = |number| {
                let all = code.entries.addresses();
                let here = all.filter(|entry| code.entries.contains(*entry, number));
                let copies = code.copies.iter().filter(|found| found.epoch == number);
                Hits {
                    addresses: here.collect(),
                    copies: copies.map(|found| found.copy.clone()).collect(),
                    ..Hits::default()
                }
            };
            let epochs = epochs.map(|(number, epoch)| (epoch.from, of_epoch(number)));
            Ok((Hits::over_time(epochs.collect()), None, Some(code)))
        }
        (Err(error), Err(_)) => Err(error),
    }
}

/// Counts in a thread.
fn count_in(
    navigator: &Navigator,
    thread: &Thread,
    hits: &Hits,
    code: Option<&FunctionCode>,
    watch: &Watch<'_>,
) -> Result<ThreadCount> {
    thread.needs_beginning()?;
    let counted = navigator.with_steps_of(thread, watch, |steps| hits.count(&steps.lines))?;
    let calls = match code {
        Some(code) => {
            let all = Calls::of_all(navigator.session(), thread, watch)?;
            let calls = all.of(&code.entries, watch)?;
            let rests = calls.iter().filter(|&&id| all.forest().call(id).may_be_rest());
            Some((
                calls.len() as u64 + counted.inlined,
                rests.count() as u64 + counted.possible,
            ))
        }
        None => None,
    };
    Ok(ThreadCount {
        thread: thread.tid.0,
        name: thread.name.clone(),
        executions: counted.all,
        calls: calls.map(|(calls, _)| calls),
        rests: calls.map_or(0, |(_, rests)| rests),
    })
}
