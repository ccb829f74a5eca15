//! Lengths of calls, between the least and the most that the trace allows, and where the time of
//! one went.

use super::time_bounds::{OffCpu, TimeBound, TimeBounds, TimeInterval};
use crate::session::Thread;
use crate::time::Timebase;
use crate::time::{nanos, nanos_pair};
use backtrail_decoder::{Call, CallId, Entered, Forest, History, Left};
use backtrail_pt::TscConversion;
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// The unit of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// TSC ticks, where no conversion to nanoseconds is known.
    Ticks,
    /// Executed instructions.
    Instructions,
}

impl Unit {
    /// Returns an amount with its unit: `3.200 µs`, `40 instructions`.
    #[must_use]
    pub fn amount(self, amount: u64) -> String {
        match self {
            Self::Ns => nanos(i64::try_from(amount).unwrap_or(i64::MAX)),
            Self::Ticks => format!("{amount} ticks"),
            Self::Instructions => format!("{amount} instructions"),
        }
    }

    /// Returns two amounts. A unit that both have is in the last text only.
    #[must_use]
    pub fn amounts(self, [first, last]: [u64; 2]) -> [String; 2] {
        match self {
            Self::Ns => nanos_pair([first, last]),
            Self::Ticks | Self::Instructions => [first.to_string(), self.amount(last)],
        }
    }
}

/// A length that is not below the least and not above the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "[u64; 2]")]
pub struct Span {
    /// The lower bound.
    pub least: u64,
    /// The upper bound.
    pub most: u64,
}

impl Span {
    /// Returns the span with its unit: `3.200 µs`, `< 40 instructions`, `2–5 ticks`.
    #[must_use]
    pub fn describe(self, unit: Unit) -> String {
        match self {
            Self { least, most } if least == most => unit.amount(most),
            Self { least: 0, most } => format!("< {}", unit.amount(most)),
            Self { least, most } => unit.amounts([least, most]).join("–"),
        }
    }
}

/// The reason why the length of a call is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmeasured {
    /// The call was running when history began.
    BeganBeforeHistory,
    /// The call was running after a gap.
    BeganInGap,
    /// The call was running before, and was resumed on its own stack.
    Resumed,
    /// Flow came into it in a way that no rule explains.
    BeganUnseen,
    /// The call was running when history ended.
    NotEnded,
    /// The call was running when a gap began.
    EndedInGap,
    /// History is missing in the middle of it.
    GapInside,
    /// The trace has no time stamp before its beginning, or none after its end.
    NoTime,
}

/// The parts of a call's time. They overlap by at most the uncertainty of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Split {
    /// In its own code.
    #[serde(rename = "self")]
    pub own: Span,
    /// In the code of what it called.
    pub callees: Span,
    /// Off-CPU, in it or in what it called: in the kernel, or waiting for something or for a
    /// processor.
    pub off_cpu: Span,
}

/// Measures the calls of a thread.
#[derive(Clone, Copy)]
pub struct CallTimer<'a> {
    history: &'a History,
    forest: &'a Forest,
    gaps: &'a [u64],
    unit: Unit,
    conversion: Option<TscConversion>,
}

/// The length of the union of intervals, which are added in the order of their starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntervalUnion {
    until: u64,
    end: u64,
    /// The covered length.
    pub length: u64,
}

impl Unit {
    /// Returns the unit of the times of a trace.
    #[must_use]
    pub fn of_time(times: &Timebase) -> Self {
        times.conversion.map_or(Self::Ticks, |_| Self::Ns)
    }
}

impl From<Span> for [u64; 2] {
    fn from(span: Span) -> Self {
        [span.least, span.most]
    }
}

impl Span {
    /// Returns a span of a known length.
    #[must_use]
    pub fn exactly(length: u64) -> Self {
        Self {
            least: length,
            most: length,
        }
    }

    /// Returns the sum of two spans.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }

    /// Limits the upper bound to that of another span.
    #[must_use]
    pub fn at_most(self, most: u64) -> Self {
        Self {
            least: self.least.min(most),
            most: self.most.min(most),
        }
    }

    /// Returns the lower and upper bound of the length that `other` exceeds this span by.
    #[must_use]
    pub fn to(self, other: Self) -> [i64; 2] {
        let difference = |one: u64, other: u64| {
            let wide = i128::from(other) - i128::from(one);
            wide.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        [
            difference(self.most, other.least),
            difference(self.least, other.most),
        ]
    }
}

impl TimeInterval {
    pub fn span(&self) -> Span {
        Span {
            least: self.end.earliest.saturating_sub(self.begin.latest),
            most: self.end.latest.saturating_sub(self.begin.earliest),
        }
    }

    /// Removes the part that is certainly outside.
    pub fn widest(&self) -> (u64, u64) {
        (self.begin.earliest, self.end.latest)
    }
}

impl IntervalUnion {
    pub fn within(begin: u64, end: u64) -> Self {
        Self {
            until: begin,
            end,
            length: 0,
        }
    }

    pub fn add(&mut self, (begin, end): (u64, u64)) {
        let (begin, end) = (begin.max(self.until), end.min(self.end));
        if begin < end {
            self.length += end - begin;
            self.until = end;
        }
    }
}

impl<'a> CallTimer<'a> {
    /// Returns the timer of a thread with the calls of `forest`.
    #[must_use]
    pub fn new(thread: &'a Thread, forest: &'a Forest, unit: Unit, times: &Timebase) -> Self {
        Self {
            history: &thread.history,
            forest,
            gaps: thread.gaps(),
            unit,
            conversion: times.conversion.filter(|_| unit == Unit::Ns),
        }
    }

    /// Returns the length of a call, including its callees and waiting.
    ///
    /// # Errors
    ///
    /// If the length is unknown.
    pub fn span(&self, id: CallId) -> Result<Span, Unmeasured> {
        Ok(self.stretch_of(&self.forest.call(id))?.span())
    }

    pub(super) fn stretch(&self, id: CallId) -> Result<TimeInterval, Unmeasured> {
        self.stretch_of(&self.forest.call(id))
    }

    /// Returns the length of a part of a call, from instruction `first` on to the one before `end`.
    ///
    /// # Errors
    ///
    /// If the length is unknown.
    pub(super) fn stretch_within(
        &self,
        id: CallId,
        first: u64,
        end: u64,
    ) -> Result<TimeInterval, Unmeasured> {
        let call = self.forest.call(id);
        let part = Call {
            first,
            end,
            entered: match first > call.first {
                true => Entered::Call { site: first },
                false => call.entered,
            },
            left: match end < call.end {
                true => Left::Return,
                false => call.left,
            },
            ..call
        };
        self.stretch_of(&part)
    }

    fn stretch_of(&self, call: &Call) -> Result<TimeInterval, Unmeasured> {
        match call.entered {
            Entered::Call { .. } | Entered::TailCall { .. } | Entered::Signal { .. } => {}
            Entered::Adopted | Entered::HistoryStart => return Err(Unmeasured::BeganBeforeHistory),
            Entered::AfterGap => return Err(Unmeasured::BeganInGap),
            Entered::Resumed => return Err(Unmeasured::Resumed),
            _ => return Err(Unmeasured::BeganUnseen),
        }
        match call.left {
            Left::HistoryEnd => return Err(Unmeasured::NotEnded),
            Left::Gap => return Err(Unmeasured::EndedInGap),
            Left::Return | Left::TailCall | Left::Unwound | Left::SignalReturn | Left::Unknown => {}
        }
        let gap = self.gaps.partition_point(|&gap| gap <= call.first);
        if self.gaps.get(gap).is_some_and(|&gap| gap < call.end) {
            return Err(Unmeasured::GapInside);
        }
        self.between(call.first, call.end).ok_or(Unmeasured::NoTime)
    }

    /// From instruction `first` on to the end of the one before `end`; `None`: the trace has no
    /// time for it.
    fn between(&self, first: u64, end: u64) -> Option<TimeInterval> {
        if self.unit == Unit::Instructions {
            return Some(TimeInterval {
                begin: TimeBound::exactly(first),
                end: TimeBound::exactly(end),
            });
        }
        Some(TimeInterval {
            begin: self.moments().moment(self.history.departure(first)?)?,
            end: self.moments().moment(self.history.arrival(end)?)?,
        })
    }

    fn moments(&self) -> TimeBounds<'a> {
        TimeBounds {
            history: self.history,
            conversion: self.conversion,
        }
    }

    /// Returns the length of a call without its callees, including waiting.
    ///
    /// # Errors
    ///
    /// If the length is unknown.
    pub fn self_time(&self, id: CallId) -> Result<Span, Unmeasured> {
        let children = self.forest.children(id).map(|child| self.forest.call(child));
        Ok(self.without_callees(&self.stretch(id)?, children))
    }

    /// Returns the length of a part of a call.
    ///
    /// # Errors
    ///
    /// If the length is unknown.
    pub fn span_within(&self, id: CallId, range: Range<u64>) -> Result<Span, Unmeasured> {
        Ok(self.stretch_within(id, range.start, range.end)?.span())
    }

    /// Returns the length of a part of a call without its callees, including waiting.
    ///
    /// # Errors
    ///
    /// If the length is unknown.
    pub fn self_time_within(&self, id: CallId, range: Range<u64>) -> Result<Span, Unmeasured> {
        let whole = self.stretch_within(id, range.start, range.end)?;
        Ok(self.without_callees(&whole, self.callees_within(id, range)))
    }

    fn without_callees(&self, whole: &TimeInterval, callees: impl Iterator<Item = Call>) -> Span {
        let mut certain = 0u64;
        let mut covered = IntervalUnion::within(whole.begin.latest, whole.end.earliest);
        for child in callees {
            if let Some(child) = self.between(child.first, child.end) {
                certain = certain.saturating_add(child.span().least);
                covered.add(child.widest());
            }
        }
        let span = whole.span();
        Span {
            least: span.least.saturating_sub(covered.length),
            most: span.most.saturating_sub(certain),
        }
    }

    /// Returns the parts of a call's time.
    ///
    /// # Errors
    ///
    /// If the length of the call is unknown.
    pub fn split(&self, id: CallId) -> Result<Split, Unmeasured> {
        let call = self.forest.call(id);
        let whole = self.stretch_of(&call)?;
        let children = self.forest.children(id).map(|child| self.forest.call(child));
        Ok(self.split_of(&whole, call.first..call.end, children))
    }

    /// Returns the parts of the time of a part of a call.
    ///
    /// # Errors
    ///
    /// If the length of the part is unknown.
    pub(super) fn split_within(&self, id: CallId, first: u64, end: u64) -> Result<Split, Unmeasured> {
        let whole = self.stretch_within(id, first, end)?;
        Ok(self.split_of(&whole, first..end, self.callees_within(id, first..end)))
    }

    /// Returns the calls that a call made in a part of it.
    fn callees_within(&self, id: CallId, range: Range<u64>) -> impl Iterator<Item = Call> {
        let next = self.forest.last_begun(range.start);
        let next = next.map_or(0, |last| last.number() + 1);
        let begun = (next..).map_while(|number| self.forest.id(number));
        let begun = begun.map(|child| self.forest.call(child));
        let begun = begun.take_while(move |call| call.first < range.end);
        begun.filter(move |call| call.parent == Some(id))
    }

    fn split_of(
        &self,
        whole: &TimeInterval,
        range: Range<u64>,
        children: impl Iterator<Item = Call>,
    ) -> Split {
        let (begin, end) = whole.widest();
        let mut parts = SplitSums {
            call_timer: self,
            callees: IntervalUnion::within(begin, end),
            callees_least: 0,
            off_cpu: IntervalUnion::within(begin, end),
            off_cpu_least: 0,
            off_cpu_in_callees: IntervalUnion::within(begin, end),
            off_cpu_in_callees_least: 0,
            not_own: IntervalUnion::within(whole.begin.latest, whole.end.earliest),
        };
        let mut marks = self.off_cpu(range.start, range.end).peekable();
        for child in children {
            while let Some(at) = marks.next_if(|at| at.index <= child.first) {
                parts.add_off_cpu(&at, false);
            }
            parts.callee(&child);
            while let Some(at) = marks.next_if(|at| at.index < child.end) {
                parts.add_off_cpu(&at, true);
            }
        }
        marks.for_each(|at| parts.add_off_cpu(&at, false));
        parts.split(whole.span())
    }

    /// Returns the times at which the thread was out of the traced code between instructions
    /// `first` and `end`.
    fn off_cpu(&self, first: u64, end: u64) -> impl Iterator<Item = OffCpu> + '_ {
        let range = match self.unit {
            Unit::Instructions => 0..0,
            Unit::Ns | Unit::Ticks => first.saturating_add(1)..end,
        };
        self.moments().off_cpu_intervals(range)
    }
}

/// The parts of a call's time while they are added up.
struct SplitSums<'a> {
    call_timer: &'a CallTimer<'a>,
    callees: IntervalUnion,
    callees_least: u64,
    off_cpu: IntervalUnion,
    off_cpu_least: u64,
    off_cpu_in_callees: IntervalUnion,
    off_cpu_in_callees_least: u64,
    /// Returns the longest possible time in callees or off-CPU, of the time that is certainly in
    /// the call.
    not_own: IntervalUnion,
}

impl SplitSums<'_> {
    fn callee(&mut self, child: &Call) {
        if let Some(stretch) = self.call_timer.between(child.first, child.end) {
            self.callees.add(stretch.widest());
            self.not_own.add(stretch.widest());
            self.callees_least = self.callees_least.saturating_add(stretch.span().least);
        }
    }

    fn add_off_cpu(&mut self, off_cpu: &OffCpu, in_callee: bool) {
        let Some(stretch) = self.call_timer.moments().stretch(off_cpu) else {
            return;
        };
        let least = stretch.span().least;
        self.off_cpu.add(stretch.widest());
        self.off_cpu_least = self.off_cpu_least.saturating_add(least);
        if in_callee {
            self.off_cpu_in_callees.add(stretch.widest());
            self.off_cpu_in_callees_least = self.off_cpu_in_callees_least.saturating_add(least);
        } else {
            self.not_own.add(stretch.widest());
        }
    }

    fn split(&self, whole: Span) -> Split {
        let own_off_cpu_least = self.off_cpu_least.saturating_sub(self.off_cpu_in_callees_least);
        let own_most = whole.most.saturating_sub(self.callees_least);
        let own = Span {
            least: whole.least.saturating_sub(self.not_own.length),
            most: own_most.saturating_sub(own_off_cpu_least),
        };
        let callees = Span {
            least: self.callees_least.saturating_sub(self.off_cpu_in_callees.length),
            most: self.callees.length.saturating_sub(self.off_cpu_in_callees_least),
        };
        let off_cpu = Span {
            least: self.off_cpu_least,
            most: self.off_cpu.length,
        };
        Split {
            own,
            callees,
            off_cpu,
        }
    }
}

impl fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeganBeforeHistory => "began before history",
            Self::BeganInGap => "began before a gap or in it",
            Self::Resumed => "were resumed on their own stack",
            Self::BeganUnseen => "began in an unknown way",
            Self::NotEnded => "had not returned when history ended",
            Self::EndedInGap => "had not returned before a gap",
            Self::GapInside => "have a gap inside",
            Self::NoTime => "have no time stamps",
        })
    }
}

#[cfg(test)]
mod tests;
