//! Bounds of times by the time stamps of a trace, and the off-CPU intervals of a thread.

use backtrail_decoder::{History, Mark, MarkKind, TimeEstimate};
use backtrail_pt::{Tsc, TscConversion};
use std::ops::Range;

/// The bounds of a point in time, or in the count of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeBound {
    pub earliest: u64,
    pub latest: u64,
}

/// An interval whose ends have bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeInterval {
    pub begin: TimeBound,
    pub end: TimeBound,
}

/// Computes the time bounds of positions in a history, in ticks or in the unit of a conversion.
#[derive(Clone, Copy)]
pub(crate) struct TimeBounds<'a> {
    pub history: &'a History,
    pub conversion: Option<TscConversion>,
}

/// An off-CPU interval: in the kernel, waiting, or in code that is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffCpu {
    /// The index of the next instruction.
    pub index: u64,
    /// The last time stamp before the interval.
    pub left: Option<Tsc>,
    /// The last time stamp at its end.
    pub back: Option<Tsc>,
}

impl TimeBound {
    pub fn exactly(at: u64) -> Self {
        Self {
            earliest: at,
            latest: at,
        }
    }
}

impl<'a> TimeBounds<'a> {
    /// Returns the bounds of an estimate. `None`: no later time stamp bounds it.
    pub fn moment(&self, estimate: TimeEstimate) -> Option<TimeBound> {
        Some(TimeBound {
            earliest: self.convert(estimate.tsc),
            latest: self.convert(estimate.latest()?),
        })
    }

    fn convert(&self, tsc: Tsc) -> u64 {
        self.conversion.map_or(tsc.0, |conversion| {
            conversion.nanos(tsc).0.wrapping_sub(conversion.nanos(Tsc(0)).0)
        })
    }

    /// Returns the off-CPU intervals before the instructions of a range.
    pub fn off_cpu_intervals(self, range: Range<u64>) -> impl Iterator<Item = OffCpu> + 'a {
        // A system call during which the thread was off-CPU has two marks.
        let groups = self
            .history
            .marks_in(range)
            .chunk_by(|one, next| one.index == next.index);
        groups.filter_map(OffCpu::of)
    }

    /// Returns the bounds of an interval. `None`: the trace has no time before or after it.
    pub fn stretch(&self, off_cpu: &OffCpu) -> Option<TimeInterval> {
        let left = self.moment(self.history.arrival(off_cpu.index)?)?;
        let back = self.moment(self.history.departure(off_cpu.index)?)?;
        let left = TimeBound {
            earliest: off_cpu.left.map_or(left.earliest, |left| self.convert(left)),
            ..left
        };
        let back = TimeBound {
            earliest: off_cpu.back.map_or(left.earliest, |back| self.convert(back)),
            ..back
        };
        Some(TimeInterval {
            begin: left,
            end: back,
        })
    }
}

impl OffCpu {
    /// Returns the interval that the marks before one instruction describe. `None`: there is none.
    pub fn of(marks: &[Mark]) -> Option<Self> {
        let mut known: Option<Self> = None;
        for mark in marks {
            let back = match mark.kind {
                MarkKind::LeftUser { back, .. }
                | MarkKind::Interrupted { back, .. }
                | MarkKind::Descheduled { back } => back,
                _ => continue,
            };
            match &mut known {
                Some(known) => known.back = known.back.max(back),
                None => {
                    known = Some(Self {
                        index: mark.index,
                        left: mark.tsc,
                        back,
                    });
                }
            }
        }
        known
    }
}
