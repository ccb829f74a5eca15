//! Makes the views of places out of a navigator: what commands show of where they are.

mod own_code;

pub use own_code::{last_own_calls, last_own_lines};

use crate::output::{HandlerView, HistoryStep, HistoryView, Place, StopView, ThreadName};
use backtrail_debugger::calls::{CallView, Calls};
use backtrail_debugger::disassembly;
use backtrail_debugger::navigator::{Navigator, Stop};
use backtrail_debugger::session::Thread;
use backtrail_debugger::source::SourceLines;
use backtrail_debugger::stack::{Stack, StackFrame};
use backtrail_debugger::step::Direction;
use backtrail_debugger::time::Time;
use backtrail_debugger::timeline;
use backtrail_debugger::{Result, StopReason};
use backtrail_decoder::{CallId, Entered, Watch};
use backtrail_pt::Avma;

/// A stop with what is at its end.
///
/// # Errors
/// When canceled.
pub fn stop(navigator: &Navigator, stop: Stop, watch: &Watch<'_>) -> Result<StopView> {
    let switched_to = switched_to(navigator, &stop)?;
    let switched_to = switched_to.filter(|_| {
        matches!(
            stop.reason,
            StopReason::Breakpoint { .. } | StopReason::Watchpoint { .. } | StopReason::WatchScope { .. }
        )
    });
    Ok(StopView {
        switched_to,
        unordered: stop.unordered,
        elsewhere: stop.elsewhere,
        reason: stop.reason,
        from: stop.from.to_string(),
        crossed_gap: stop.crossed_gap,
        undecided: stop.undecided,
        unseen: stop.unseen,
        place: place_of_frame(navigator, navigator.selected_frame(), watch)?,
        displays: Vec::new(),
    })
}

/// Returns the current thread, if a move to it came from another one.
///
/// # Errors
///
/// As with [`Navigator::thread`].
pub fn switched_to(navigator: &Navigator, stop: &Stop) -> Result<Option<ThreadName>> {
    let thread = navigator.thread()?;
    Ok((stop.from.tid() != stop.to.tid()).then(|| ThreadName {
        thread: thread.tid.0,
        name: thread.name.clone(),
    }))
}

/// The current position and what is there.
///
/// # Errors
/// When canceled.
pub fn place(navigator: &Navigator, watch: &Watch<'_>) -> Result<Place> {
    place_of_frame(navigator, 0, watch)
}

/// The current position and what is there, as a frame of the stack has it.
fn place_of_frame(navigator: &Navigator, frame: usize, watch: &Watch<'_>) -> Result<Place> {
    let thread = navigator.thread()?;
    let stack = navigator.stack(frame.saturating_add(1), watch)?;
    let frame = stack.frames.into_iter().nth(frame);
    let source = frame.as_ref().and_then(|frame| line_of(navigator, frame));
    let has_line = frame
        .as_ref()
        .is_some_and(|frame| frame.at_line_start && frame.line.is_some());
    let instruction = if has_line { None } else { instruction(navigator) };
    Ok(Place {
        position: navigator.position().to_string(),
        time: time(navigator, thread, navigator.index()),
        cpu: thread.history.cpu(navigator.index()).map(|cpu| cpu.0),
        frame,
        source,
        instruction,
    })
}

/// Returns the time at which instruction `index` ran; at the end, the time after the last one.
#[must_use]
pub fn time(navigator: &Navigator, thread: &Thread, index: u64) -> Option<Time> {
    let reached = timeline::reached(thread, index)?;
    Some(navigator.session().times().time(reached))
}

/// The source line of a frame.
#[must_use]
pub fn line_of(navigator: &Navigator, frame: &StackFrame) -> Option<SourceLines> {
    let (file, line) = frame.file.clone().zip(frame.line)?;
    let lines = navigator.sources.lines(&file, line, 1);
    Some(SourceLines::new(&file, line, lines, Some(line)))
}

/// The next instruction.
#[must_use]
pub fn instruction(navigator: &Navigator) -> Option<disassembly::DisassembledLine> {
    let (process, pc) = (navigator.process().ok()?, navigator.pc()?);
    let version = navigator.thread().ok()?.history.version(navigator.index());
    let end = Avma(pc.0.saturating_add(15));
    disassembly::disassemble(process, version, pc..end, 1, navigator.flavor, Some(pc))
        .into_iter()
        .next()
}

/// The last `count` line starts before the current position.
///
/// # Errors
/// When canceled.
pub fn history(navigator: &Navigator, count: usize, watch: &Watch<'_>) -> Result<HistoryView> {
    let thread = navigator.thread()?;
    let mut starts = Vec::new();
    let mut before = None;
    navigator.with_steps(watch, |steps| {
        let mut at = navigator.index();
        while starts.len() < count {
            let limit = steps.limit(Direction::Backward, at);
            match steps.lines.previous_start(at, limit)? {
                Some(start) => {
                    if start == 0 {
                        thread.needs_beginning()?;
                    }
                    starts.push(start);
                    at = start;
                }
                None if limit == 0 => {
                    thread.needs_beginning()?;
                    before = Some("history begins here".to_owned());
                    break;
                }
                None => {
                    before = thread
                        .history
                        .gap_between(limit - 1, limit)
                        .map(|(_, gap)| format!("gap: {}", gap.cause));
                    break;
                }
            }
        }
        Ok(())
    })?;
    starts.reverse();
    let mut steps: Vec<HistoryStep> = Vec::with_capacity(starts.len());
    let mut last: Option<(Option<String>, Option<CallId>)> = None;
    for start in starts {
        let step = history_step(navigator, thread, start, watch)?;
        let this = (step.0.function.clone(), step.1);
        let mut step = step.0;
        if last.as_ref() == Some(&this) {
            step.function = None;
        }
        last = Some(this);
        steps.push(step);
    }
    // The absolute depth is meaningless if history begins in the middle of the program.
    let outermost = steps.iter().map(|step| step.depth).min().unwrap_or(0);
    for step in &mut steps {
        step.depth -= outermost;
    }
    Ok(HistoryView { steps, before })
}

/// A step, and which call it is in.
fn history_step(
    navigator: &Navigator,
    thread: &Thread,
    index: u64,
    watch: &Watch<'_>,
) -> Result<(HistoryStep, Option<CallId>)> {
    let session = navigator.session();
    let forest = session.forest(thread, watch)?;
    let call = forest.call_at(index);
    let frames = thread.history.pc(index).zip(session.symbols_at(thread, index));
    let frames = frames
        .map(|(pc, symbols)| symbols.frames_at(pc))
        .unwrap_or_default();
    let inlined = frames.iter().filter(|frame| frame.inlined).count();
    let frame = frames.into_iter().next();
    let location = frame.as_ref().and_then(|frame| frame.location.clone());
    let file = location.as_ref().map(|location| location.file.to_string());
    let line = location.map(|location| location.line);
    let depth = call.map_or(0, |call| forest.depth(call) as usize) + inlined;
    let step = HistoryStep {
        position: thread.position(index).to_string(),
        time: time(navigator, thread, index),
        depth,
        inlined: inlined > 0,
        absolute_depth: depth,
        function: frame.map(|frame| frame.function.to_string()),
        text: file
            .as_deref()
            .zip(line)
            .and_then(|(file, line)| navigator.sources.line(file, line)),
        file,
        line,
    };
    Ok((step, call))
}

/// Lines `first` to `first + count - 1` of a file.
#[must_use]
pub fn source_lines(
    navigator: &Navigator,
    file: &str,
    first: u32,
    count: usize,
    current: Option<u32>,
) -> SourceLines {
    let lines = navigator.sources.lines(file, first, count);
    SourceLines::new(file, first, lines, current)
}

/// Returns the lines around the innermost frame of own code whose source is found. If none is, the
/// innermost frame with a line is used, and if its source is not found, its line alone.
#[must_use]
pub fn source_around(navigator: &Navigator, stack: &Stack, around: u32) -> Option<SourceLines> {
    let with_line = || {
        let frames = stack.frames.iter();
        let (own, others): (Vec<_>, Vec<_>) = frames.partition(|frame| frame.library.is_none());
        let frames = own.into_iter().chain(others);
        frames.filter_map(|frame| frame.file.clone().zip(frame.line))
    };
    let found = with_line().find(|(file, _)| navigator.sources.find_readable(file).is_some());
    let (file, line) = found.or_else(|| with_line().next())?;
    let first = line.saturating_sub(around).max(1);
    let count = (line - first).saturating_add(1).saturating_add(around) as usize;
    Some(source_lines(navigator, &file, first, count, Some(line)))
}

/// Returns the calls of the current thread that began last, oldest first. Their depth is the number
/// of calls around them in the history.
///
/// # Errors
/// If the thread has no history, or they began in what is not decoded yet; when canceled.
pub fn last_calls(navigator: &Navigator, count: usize, watch: &Watch<'_>) -> Result<Vec<CallView>> {
    let calls = Calls::new(navigator.session(), navigator.thread()?, watch)?;
    let forest = calls.forest();
    let mut last: Vec<_> = forest
        .ids()
        .rev()
        .take(count)
        .map(|id| calls.view(id, forest.depth(id) as usize))
        .collect::<Result<_>>()?;
    last.reverse();
    Ok(last)
}

/// Returns the outermost signal handler that runs at the end, if one does.
///
/// # Errors
/// When canceled.
pub fn handler(navigator: &Navigator, stack: &Stack, watch: &Watch<'_>) -> Result<Option<HandlerView>> {
    let Some(at) = stack.frames.iter().rposition(|frame| frame.signal_handler) else {
        return Ok(None);
    };
    let thread = navigator.thread()?;
    let forest = navigator.session().forest(thread, watch)?;
    let inside = forest.call_at(thread.history.len());
    let began = inside.and_then(|call| {
        let calls = forest.ancestors(call).map(|call| forest.call(call));
        calls
            .filter(|call| matches!(call.entered, Entered::Signal { .. }))
            .last()
    });
    let name = |at: usize| stack.frames.get(at).and_then(|frame| frame.function.clone());
    Ok(began.map(|call| HandlerView {
        handler: name(at),
        position: thread.position(call.first).to_string(),
        interrupted: name(at + 1),
    }))
}
