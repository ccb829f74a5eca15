//! `stackTrace`.

use crate::debuggee::CurrentPosition;
use crate::failure::Result;
use crate::handles::FrameKey;
use crate::line_numbering::LineNumbering;
use crate::protocol::lenient::IntegerOrString;
use crate::protocol::types::{
    Source, SourcePresentationHint, StackFrame, StackFramePresentationHint, StackTraceArguments,
    StackTraceResponseBody,
};
use crate::session::ClientSession;
use backtrail_debugger::stack::Origin;
use backtrail_decoder::Watch;

/// The limit of frames in one response.
const MOST: usize = 1000;

/// Frames of a thread where it is now, inlined ones among them.
pub fn stack_trace(
    client: &mut ClientSession,
    arguments: StackTraceArguments,
    watch: &Watch<'_>,
) -> Result<StackTraceResponseBody> {
    let lines = LineNumbering::of(&client.features);
    let first_column = i64::from(client.features.columns_start_at1 != Some(false));
    let debuggee = client.debuggee()?;
    let tid = debuggee.tid(Some(arguments.thread_id))?;
    let start = usize::try_from(arguments.start_frame.unwrap_or(0)).unwrap_or(0);
    let levels = usize::try_from(arguments.levels.unwrap_or(0)).unwrap_or(0);
    let levels = if levels == 0 { MOST } else { levels.min(MOST) };
    let (position, left) = match debuggee.position_of(tid, watch)? {
        CurrentPosition::At(position) => (position, false),
        CurrentPosition::LeftAt(position) => (position, true),
        CurrentPosition::NotBegun => {
            let text = "the history of this thread begins later".to_owned();
            return Ok(StackTraceResponseBody {
                stack_frames: vec![label(
                    debuggee.handles.frame(FrameKey {
                        position: debuggee.navigator.position_of(tid),
                        number: FrameKey::NONE,
                    })?,
                    text,
                )],
                total_frames: Some(1),
            });
        }
    };
    let wanted = start.saturating_add(levels);
    let index = debuggee.navigator.session().thread(tid)?.index_of(position)?;
    let stack = debuggee
        .navigator
        .visiting(tid, index, |navigator| navigator.known_stack(wanted + 1, watch))?;
    let more = stack.frames.len() > wanted;
    let mut frames = Vec::new();
    for frame in stack.frames.iter().take(wanted).skip(start) {
        let id = debuggee.handles.frame(FrameKey {
            position,
            number: frame.number,
        })?;
        let source = frame
            .file
            .as_deref()
            .map(|file| debuggee.sources.describe(&debuggee.navigator, file));
        let source = source.map(|source| match &frame.library {
            Some(library) => Source {
                presentation_hint: Some(SourcePresentationHint::Deemphasize),
                origin: Some(source.origin.unwrap_or_else(|| library.clone())),
                ..source
            },
            None => source,
        });
        frames.push(StackFrame {
            id,
            name: name_of(frame),
            line: frame.line.map_or(0, |line| lines.write(line)),
            column: frame.line.map_or(0, |_| first_column),
            instruction_pointer_reference: frame.pc.map(|pc| format!("{pc:#x}")),
            module_id: frame.module.clone().map(IntegerOrString::String),
            presentation_hint: source.is_none().then_some(StackFramePresentationHint::Subtle),
            can_restart: Some(frame.call.is_some()),
            source,
            ..StackFrame::default()
        });
    }
    let beyond = match (&stack.unknown_beyond, left) {
        (_, true) => Some("the position at this time is unknown; this is the last position".to_owned()),
        (Some(why), _) => Some(why.clone()),
        (None, _) => None,
    };
    // The last line of the stack says why there are no more frames; it counts as one of them.
    let last = stack.frames.len();
    let mut total = last;
    if let Some(why) = beyond.filter(|_| !more) {
        total += 1;
        if (start..wanted).contains(&last) {
            let id = debuggee.handles.frame(FrameKey {
                position,
                number: FrameKey::NONE,
            })?;
            frames.push(label(id, why));
        }
    }
    Ok(StackTraceResponseBody {
        stack_frames: frames,
        total_frames: Some(total as i64),
    })
}

/// Returns a note between the frames of a stack.
fn label(id: i64, text: String) -> StackFrame {
    StackFrame {
        id,
        name: text,
        presentation_hint: Some(StackFramePresentationHint::Label),
        can_restart: Some(false),
        ..StackFrame::default()
    }
}

/// The function, with how it came to be there where that is no call.
fn name_of(frame: &backtrail_debugger::stack::StackFrame) -> String {
    let mut name = match (&frame.function, frame.pc) {
        (Some(function), _) => function.clone(),
        (None, Some(pc)) => format!("{pc:#x}"),
        (None, None) => "??".to_owned(),
    };
    for (holds, note) in [
        (frame.inlined, "inlined"),
        (frame.signal_handler, "signal handler"),
        (frame.tail_caller, "tail call"),
        (frame.called_through_bad_pointer, "called through a bad pointer"),
        (frame.origin == Origin::Core, "from the core"),
    ] {
        if holds {
            name = format!("{name} [{note}]");
        }
    }
    name
}
