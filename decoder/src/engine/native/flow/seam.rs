//! Where a decode may begin and end in the middle of a trace: at a PSB that the flow passes.
//!
//! A PSB+ tells where the flow is, so that what is behind can be decoded before what is in front of it.
//! Both halves make what one decode makes when both know the same at the PSB, and no return behind it needs
//! a call before it (SDM volume 3, "Indirect Transfer Compression for Returns (RET)": only calls since the last PSB count).
//! The time behind it is worked out when that in front is known.

use super::Flow;
use crate::engine::native::code::Exit;
use backtrail_pt::instruction::Mode;
use backtrail_pt::packet::ExecMode;

/// A part of a trace to decode: all of it by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    /// The PSB that it begins at; `None`: the first there is.
    pub from: Option<usize>,
    /// The PSB that it ends at; `None`: it ends where the trace does.
    pub to: Option<usize>,
}

/// What decoding knows where it passes a PSB, but for the calls that have not returned, and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seam {
    /// Where the PSB stands.
    psb: usize,
    /// What the PSB+ says of the mode, and when that is nothing, what is known of it.
    exec_mode: Option<ExecMode>,
    mode: Option<Mode>,
}

/// How the decode of a segment began and ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// At the PSB that it begins at; `None`: no flow passes there.
    first: Option<Seam>,
    /// At the PSB that it ends at; `None`: the flow does not come there.
    last: Option<Seam>,
    /// A return needs a call before the segment.
    lacks_calls: bool,
}

impl Ended {
    /// What was decoded of `next` is what decoding on behind this would have made.
    pub fn is_continued_by(&self, next: &Self) -> bool {
        self.last.is_some() && self.last == next.first && !next.lacks_calls
    }
}

/// Where the segment being decoded begins and ends, and what was met there.
pub(super) struct Bounds {
    /// The PSB that it begins at, when what is before was decoded apart.
    from: Option<usize>,
    to: Option<usize>,
    reached: bool,
    ended: Ended,
}

impl Bounds {
    pub fn new(segment: &Segment) -> Self {
        Self {
            from: segment.from,
            to: segment.to,
            reached: false,
            ended: Ended::default(),
        }
    }

    /// What the trace tells now was told with the segment before.
    #[inline]
    pub fn is_muted(&self) -> bool {
        self.from.is_some() && self.ended.first.is_none()
    }

    /// The segment begins or ends at this PSB.
    pub fn are_at(&self, psb: usize) -> bool {
        self.from == Some(psb) || self.to == Some(psb)
    }

    /// The flow has come to the end.
    #[inline]
    pub fn are_reached(&self) -> bool {
        self.reached
    }

    /// A decode that begins at this PSB does not belong to the segment.
    pub fn are_passed(&self, psb: Option<usize>) -> bool {
        let elsewhere = self.is_muted() && psb != self.from;
        elsewhere || self.to.is_some_and(|to| psb > Some(to))
    }

    /// A decode that began at this PSB may need calls before it.
    pub fn may_lack_calls(&self, psb: Option<usize>) -> bool {
        self.from.is_some() && psb == self.from
    }

    pub fn lack_calls(&mut self) {
        self.ended.lacks_calls = true;
    }

    pub fn ended(&mut self) -> Ended {
        std::mem::take(&mut self.ended)
    }
}

impl Flow<'_, '_> {
    /// Blocks from where the last packet before a PSB leaves the flow to where the PSB tells that it is.
    const MAX_BRIDGE: usize = 1 << 12;

    /// The flow passes the PSB at `psb`, which tells that it is at the address `at`.
    pub(super) fn pass(&mut self, psb: usize, at: u64) {
        let bounds = &mut self.bounds;
        let first = bounds.from == Some(psb) && bounds.ended.first.is_none();
        let last = bounds.to == Some(psb);
        if !first && !last {
            return;
        }
        let exec_mode = self.events.mode();
        let seam = Seam {
            psb,
            exec_mode,
            mode: self.mode.filter(|_| exec_mode.is_none()),
        };
        if first {
            bounds.ended.first = Some(seam);
        } else {
            bounds.reached = true;
            self.bounds.ended.last = self.go_to(at).then_some(seam);
        }
    }

    /// Goes on to an address without a packet; says whether the code leads there.
    fn go_to(&mut self, at: u64) -> bool {
        for _ in 0..Self::MAX_BRIDGE {
            if self.ip == at {
                return true;
            }
            let Ok(id) = self.find(self.ip) else { return false };
            let Some(&block) = self.learnt.code.blocks.get(id as usize) else {
                return false;
            };
            let is_there = |&within: &u32| {
                let found = self.learnt.code.instruction(&block, within);
                found.is_some_and(|(pc, _)| pc == at)
            };
            if let Some(within) = (1..block.count).find(is_there) {
                self.emit(&block, 0, within);
                self.ip = at;
                return true;
            }
            self.emit(&block, 0, block.count);
            self.ip = match block.exit {
                Exit::Through => block.end,
                Exit::Jump { target } | Exit::Call { target } => target,
                _ => return false,
            };
        }
        false
    }
}
