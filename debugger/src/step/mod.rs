//! The motions, each defined as a choice among fixed positions of a thread's history.
//!
//! Every motion has a forward and a backward form, which choose from the same set of positions:
//!
//! | motion | goes to the nearest … after, or before, the position |
//! |---|---|
//! | `stepi` | instruction |
//! | `nexti` | instruction of the current call or of a call around it |
//! | `step` | line start ([`crate::lines`]) of own code |
//! | `next` | line start of own code in the current frame or in a frame around it |
//! | `continue` | hit of a breakpoint |
//! | `advance` | hit of the location, or exit from the current frame |
//! | `finish` | forward: the instruction after the selected frame's return; backward: its call |
//!
//! In addition, every motion stops at the start and the end of history, and at the first
//! instruction after a gap, in both directions. A backward motion from there crosses the gap. Its
//! frame is the one that history was in before the gap.
//!
//! The pairs return to these positions:
//!
//! - `stepi`, `step` and `continue` with their reverses: from any position of the set, each undoes
//!   the other. From between two positions of the set, forward then backward goes to the previous
//!   one.
//! - `nexti` and `next`: the same, if both ends are in the same frame. If the forward move returned
//!   from a call, the way back goes to that call: its instruction, or the start of its line.
//! - `finish`, then `reverse-nexti`, goes to the call, as `reverse-finish` would have done.
//!   `reverse-finish`, then `nexti`, goes to the target of `finish`.
//!
//! Own code is the code that the [`StepFilter`] does not pass over. If `next` comes to a caller
//! that is passed over, it goes on as `step`. The caller may call own code back, or return to it.
//! `finish` leaves library frames around the selected one too.
//!
//! Breakpoint hits stop every motion on its way, also in code that is passed over.

mod call;
mod direction;
mod filter;
mod instruction;
mod line;
mod run;

use crate::breakpoint::Hits;
use crate::code::ChainId;
use crate::error::Result;
use crate::lines::{FrameKey, LineStarts};
use crate::skip::StepFilter;
use crate::stop::StopReason;
use backtrail_decoder::{CallId, Forest, History, MarkKind};
pub use direction::Direction;

/// A motion, without its direction.
#[derive(Clone, Debug)]
pub enum Motion {
    /// `stepi`
    Instruction,
    /// `nexti`
    NextInstruction,
    /// `step`
    Step,
    /// `next`
    Next,
    /// `finish`, of the selected frame
    Finish,
    /// `continue`
    Continue,
    /// `advance`
    Advance(Hits),
}

/// The target of a motion, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Before this instruction.
    pub index: u64,
    /// The reason.
    pub reason: StopReason,
}

/// Moves in one thread's history.
pub struct Steps<'a> {
    /// Line starts, and the history and forest they are in.
    pub lines: LineStarts<'a>,
    /// Before which instructions history is missing, ascending; not 0.
    pub gaps: &'a [u64],
    /// The frame that `finish` leaves, 0 being the innermost, inlined ones counted.
    pub frame: usize,
    /// The event at the end of the history.
    pub crash: Option<String>,
    /// The code that steps by lines and `finish` pass over.
    pub filter: StepFilter,
}

impl<'a> Steps<'a> {
    /// Returns the target of `motion` from `from`, without regard to breakpoints.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn target(&self, motion: &Motion, direction: Direction, from: u64) -> Result<Target> {
        let found = match (motion, direction) {
            (Motion::Instruction, Direction::Forward) => Some(from.saturating_add(1)),
            (Motion::Instruction, Direction::Backward) => from.checked_sub(1),
            (Motion::NextInstruction, _) => self.next_instruction(direction, from)?,
            (Motion::Step, _) => self.step(direction, from)?,
            (Motion::Next, _) => self.next(direction, from)?,
            (Motion::Finish, _) => self.finish(direction, from, self.frame)?,
            (Motion::Continue, _) => None,
            (Motion::Advance(hits), _) => self.advance(hits, direction, from)?,
        };
        Ok(self.within_limits(found, direction, from))
    }

    /// The end of the stretch of history that a move from `from` can see.
    #[must_use]
    pub fn limit(&self, direction: Direction, from: u64) -> u64 {
        match direction {
            Direction::Forward => self.gap_after(from).unwrap_or(self.history().len()),
            Direction::Backward => self.gap_before(from).unwrap_or(0),
        }
    }

    fn within_limits(&self, found: Option<u64>, direction: Direction, from: u64) -> Target {
        let limit = self.limit(direction, from);
        let index = match (found, direction) {
            (Some(index), Direction::Forward) => index.min(limit),
            (Some(index), Direction::Backward) => index.max(limit),
            (None, _) => limit,
        };
        let found_here = found == Some(index);
        let reason = match self.gap_at(index) {
            Some(cause) if index == limit && index != from => StopReason::Gap { cause },
            _ if direction == Direction::Forward && index == self.history().len() => StopReason::HistoryEnd {
                crash: self.crash.clone(),
            },
            _ if index == 0 && direction == Direction::Backward && !found_here => StopReason::HistoryStart,
            _ => StopReason::Done,
        };
        Target { index, reason }
    }

    /// Returns the history of the thread.
    #[must_use]
    pub fn history(&self) -> &'a History {
        self.lines.history
    }

    /// Returns the call forest of the thread.
    #[must_use]
    pub fn forest(&self) -> &'a Forest {
        self.lines.forest
    }

    /// The call that counts as the current one for a move from `from`.
    fn call(&self, direction: Direction, from: u64) -> Option<CallId> {
        self.forest().call_at(self.seen_from(direction, from))
    }

    fn current_frame(&self, direction: Direction, from: u64) -> Option<FrameKey> {
        self.lines.frame(self.seen_from(direction, from))
    }

    /// Going backward from a gap, what was before it counts.
    fn seen_from(&self, direction: Direction, from: u64) -> u64 {
        let crosses = direction == Direction::Backward && from > 0 && self.gap_at(from).is_some();
        if crosses { from - 1 } else { from }
    }

    fn is_inlined(frame: FrameKey) -> bool {
        frame.chain != ChainId::default()
    }

    fn gap_at(&self, index: u64) -> Option<String> {
        self.gaps.binary_search(&index).ok()?;
        let marks = self.history().marks_in(index..index.saturating_add(1));
        marks.iter().find_map(|mark| match &mark.kind {
            MarkKind::Gap(gap) => Some(gap.cause.to_string()),
            _ => None,
        })
    }

    fn gap_after(&self, index: u64) -> Option<u64> {
        let after = self.gaps.partition_point(|&gap| gap <= index);
        self.gaps
            .get(after)
            .copied()
            .filter(|&gap| gap < self.history().len())
    }

    fn gap_before(&self, index: u64) -> Option<u64> {
        let until = self.gaps.partition_point(|&gap| gap < index);
        self.gaps.get(until.checked_sub(1)?).copied()
    }
}
