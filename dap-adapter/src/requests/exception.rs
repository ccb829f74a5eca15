//! `exceptionInfo`: the crash.

use crate::failure::{Failure, Result};
use crate::protocol::types::{
    ExceptionBreakMode, ExceptionDetails, ExceptionInfoArguments, ExceptionInfoResponseBody,
};
use crate::session::ClientSession;
use backtrail_console::commands;
use backtrail_console::output::Text;
use backtrail_debugger::heap::{self, diagnosis::diagnose};
use backtrail_debugger::signal;
use backtrail_decoder::Watch;

/// As many frames as are shown below what happened.
const FRAMES: usize = 20;

/// The signal, the address, and why, with the stack; the source is in the client's editor already.
pub fn info(
    client: &mut ClientSession,
    arguments: ExceptionInfoArguments,
    watch: &Watch<'_>,
) -> Result<ExceptionInfoResponseBody> {
    let debuggee = client.debuggee()?;
    let tid = debuggee.tid(Some(arguments.thread_id))?;
    let here = debuggee.navigator.position().tid();
    let session = debuggee.navigator.session();
    let crash = session
        .crash_of(tid)
        .copied()
        .filter(|_| tid == here && debuggee.navigator.is_at_end());
    let none = || Failure::Cannot("nothing crashed here; `goto crash` goes to the crash".to_owned());
    let crash = crash.ok_or_else(none)?;
    let cause = signal::cause(crash.signal, crash.code);
    let described = signal::describe(&crash);
    let heap = debuggee.navigator.with_earlier(watch, |navigator| {
        let session = navigator.session();
        match heap::has_events(session) && session.crash().is_some_and(|of| of.tid == tid) {
            true => diagnose(session, watch),
            false => Ok(None),
        }
    })?;
    let mut text = Text::plain();
    let backtrace = format!("backtrace {FRAMES}");
    commands::execute(&mut debuggee.navigator, &backtrace, watch)?.render(&mut text);
    Ok(ExceptionInfoResponseBody {
        exception_id: signal::name(crash.signal),
        break_mode: ExceptionBreakMode::Always,
        description: Some({
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            let heap = heap.map(|heap| format!("; {heap}. {}", heap.evidence()));
            format!("{described}{cause}{}", heap.unwrap_or_default())
        }),
        details: Some(ExceptionDetails {
            message: cause.map(str::to_owned),
            type_name: Some(signal::name(crash.signal)),
            stack_trace: Some(text.into_string()),
            ..ExceptionDetails::default()
        }),
    })
}
