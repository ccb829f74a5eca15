//! Stacks of threads with the known values of their variables.

use super::modules::Modules;
use super::result::{FrameView, KnownValue, StackView, ValueKind};
use crate::stack::Frame;
use backtrail_console::Output;
use backtrail_console::commands::execute;
use backtrail_debugger::navigator::{FrameArguments, Navigator};
use backtrail_debugger::session::{Session, Thread};
use backtrail_debugger::stack::{Stack, StackFrame};
use backtrail_debugger::{Result, Watch};

/// The most frames of the crashed thread.
pub(super) const FRAMES: usize = 128;
/// The most frames of another thread.
const OTHER_FRAMES: usize = 40;
/// The most other threads.
const THREADS: usize = 128;
/// The most values of a frame.
const VALUES: usize = 40;
/// The longest value, in bytes.
const VALUE: usize = 400;

/// Returns the stack of the crashed thread, with values if they are wanted.
pub(super) fn crashed(navigator: &mut Navigator, with_values: bool, watch: &Watch<'_>) -> Result<StackView> {
    navigator.frame_arguments = match with_values {
        true => FrameArguments::All,
        false => FrameArguments::None,
    };
    let command = format!("backtrace full {FRAMES}");
    let answer = execute(navigator, &command, watch);
    let thread = navigator.thread()?;
    // Without debug information there are no scopes, and the command fails.
    let (stack, locals, more) = match answer {
        Ok(Output::FullBacktrace { stack, locals, more }) => (stack, locals, more),
        _ => {
            let mut stack = navigator.known_stack(FRAMES + 1, watch)?;
            let more = cut(&mut stack, FRAMES);
            (stack, Vec::new(), more)
        }
    };
    let mut view = view(thread, stack, more, &Modules::of(navigator.session()));
    if with_values {
        for (frame, locals) in view.frames.iter_mut().zip(locals) {
            let known = locals.into_iter().filter(|local| local.value.unknown.is_none());
            let locals = known.map(|local| (local.name, local.value.text));
            add_values(frame, ValueKind::Local, locals);
        }
    }
    Ok(view)
}

/// Returns the stacks of the other threads, and the number of further ones.
pub(super) fn others(
    session: &Session,
    crashed: &Thread,
    modules: &Modules<'_>,
    watch: &Watch<'_>,
) -> Result<(Vec<StackView>, usize)> {
    let others = || {
        session
            .threads()
            .iter()
            .filter(|thread| thread.tid != crashed.tid)
    };
    let mut views = Vec::new();
    for thread in others().take(THREADS) {
        let index = thread.history.len();
        let mut stack = backtrail_debugger::stack::stack(session, thread, index, OTHER_FRAMES + 1, watch)?;
        let more = cut(&mut stack, OTHER_FRAMES);
        views.push(view(thread, stack, more, modules));
    }
    Ok((views, others().count().saturating_sub(THREADS)))
}

/// Leaves no more frames than `limit`. Returns whether there were more.
fn cut(stack: &mut Stack, limit: usize) -> bool {
    let more = stack.frames.len() > limit;
    stack.frames.truncate(limit);
    more
}

fn view(thread: &Thread, stack: Stack, more: bool, modules: &Modules<'_>) -> StackView {
    let mut frames = Vec::with_capacity(stack.frames.len());
    // A frame is at its next instruction if it is the innermost or was interrupted by a signal.
    let mut at_instruction = true;
    for frame in stack.frames {
        let (is_inlined, is_handler) = (frame.inlined, frame.signal_handler);
        frames.push(frame_view(frame, at_instruction, modules));
        if !is_inlined {
            at_instruction = is_handler;
        }
    }
    StackView {
        thread: thread.tid.0,
        name: thread.name.as_deref().map(bounded),
        position: thread.position(thread.history.len()).to_string(),
        instructions: thread.history.len(),
        frames,
        more,
        unknown_beyond: stack.unknown_beyond,
    }
}

fn frame_view(frame: StackFrame, at_instruction: bool, modules: &Modules<'_>) -> FrameView {
    let mut view = FrameView {
        frame: Frame {
            function: frame.function.as_deref().map(bounded_name),
            file: frame.file.as_deref().map(bounded_name),
            line: frame.line,
            inlined: frame.inlined,
            ..Frame::default()
        },
        pc: frame.pc,
        signal_handler: frame.signal_handler,
        tail_caller: frame.tail_caller,
        bad_pointer: frame.called_through_bad_pointer,
        values: Vec::new(),
    };
    if let Some(pc) = frame.pc {
        // A caller is at the last byte of its call, as reports have it.
        let at = if at_instruction { pc } else { pc.saturating_sub(1) };
        modules.locate(&mut view.frame, at);
    }
    let arguments = frame.arguments.into_iter().flatten();
    let known = arguments.filter_map(|argument| Some((argument.name, argument.value?)));
    add_values(&mut view, ValueKind::Argument, known);
    view
}

/// Adds the values that are known exactly.
fn add_values(frame: &mut FrameView, kind: ValueKind, values: impl Iterator<Item = (String, String)>) {
    let is_exact =
        |text: &str| !text.contains("<unknown") && !text.contains("<optimized out>") && text != "...";
    let room = VALUES.saturating_sub(frame.values.len());
    let exact = values.filter(|(_, text)| is_exact(text)).take(room);
    frame.values.extend(exact.map(|(name, text)| KnownValue {
        kind,
        name: bounded_name(&name),
        value: bounded(&text),
    }));
}

/// Returns a text without what is beyond the limit of a value.
pub(super) fn bounded(text: &str) -> String {
    shortened(text, VALUE)
}

/// Returns the name of a function, a file or a variable, without what is beyond its limit.
pub(super) fn bounded_name(text: &str) -> String {
    shortened(text, 4096)
}

/// Returns a text of at most `limit` bytes; `…` is the mark of a cut.
fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = (0..=limit)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("aéé", 4), "aé…");
    }

    #[test]
    fn only_exact_values_are_kept() {
        let mut frame = FrameView::default();
        let values = [
            ("a", "1"),
            ("b", "<unknown: not saved>"),
            ("c", "{x = <optimized out>}"),
            ("d", "..."),
        ];
        let values = values.map(|(name, text)| (name.to_owned(), text.to_owned()));
        add_values(&mut frame, ValueKind::Local, values.into_iter());
        assert_eq!(frame.values.len(), 1);
        assert_eq!(frame.values[0].name, "a");
    }
}
