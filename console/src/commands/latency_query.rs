//! Measures the latency of a function's calls, by its name, at the navigator's position.

use crate::output::SlowCall;
use backtrail_debugger::Result;
use backtrail_debugger::functions;
use backtrail_debugger::latency::{Latencies, Measured, Unit, Unmeasured};
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::Session;
use backtrail_decoder::{Entered, Watch};

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
    let code = functions::code(navigator.process()?, function)?;
    let mut threads = navigator.process_threads()?;
    threads.sort_by_key(|thread| thread.tid);
    let of = |unit| Latencies::of(session, threads.iter().copied(), &code, unit, watch);
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
pub fn described(session: &Session, measured: &Measured, watch: &Watch<'_>) -> Result<SlowCall> {
    let thread = session.thread(measured.tid)?;
    let forest = session.forest(thread, watch)?;
    let symbols = session.symbols_at(thread, measured.first);
    let frames_at = |pc| symbols.map(|symbols| symbols.frames_at(pc)).unwrap_or_default();
    let (function, caller) = match &measured.inlined {
        Some(name) => {
            let pc = thread.history.pc(measured.first);
            let frames = pc.map(frames_at).unwrap_or_default().into_iter();
            let mut around = frames.skip_while(|frame| !frame.inlined || frame.function != *name);
            (name.to_string(), around.nth(1))
        }
        None => {
            let call = forest.call(measured.call);
            let site = match call.entered {
                Entered::Call { site } | Entered::TailCall { site } => thread.history.pc(site),
                _ => None,
            };
            let function = symbols.and_then(|symbols| symbols.function_at(call.function));
            let caller = site.and_then(|site| frames_at(site).into_iter().next());
            let name =
                function.map_or_else(|| call.function.to_string(), |function| function.name.to_string());
            (name, caller)
        }
    };
    let name = thread
        .name_of(forest, measured.call)
        .filter(|_| measured.inlined.is_none());
    Ok(SlowCall {
        length: measured.span,
        instructions: measured.end.saturating_sub(measured.first),
        call: name.map(|name| name.to_string()),
        position: thread.position(measured.first).to_string(),
        function,
        caller: caller.map(|frame| frame.function.to_string()),
        thread: thread.tid.0,
        thread_name: thread.name.clone(),
    })
}
