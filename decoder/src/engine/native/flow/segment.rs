//! Segments of a trace, and the state at a segment boundary, for merging.
//!
//! A boundary is a PSB that the flow passes. The PSB+ has the address of the flow, so that the
//! second segment can be decoded before the first. Two segments give the result of one decode on
//! two conditions. Both have the same state at the PSB, and no compressed return of the second
//! needs a call of the first. Times of the second segment are resolved when the first is known.
//!
//! Source: SDM volume 3, "Indirect Transfer Compression for Returns (RET)": a compressed return
//! refers to a call since the last PSB.

use super::FlowDecoder;
use crate::engine::native::code::Exit;
use backtrail_pt::instruction::Mode;
use backtrail_pt::packet::ExecMode;

/// A part of a trace to decode; by default all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    /// The PSB at its start; `None`: the first one.
    pub from: Option<usize>,
    /// The PSB at its end; `None`: the end of the trace.
    pub to: Option<usize>,
}

/// The decoder's state at a PSB, apart from the return stack and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BoundaryState {
    /// The offset of the PSB.
    psb: usize,
    /// The mode in the PSB+; if it has none, the mode before it.
    exec_mode: Option<ExecMode>,
    mode: Option<Mode>,
}

/// The states at the boundaries of a decoded segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentResult {
    /// The state at the PSB at its start; `None`: the flow does not pass it.
    first: Option<BoundaryState>,
    /// The state at the PSB at its end; `None`: the flow does not reach it.
    last: Option<BoundaryState>,
    /// A return needs a call before the segment.
    needs_earlier_call: bool,
}

impl SegmentResult {
    /// Returns whether a sequential decode after this segment would have produced `next`.
    pub fn is_continued_by(&self, next: &Self) -> bool {
        self.last.is_some() && self.last == next.first && !next.needs_earlier_call
    }
}

/// The progress of the decode of a segment.
pub(super) struct SegmentProgress {
    /// The PSB at its start, if an earlier segment is decoded separately.
    from: Option<usize>,
    to: Option<usize>,
    reached: bool,
    result: SegmentResult,
}

impl SegmentProgress {
    pub fn new(segment: &Segment) -> Self {
        Self {
            from: segment.from,
            to: segment.to,
            reached: false,
            result: SegmentResult::default(),
        }
    }

    /// Returns whether the current output belongs to the previous segment.
    #[inline]
    pub fn is_before_start(&self) -> bool {
        self.from.is_some() && self.result.first.is_none()
    }

    /// Returns whether the segment starts or ends at this PSB.
    pub fn is_boundary(&self, psb: usize) -> bool {
        self.from == Some(psb) || self.to == Some(psb)
    }

    /// Returns whether the end of the segment is reached.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.reached
    }

    /// Returns whether a decode that starts at this PSB is outside the segment.
    pub fn is_past(&self, psb: Option<usize>) -> bool {
        let other_address = self.is_before_start() && psb != self.from;
        other_address || self.to.is_some_and(|to| psb > Some(to))
    }

    /// Returns whether a decode that started at this PSB may need earlier calls.
    pub fn may_lack_calls(&self, psb: Option<usize>) -> bool {
        self.from.is_some() && psb == self.from
    }

    pub fn note_missing_call(&mut self) {
        self.result.needs_earlier_call = true;
    }

    pub fn take_result(&mut self) -> SegmentResult {
        std::mem::take(&mut self.result)
    }
}

impl FlowDecoder<'_, '_> {
    /// The most blocks between the last packet before a PSB and the address in the PSB+.
    const MAX_BRIDGE: usize = 1 << 12;

    /// Handles the PSB at `psb` in the flow, whose PSB+ has the address `at`.
    pub(super) fn pass_boundary(&mut self, psb: usize, at: u64) {
        let progress = &mut self.progress;
        let first = progress.from == Some(psb) && progress.result.first.is_none();
        let last = progress.to == Some(psb);
        if !first && !last {
            return;
        }
        let exec_mode = self.events.mode();
        let state = BoundaryState {
            psb,
            exec_mode,
            mode: self.mode.filter(|_| exec_mode.is_none()),
        };
        if first {
            progress.result.first = Some(state);
        } else {
            progress.reached = true;
            self.progress.result.last = self.bridge_to(at).then_some(state);
        }
    }

    /// Follows the code without packets to an address. Returns whether the code leads there.
    fn bridge_to(&mut self, at: u64) -> bool {
        for _ in 0..Self::MAX_BRIDGE {
            if self.ip == at {
                return true;
            }
            let Ok(id) = self.find_block(self.ip) else {
                return false;
            };
            let Some(&block) = self.cache.code.blocks.get(id.index()) else {
                return false;
            };
            let is_there = |&within: &u32| {
                let found = self.cache.code.instruction(&block, within);
                found.is_some_and(|(pc, _)| pc == at)
            };
            if let Some(within) = (1..block.count).find(is_there) {
                self.emit_instructions(&block, 0, within);
                self.ip = at;
                return true;
            }
            self.emit_instructions(&block, 0, block.count);
            self.ip = match block.exit {
                Exit::FallThrough => block.end,
                Exit::Jump { target } | Exit::Call { target } => target,
                _ => return false,
            };
        }
        false
    }
}
