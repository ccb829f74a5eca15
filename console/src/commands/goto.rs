//! Moving anywhere: positions, times, calls, bookmarks, threads.

use super::Context;
use crate::output::{Output, PositionView, StopView};
use crate::views;
use backtrail_debugger::navigator::{Navigator, Stop};
use backtrail_debugger::signal;
use backtrail_debugger::time::parse_nanos;
use backtrail_debugger::timeline;
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{Position, Watch};
use backtrail_pt::{Tid, Tsc};

/// The answer of a command that moved.
pub(super) fn moved(context: &mut Context<'_>, stop: Stop) -> Result<Output> {
    Ok(Output::Stop(Box::new(views::stop(
        context.navigator,
        stop,
        context.watch,
    )?)))
}

/// The answer of a command that searched all threads: it names the thread if that is another one.
pub(super) fn moved_to_thread(context: &mut Context<'_>, stop: Stop) -> Result<Output> {
    let switched_to = views::switched_to(context.navigator, &stop)?;
    let view = views::stop(context.navigator, stop, context.watch)?;
    Ok(Output::Stop(Box::new(StopView { switched_to, ..view })))
}

pub(super) fn go_to(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let to = position(context, arguments)?;
    let stop = context.navigator.go_to(to)?;
    moved(context, stop)
}

/// Returns the position that a text names, as `goto` does. Forms without a thread are of `thread`,
/// or else of the thread of the session's crash.
///
/// # Errors
/// If no position has this name, or its history is not recorded.
pub fn position_in(
    navigator: &mut Navigator,
    thread: Option<Tid>,
    text: &str,
    watch: &Watch<'_>,
) -> Result<Position> {
    let tid = thread.unwrap_or(navigator.position().tid());
    let end = navigator.session().thread(tid)?.history.len();
    navigator.visiting(tid, end, |navigator| {
        position(&Context { navigator, watch }, text)
    })
}

/// Reads what `goto` takes.
pub(super) fn position(context: &Context<'_>, text: &str) -> Result<Position> {
    let navigator = &*context.navigator;
    let thread = navigator.thread()?;
    if let Some(&bookmark) = navigator.bookmarks.get(text) {
        return Ok(bookmark);
    }
    if let Ok(position) = text.parse() {
        return Ok(position);
    }
    if text.starts_with('#')
        && let Ok(position) = format!("t{}{text}", thread.tid).parse()
    {
        return Ok(position);
    }
    if let Some(time) = text.strip_prefix('@') {
        return at_time(context, time);
    }
    if let Ok(name) = text.parse() {
        let forest = navigator.session().forest(thread, context.watch)?;
        let none = || {
            Error::Cannot(format!(
                "thread {} has no call {text}; `calls` lists them",
                thread.tid
            ))
        };
        let call = thread.call_named(forest, name)?.ok_or_else(none)?;
        return Ok(thread.position(forest.call(call).first));
    }
    match text {
        "start" | "begin" => {
            thread.needs_beginning()?;
            Ok(thread.position(0))
        }
        "end" => Ok(thread.position(thread.history.len())),
        "crash" => {
            let session = navigator.session();
            let crashed = session.crash().and(session.main_thread());
            let none =
                || Error::Cannot("the trace does not end in a crash; `goto end` goes to its end".to_owned());
            let thread = crashed.ok_or_else(none)?;
            Ok(thread.position(thread.history.len()))
        }
        "panic" => {
            let panic = navigator.last_panic(context.watch)?;
            panic.ok_or_else(|| Error::Cannot("the trace has no panic of Rust code with symbols".to_owned()))
        }
        _ => Err(Error::Cannot(format!(
            "\"{text}\" is not a place in the trace; use start, end, crash, panic, tTHREAD#INDEX, #INDEX, \
             #-INDEX (from the end), @TIME (like @-1.5ms), cCALL or a bookmark"
        ))),
    }
}

fn at_time(context: &Context<'_>, text: &str) -> Result<Position> {
    let navigator = &*context.navigator;
    let bad = || {
        Error::Cannot(format!(
            "\"@{text}\" is not a time; use a time before the crash, like @-1.5ms"
        ))
    };
    let ns = parse_nanos(text).ok_or_else(bad)?;
    let no_clock =
        || Error::Cannot("the trace has no time conversion for its TSC; `when` shows ticks".to_owned());
    let tsc = navigator.session().times().tsc_at(ns).ok_or_else(no_clock)?;
    at_tsc(context, navigator.position().tid(), tsc)
}

fn at_tsc(context: &Context<'_>, tid: Tid, tsc: Tsc) -> Result<Position> {
    let thread = context.navigator.session().thread(tid)?;
    let early = || {
        Error::Cannot(format!(
            "the history of thread {tid} begins later; `goto start` goes to its start"
        ))
    };
    // All of it had run by then.
    let end = thread.history.len();
    let over = timeline::reached(thread, end).and_then(|end| end.latest());
    if over.is_some_and(|over| over <= tsc) {
        return Ok(thread.position(end));
    }
    let index = thread.index_at(tsc)?.ok_or_else(early)?;
    Ok(thread.position(index))
}

pub(super) fn when(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    let thread = navigator.thread()?;
    let end = navigator
        .is_at_end()
        .then(|| match navigator.session().crash_of(thread.tid) {
            Some(crash) => format!("at the crash: {}", signal::describe(crash)),
            None => "at the end of the history".to_owned(),
        });
    Ok(Output::Position(PositionView {
        position: navigator.position().to_string(),
        thread: thread.tid.0,
        name: thread.name.clone(),
        of: (!thread.is_partial()).then(|| thread.history.len()),
        time: views::time(navigator, thread, navigator.index()),
        cpu: thread.history.cpu(navigator.index()).map(|cpu| cpu.0),
        end,
    }))
}

pub(super) fn back(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let stop = context.navigator.back()?;
    moved(context, stop)
}

pub(super) fn forward(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let stop = context.navigator.forward()?;
    moved(context, stop)
}

pub(super) fn bookmark(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if arguments.is_empty() {
        return info_bookmarks(context, arguments);
    }
    let position = context.navigator.position();
    context.navigator.bookmarks.insert(arguments.to_owned(), position);
    Ok(Output::Bookmarks {
        bookmarks: vec![(arguments.to_owned(), position.to_string())],
    })
}

pub(super) fn info_bookmarks(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let all = context.navigator.bookmarks.iter();
    Ok(Output::Bookmarks {
        bookmarks: all
            .map(|(name, position)| (name.clone(), position.to_string()))
            .collect(),
    })
}
