//! Measures the latency of a function's calls, by its name, at the navigator's position.

use crate::output::SlowCall;
use backtrail_debugger::Result;
use backtrail_debugger::functions;
use backtrail_debugger::latency::{Latencies, Measured, Unit, Unmeasured};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::{Session, Thread};
use backtrail_decoder::{Entered, Watch};

/// The threads of the current process.
fn threads(navigator: &Navigator) -> Result<impl Iterator<Item = &Thread>> {
    let session = navigator.session();
    let pid = navigator.process()?.pid;
    let of_process =
        move |thread: &&Thread| session.process(thread).is_some_and(|process| process.pid == pid);
    Ok(session.threads().iter().filter(of_process))
}

/// Measures all calls of a function in the current process.
///
/// The unit is instructions if `instructions` is set or the calls have no time stamps. The second
/// result is true in the latter case.
///
/// # Errors
///
/// If there is no such function; if the beginning of a history is not decoded yet; when canceled.
pub fn measure(
    navigator: &Navigator,
    function: &str,
    instructions: bool,
    watch: &Watch<'_>,
) -> Result<(Latencies, bool)> {
    let session = navigator.session();
    let entries = functions::entries(navigator.process()?, function)?;
    let of = |unit| Latencies::of(session, threads(navigator)?, &entries, unit, watch);
    if instructions {
        return Ok((of(Unit::Instructions)?, false));
    }
    let by_time = of(Unit::of_time(session.times()))?;
    let without = by_time.unmeasured.contains_key(&Unmeasured::NoTime);
    match by_time.measured.is_empty() && without {
        true => Ok((of(Unit::Instructions)?, true)),
        false => Ok((by_time, false)),
    }
}

/// Describes a measured call with its caller and thread.
///
/// # Errors
///
/// When canceled.
pub fn described(session: &Session, measured: Measured, watch: &Watch<'_>) -> Result<SlowCall> {
    let thread = session.thread(measured.tid)?;
    let forest = session.forest(thread, watch)?;
    let call = forest.call(measured.call);
    let symbols = session.symbols_at(thread, call.first);
    let site = match call.entered {
        Entered::Call { site } | Entered::TailCall { site } => thread.history.pc(site),
        _ => None,
    };
    let caller = symbols.zip(site).and_then(|(symbols, site)| {
        let frames = symbols.frames_at(site);
        frames.into_iter().next()
    });
    let function = symbols.and_then(|symbols| symbols.function_at(call.function));
    Ok(SlowCall {
        length: measured.span,
        instructions: call.end.saturating_sub(call.first),
        call: thread.name_of(forest, measured.call).map(|name| name.to_string()),
        position: thread.position(call.first).to_string(),
        function: function.map_or_else(|| call.function.to_string(), |function| function.name.to_string()),
        caller: caller.map(|frame| frame.function.to_string()),
        thread: thread.tid.0,
        thread_name: thread.name.clone(),
    })
}
