//! `info …`.

use super::Context;
use crate::output::{
    FunctionView, GapView, ModuleView, Output, SourceFileView, ThreadPositionView, ThreadView,
};
use backtrail_debugger::functions::regex;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::registers;
use backtrail_debugger::thread_at_time::{ThreadAtTime, thread_at_time};
use backtrail_debugger::{Error, Result};
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use backtrail_values::plain;

/// `info functions` lists no more.
const MAX_FUNCTIONS: usize = 500;

pub(super) fn threads(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    let current = navigator.position().tid();
    let session = navigator.session();
    let threads = session
        .threads()
        .iter()
        .map(|thread| {
            thread.needs_beginning()?;
            let index = navigator.index_of(thread.tid);
            let place = |index| -> Result<Option<String>> {
                let stack = backtrail_debugger::stack::stack(session, thread, index, 1, context.watch)?;
                Ok(stack
                    .frames
                    .first()
                    .map(backtrail_debugger::stack::StackFrame::describe))
            };
            let here = (navigator.thread()?, navigator.index());
            let now = match thread_at_time(session, here.0, here.1, thread)? {
                ThreadAtTime::Between(from, until) => ThreadPositionView {
                    position: Some(thread.position(from).to_string()),
                    until: (until > from).then(|| thread.position(until).to_string()),
                    place: place(from)?,
                    unknown: None,
                },
                ThreadAtTime::NotBegun => ThreadPositionView {
                    unknown: Some("its history begins later"),
                    ..ThreadPositionView::default()
                },
                // At the end of the recording, the ends of the other threads are what is asked for.
                ThreadAtTime::Unknown if navigator.is_at_end() => ThreadPositionView {
                    place: place(thread.history.len())?,
                    unknown: Some("its last position; the trace has no time to compare"),
                    ..ThreadPositionView::default()
                },
                ThreadAtTime::Unknown => ThreadPositionView {
                    unknown: Some("its position at this time is unknown"),
                    ..ThreadPositionView::default()
                },
            };
            Ok(ThreadView {
                tid: thread.tid.0,
                name: thread.name.clone(),
                current: thread.tid == current,
                crashed: session.crash_of(thread.tid).is_some(),
                instructions: thread.history.len(),
                gaps: thread.gaps().len(),
                position: thread.position(index).to_string(),
                place: place(index)?,
                now,
            })
        })
        .collect::<Result<_>>()?;
    Ok(Output::Threads { threads })
}

pub(super) fn general_registers(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    if !arguments.is_empty() {
        return all_registers(context, arguments);
    }
    let registers = registers::general(context.navigator, context.watch)?;
    Ok(Output::Registers { registers })
}

pub(super) fn vector_registers(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let registers = registers::vectors(context.navigator, context.watch)?;
    Ok(Output::Registers { registers })
}

pub(super) fn all_registers(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let mut all = registers::general(context.navigator, context.watch)?;
    all.extend(registers::vectors(context.navigator, context.watch)?);
    let wanted = arguments.split_whitespace().map(|name| {
        let register = plain(name.trim_start_matches('$'));
        let found = all.iter().find(|known| known.name == register).cloned();
        found.ok_or_else(|| Error::Cannot(format!("no register {name}; `info all-registers` lists all")))
    });
    let wanted = wanted.collect::<Result<Vec<_>>>()?;
    let registers = if wanted.is_empty() { all } else { wanted };
    Ok(Output::Registers { registers })
}

pub(super) fn sharedlibrary(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let symbols = context.navigator.symbols()?;
    // The pieces of a mapped file are adjacent.
    let pieces = symbols.modules();
    let modules = pieces.chunk_by(|one, next| one.name == next.name && one.bias == next.bias);
    let modules = modules
        .filter_map(|pieces| {
            let (first, last) = pieces.first().zip(pieces.last())?;
            let file = pieces.iter().find_map(|piece| piece.file.as_ref());
            Some(ModuleView {
                from: first.range.start.0,
                to: last.range.end.0,
                name: first.name.to_string(),
                symbols: file.is_some(),
                debug_gap: file.and_then(|file| file.debug_gap()),
            })
        })
        .collect();
    Ok(Output::Modules { modules })
}

pub(super) fn gaps(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let thread = context.navigator.thread()?;
    thread.needs_beginning()?;
    let gaps = thread
        .history
        .gaps()
        .map(|(index, gap)| GapView {
            position: thread.position(index).to_string(),
            cause: gap.cause.to_string(),
            trace_offset: gap.trace_offset,
            trace_bytes: gap
                .resumed_offset
                .map(|resumed| resumed.saturating_sub(gap.trace_offset)),
        })
        .collect();
    Ok(Output::Gaps { gaps })
}

pub(super) fn functions(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let pattern = regex(arguments)?;
    let process = context.navigator.process()?;
    let mut found = process.functions_in_all(|symbols| symbols.functions_matching(&pattern));
    found.sort_by(|one, other| (&one.name, one.entry).cmp(&(&other.name, other.entry)));
    let more = found.len() > MAX_FUNCTIONS;
    found.truncate(MAX_FUNCTIONS);
    let functions = found
        .into_iter()
        .map(|function| {
            let (file, line) = function.declared.unzip();
            FunctionView {
                entry: function.entry.0,
                name: function.name.to_string(),
                file: file.map(|file| file.to_string()),
                line,
            }
        })
        .collect();
    Ok(Output::Functions { functions, more })
}

/// `info line`: the code addresses of a line, or of the current position.
pub(super) fn line(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    if !arguments.is_empty() {
        let resolved = navigator.resolve(arguments, context.watch)?;
        let places = resolved.places.join(", ");
        return Ok(Output::message(match resolved.nearest {
            Some(line) => format!("{arguments}: no code; the next line with code, {line}, is at {places}."),
            None => format!("{arguments}: code at {places}."),
        }));
    }
    let unknown = || {
        Error::Cannot(
            "no line is known here; `info sharedlibrary` shows which modules have symbols".to_owned(),
        )
    };
    let selected = navigator.selected_frame();
    let pc = match selected {
        0 => navigator.pc().ok_or_else(unknown)?,
        _ => caller(navigator, selected, context.watch)?,
    };
    let row = navigator
        .symbols()?
        .line_at(pc)
        .filter(|row| row.line != 0)
        .ok_or_else(unknown)?;
    let text = format!(
        "Line {} of {} is at {} to {}.",
        row.line, row.file, row.range.start, row.range.end
    );
    Ok(Output::message(text))
}

/// Returns the address that gives the line of a selected caller: inside the call, not after it.
fn caller(navigator: &Navigator, selected: usize, watch: &Watch<'_>) -> Result<Avma> {
    let stack = navigator.stack(selected + 1, watch)?;
    let frame = stack.frames.get(selected);
    let following = frame.and_then(|frame| Some((frame.pc?, frame.line?)));
    let following = following.map(|(pc, line)| (Avma(pc.saturating_sub(1)), line));
    let symbols = navigator.symbols()?;
    let here = following.filter(|&(at, line)| symbols.line_at(at).is_some_and(|row| row.line == line));
    let (at, _) =
        here.ok_or_else(|| Error::Cannot("the frame is in inlined code, or its line is unknown".to_owned()))?;
    Ok(at)
}

pub(super) fn source(context: &mut Context<'_>, _arguments: &str) -> Result<Output> {
    let navigator = &*context.navigator;
    let selected = navigator.selected_frame();
    let stack = navigator.stack(selected + 1, context.watch)?;
    let file = stack
        .frames
        .into_iter()
        .nth(selected)
        .and_then(|frame| frame.file);
    let found = file.as_deref().and_then(|file| navigator.sources.find(file));
    let bundled = file.as_deref().and_then(|file| navigator.bundled_source(file));
    Ok(Output::SourceFile(SourceFileView {
        file,
        found: found.map(|path| path.display().to_string()),
        bundled: bundled.is_some(),
        partial: bundled.as_ref().is_some_and(|source| source.lines.is_some()),
        verified: bundled.is_some_and(|source| source.verified),
    }))
}
