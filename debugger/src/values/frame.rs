//! The selected frame: its code address, what is in scope there, and who knows its values.

use super::past::{Moment, PastSource};
use super::source::{CoreSource, NoSource, ValueSource};
use crate::error::Result;
use crate::navigator::Navigator;
use crate::stack::{Origin, StackFrame, unwound};
use crate::unwind::PhysicalFrame;
use backtrail_decoder::{Call, Entered, Watch};
use backtrail_pt::Avma;

/// A frame as values need it.
pub(crate) struct SelectedFrame<'a> {
    /// Where its variables are looked up; `None`: unknown.
    pub look_up: Option<Avma>,
    /// Where it stands.
    pub pc: Option<u64>,
    /// How many inlined copies are inside of it in the same physical frame.
    pub level: usize,
    /// Who knows its registers and memory.
    pub source: Box<dyn ValueSource + 'a>,
}

impl<'a> SelectedFrame<'a> {
    /// The frame that is selected.
    pub fn of(navigator: &'a Navigator, watch: &Watch<'_>) -> Result<Self> {
        let selected = navigator.selected_frame();
        Self::in_stack(navigator, &known(navigator, selected, watch)?, selected, watch)
    }

    /// A frame of the stack where the navigator stands, which has at least the frames up to the physical frame that it is in.
    pub fn in_stack(
        navigator: &'a Navigator,
        frames: &[StackFrame],
        number: usize,
        watch: &Watch<'_>,
    ) -> Result<Self> {
        let place = Place::find(frames, number);
        let thread = navigator.thread()?;
        let known = Self {
            look_up: place.look_up(frames),
            pc: frames.get(number).and_then(|frame| frame.pc),
            level: place.level,
            source: Box::new(NoSource::because("no core has the state of this thread")),
        };
        let session = navigator.session();
        if !navigator.is_at_end() {
            let moment = place.moment(frames, navigator, watch)?;
            let source = PastSource::new(session, navigator.process()?, thread, moment);
            return Ok(Self {
                source: Box::new(source),
                ..known
            });
        }
        let Some(unwound) = unwound(session, thread) else {
            return Ok(known);
        };
        let number = place.physical(frames, &unwound.frames);
        let physical = number.and_then(|number| unwound.frames.get(number));
        let look_up = physical.map(PhysicalFrame::look_up).or(known.look_up);
        let source = CoreSource::new(session, thread, &unwound.frames, number);
        Ok(Self {
            look_up,
            source: source.map_or(known.source, |source| Box::new(source)),
            ..known
        })
    }
}

/// The stack, at least to the physical frame that the selected frame is in; where what is not decoded yet may tell of
/// more frames among them, it has to be.
fn known(navigator: &Navigator, selected: usize, watch: &Watch<'_>) -> Result<Vec<StackFrame>> {
    /// So many copies are inlined into each other, at most.
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
struct Place {
    selected: usize,
    /// The first frame of the stack that is in the same physical frame.
    first: usize,
    /// How many physical frames are inside of it; signal frames are not shown and not counted.
    inside: usize,
    /// Its number in its physical frame.
    level: usize,
    /// It has a frame on the program's stack.
    has_frame: bool,
}

impl Place {
    fn find(frames: &[StackFrame], selected: usize) -> Self {
        let (mut first, mut inside) = (0, 0);
        for (number, frame) in frames.iter().enumerate().take(selected) {
            if !frame.inlined {
                first = number + 1;
                inside += usize::from(!frame.tail_caller);
            }
        }
        let physical = frames.iter().skip(selected).find(|frame| !frame.inlined);
        Self {
            selected,
            first,
            inside,
            level: selected - first,
            has_frame: physical.is_some_and(|frame| !frame.tail_caller),
        }
    }

    /// Where its variables are looked up, by the stack alone.
    fn look_up(&self, frames: &[StackFrame]) -> Option<Avma> {
        let pc = frames.get(self.selected)?.pc?;
        let interrupted = self.first == 0
            || frames
                .get(self.first - 1)
                .is_some_and(|inner| inner.signal_handler);
        Some(Avma(if interrupted { pc } else { pc.wrapping_sub(1) }))
    }

    /// When in the history it is meant.
    fn moment(&self, frames: &[StackFrame], navigator: &Navigator, watch: &Watch<'_>) -> Result<Moment> {
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
        if at.into_iter().chain(entry).any(|index| index < Moment::REACH) {
            thread.needs_beginning()?;
        }
        Ok(Moment {
            at,
            has_called: self.first > 0,
            entry,
        })
    }

    /// The number of the physical frame, where it stands at the same address.
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
