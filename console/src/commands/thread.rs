//! `thread`: selects a thread.

use super::Context;
use super::goto::{moved, when};
use super::thread_apply::{thread_apply, thread_of};
use crate::output::Output;
use backtrail_debugger::thread_at_time::{ThreadAtTime, thread_at_time};
use backtrail_debugger::{Error, Result};

/// `thread TID`: to where it was left; `thread TID now`: to what it did at this time.
pub(super) fn thread(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if arguments.is_empty() {
        return when(context, arguments);
    }
    if let Some(rest) = arguments.strip_prefix("apply ") {
        return thread_apply(context, rest);
    }
    let (text, now) = match arguments.split_once(char::is_whitespace) {
        Some((text, rest)) => (text, rest.trim() == "now"),
        None => (arguments, false),
    };
    let tid = thread_of(context, text)?;
    let to = if now {
        let navigator = &*context.navigator;
        let there = navigator.session().thread(tid)?;
        let at = thread_at_time(navigator.session(), navigator.thread()?, navigator.index(), there)?;
        let why = match at {
            ThreadAtTime::NotBegun => "its history begins later; `goto start` goes to its start",
            ThreadAtTime::Between(..) | ThreadAtTime::Unknown => {
                "the trace has no time stamp here; `thread TID` goes to its last position"
            }
        };
        let unknown = || {
            Error::Cannot(format!(
                "the position of thread {tid} at this time is unknown: {why}"
            ))
        };
        there.position(at.index().ok_or_else(unknown)?)
    } else {
        context.navigator.position_of(tid)
    };
    let stop = context.navigator.go_to(to)?;
    moved(context, stop)
}
