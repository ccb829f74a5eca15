//! The selected frame: its code address, what is in scope there, and who knows its values.

use super::core_source::CoreSource;
use super::exact::ExactSource;
use super::recovery::{FramePosition, RecoveredSource};
use crate::error::Result;
use crate::navigator::Navigator;
use crate::session::Thread;
use crate::stack::{Origin, StackFrame, unwound};
use crate::unwind::PhysicalFrame;
use backtrail_decoder::{Call, Entered, Watch};
use backtrail_pt::Avma;
use backtrail_values::{Frame, NoSource, ValueSource};

/// Returns the selected frame of a navigator.
///
/// # Errors
/// When canceled; if the frame needs history that is not decoded yet.
pub fn selected<'a>(navigator: &'a Navigator, watch: &'a Watch<'a>) -> Result<Frame<'a>> {
    let selected = navigator.selected_frame();
    let frames = known_stack_of_frame(navigator, selected, watch)?;
    frame_at(
        navigator,
        &frames,
        FrameIndexes::new(&frames).nth(selected),
        watch,
    )
}

/// Returns the frames of the navigator's stack, from number `from` on.
///
/// `frames` are the innermost frames of the stack, without a hole.
pub fn all<'a, 'f>(
    navigator: &'a Navigator,
    frames: &'f [StackFrame],
    from: usize,
    watch: &'a Watch<'a>,
) -> impl Iterator<Item = Result<Frame<'a>>> + use<'a, 'f> {
    let places = FrameIndexes::new(frames).skip(from);
    places.map(move |place| frame_at(navigator, frames, Some(place), watch))
}

fn frame_at<'a>(
    navigator: &'a Navigator,
    frames: &[StackFrame],
    place: Option<FrameIndex>,
    watch: &'a Watch<'a>,
) -> Result<Frame<'a>> {
    let thread = navigator.thread()?;
    let Some(place) = place else {
        return Ok(Frame {
            look_up: None,
            pc: None,
            level: 0,
            source: Box::new(NoSource::because("there is no such frame")),
        });
    };
    let known = Frame {
        look_up: place.look_up(frames),
        pc: frames.get(place.selected).and_then(|frame| frame.pc),
        level: place.level,
        source: Box::new(NoSource::because("no core has the state of this thread")),
    };
    let session = navigator.session();
    let unwound = match navigator.is_at_end() {
        true => unwound(session, thread),
        false => None,
    };
    // Without the core's state, the recorded values of the end serve.
    if !navigator.is_at_end() || unwound.is_none() && session.replay(thread).is_some() {
        let moment = place.moment(frames, navigator, watch)?;
        let source = past_source(navigator, (thread, navigator.index()), moment, watch)?;
        return Ok(Frame { source, ..known });
    }
    let Some(unwound) = unwound else {
        return Ok(known);
    };
    let number = place.physical(frames, &unwound.frames);
    let physical = number.and_then(|number| unwound.frames.get(number));
    let number = number.ok_or_else(|| match (place.has_frame, unwound.end.reason()) {
        (false, _) => "its function left the frame by a tail call".into(),
        (true, Some(reason)) => format!("the core's stack ends before this frame: {reason}").into(),
        (true, None) => "the core does not have the frame".into(),
    });
    let look_up = physical.map(PhysicalFrame::look_up).or(known.look_up);
    let source = CoreSource::new(session, thread, &unwound.frames, number);
    Ok(Frame {
        look_up,
        source: source.map_or(known.source, |source| Box::new(source)),
        ..known
    })
}

/// Returns the source of the innermost frame before an instruction. `entry` is the first
/// instruction of its call.
///
/// # Errors
/// When canceled.
pub(super) fn source_in<'a>(
    navigator: &'a Navigator,
    (thread, index): (&'a Thread, u64),
    entry: Option<u64>,
    watch: &'a Watch<'a>,
) -> Result<Box<dyn ValueSource + 'a>> {
    let moment = FramePosition {
        at: Some(index),
        has_called: false,
        entry,
    };
    past_source(navigator, (thread, index), moment, watch)
}

/// Returns the source of a frame at a position, by what was recorded.
fn past_source<'a>(
    navigator: &'a Navigator,
    (thread, index): (&'a Thread, u64),
    moment: FramePosition,
    watch: &'a Watch<'a>,
) -> Result<Box<dyn ValueSource + 'a>> {
    let session = navigator.session();
    let process = navigator.process()?;
    let forest = session.forest(thread, watch)?;
    let source = RecoveredSource::new(session, process, thread, forest, moment);
    Ok(match session.replay(thread) {
        Some(replay) => Box::new(ExactSource::new(
            session,
            (process, thread),
            replay,
            source,
            moment,
            index,
            watch,
        )),
        None => Box::new(source),
    })
}

/// Returns the stack, at least up to the physical frame of a frame.
///
/// # Errors
///
/// If history that is not decoded yet may add frames among them; when canceled.
pub fn known_stack_of_frame(
    navigator: &Navigator,
    selected: usize,
    watch: &Watch<'_>,
) -> Result<Vec<StackFrame>> {
    /// The limit of functions that are inlined into each other.
    const INLINED: usize = 256;
    let stack = navigator.known_stack(selected.saturating_add(INLINED), watch)?;
    let physical = stack
        .frames
        .iter()
        .skip(selected)
        .position(|frame| !frame.inlined);
    let certain = physical.is_some_and(|more| {
        let mut inner = stack.frames.iter().take(selected + more + 1);
        !stack.needs_earlier || inner.all(|frame| frame.origin == Origin::Trace)
    });
    match certain {
        true => Ok(stack.frames),
        false => Ok(stack.complete()?.frames),
    }
}

/// Which physical frame a frame of the stack shows.
#[derive(Clone, Copy)]
struct FrameIndex {
    selected: usize,
    /// The first frame of the stack that is in the same physical frame.
    first: usize,
    /// The number of physical frames inside of it, without signal frames.
    inside: usize,
    /// Its number in its physical frame.
    level: usize,
    /// Whether it has a frame on the program's stack.
    has_frame: bool,
}

/// The places of all frames of a stack, innermost first.
struct FrameIndexes<'f> {
    frames: &'f [StackFrame],
    /// The index of the next frame.
    next: FrameIndex,
    /// The next frame that is not inlined, from that frame on.
    physical: usize,
}

impl<'f> FrameIndexes<'f> {
    fn new(frames: &'f [StackFrame]) -> Self {
        let next = FrameIndex {
            selected: 0,
            first: 0,
            inside: 0,
            level: 0,
            has_frame: false,
        };
        Self {
            frames,
            next,
            physical: 0,
        }
    }
}

impl Iterator for FrameIndexes<'_> {
    type Item = FrameIndex;

    fn next(&mut self) -> Option<FrameIndex> {
        let frame = self.frames.get(self.next.selected)?;
        self.physical = self.physical.max(self.next.selected);
        while self.frames.get(self.physical).is_some_and(|frame| frame.inlined) {
            self.physical += 1;
        }
        let physical = self.frames.get(self.physical);
        let place = FrameIndex {
            has_frame: physical.is_some_and(|frame| !frame.tail_caller),
            ..self.next
        };
        self.next.selected += 1;
        if frame.inlined {
            self.next.level += 1;
        } else {
            (self.next.first, self.next.level) = (self.next.selected, 0);
            self.next.inside += usize::from(!frame.tail_caller);
        }
        Some(place)
    }
}

impl FrameIndex {
    /// Returns the address at which its variables are looked up, by the stack alone.
    fn look_up(&self, frames: &[StackFrame]) -> Option<Avma> {
        let pc = frames.get(self.selected)?.pc?;
        let interrupted = self.first == 0
            || frames
                .get(self.first - 1)
                .is_some_and(|inner| inner.signal_handler);
        Some(Avma(if interrupted { pc } else { pc.wrapping_sub(1) }))
    }

    /// Returns the position of the frame in the history.
    fn moment(
        &self,
        frames: &[StackFrame],
        navigator: &Navigator,
        watch: &Watch<'_>,
    ) -> Result<FramePosition> {
        let thread = navigator.thread()?;
        let forest = navigator.session().forest(thread, watch)?;
        let call = |number: usize| {
            let name = frames.get(number)?.call.as_deref()?.parse().ok()?;
            Some(forest.call(thread.call_named(forest, name).ok()??))
        };
        let site_of = |call: Call| match call.entered {
            Entered::Call { site } => Some(site),
            _ => None,
        };
        let at = match self.first.checked_sub(1) {
            None => Some(navigator.index()),
            Some(inner) => call(inner).and_then(site_of).filter(|_| self.has_frame),
        };
        let entered = call(self.selected).filter(|call| site_of(*call).is_some());
        let entry = entered.map(|call| call.first);
        if at
            .into_iter()
            .chain(entry)
            .any(|index| index < FramePosition::REACH)
        {
            thread.needs_beginning()?;
        }
        Ok(FramePosition {
            at,
            has_called: self.first > 0,
            entry,
        })
    }

    /// Returns the number of the physical frame, if it has the same program counter.
    fn physical(&self, frames: &[StackFrame], physical: &[PhysicalFrame]) -> Option<usize> {
        let pc = frames.get(self.selected)?.pc?;
        let mut shown = physical
            .iter()
            .enumerate()
            .filter(|(_, frame)| !frame.signal_frame);
        let (number, frame) = shown.nth(self.inside)?;
        (self.has_frame && frame.pc.0 == pc).then_some(number)
    }
}
