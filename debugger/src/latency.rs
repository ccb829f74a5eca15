//! The latency of the calls of a function, in time or in instructions.
//!
//! The length of a call extends from its first instruction to its last, including callees and
//! waiting. Time stamps are sparse, so a length in time has [two bounds](Span), and all
//! figures derived from lengths keep both. A call whose beginning or end is not in the history is
//! [counted](Unmeasured), and its length is not estimated.

pub mod call_timer;
pub mod histogram;
pub mod percentiles;
#[cfg(test)]
pub(crate) mod recording;
pub(crate) mod time_bounds;

pub use call_timer::{CallTimer, Span, Split, Unit, Unmeasured};
pub use percentiles::Percentiles;

use crate::calls::Calls;
use crate::error::Result;
use crate::functions::FunctionCode;
use crate::inlined;
use crate::session::{Session, Thread};
use backtrail_decoder::{CallId, Stage, Watch};
use backtrail_pt::Tid;
use call_timer::IntervalUnion;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The thread that made it.
    pub tid: Tid,
    /// The call; of an inlined function, the call that executed it.
    pub call: CallId,
    /// The inlined function; `None`: the function of the call.
    pub inlined: Option<Arc<str>>,
    /// Its first instruction.
    pub first: u64,
    /// After its last instruction.
    pub end: u64,
    /// The length.
    pub span: Span,
    /// The number of its instructions.
    pub instructions: u64,
}

/// The lengths of all calls of some functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// The unit of the lengths.
    pub unit: Unit,
    /// The calls whose length is known, by thread, in order of time.
    pub measured: Vec<Measured>,
    /// The number of calls without a length, by reason.
    pub unmeasured: BTreeMap<Unmeasured, u64>,
    /// The number of executions of inlined code that may continue an earlier one.
    pub rests: u64,
    /// The time of all together. A call inside of another is in the other's.
    pub total: Span,
    /// The parts of the time.
    pub split: Split,
}

/// The number of calls between two checks for cancellation.
const OFTEN: usize = 1024;

impl Latencies {
    /// Measures the calls of functions, in all of the threads.
    ///
    /// # Errors
    ///
    /// If the beginning of a history is not decoded yet; when canceled.
    pub fn of<'a>(
        session: &Session,
        threads: impl IntoIterator<Item = &'a Thread>,
        code: &FunctionCode,
        unit: Unit,
        watch: &Watch<'_>,
    ) -> Result<Self> {
        let mut latencies = Self {
            unit,
            measured: Vec::new(),
            unmeasured: BTreeMap::new(),
            rests: 0,
            total: Span::default(),
            split: Split::default(),
        };
        for thread in threads {
            thread.needs_beginning()?;
            if !thread.history.is_empty() {
                latencies.add(session, thread, code, watch)?;
            }
        }
        let Self { total, split, .. } = &mut latencies;
        for part in [&mut split.own, &mut split.callees, &mut split.off_cpu] {
            *part = part.at_most(total.most);
        }
        Ok(latencies)
    }

    fn add(
        &mut self,
        session: &Session,
        thread: &Thread,
        code: &FunctionCode,
        watch: &Watch<'_>,
    ) -> Result<()> {
        let calls = Calls::new(session, thread, watch)?;
        let call_timer = CallTimer::new(thread, calls.forest(), self.unit, session.times());
        let mut outermost_until = 0;
        let mut covered = IntervalUnion::within(0, u64::MAX);
        let of_function = calls.of(&code.entries, watch)?;
        let called = of_function.iter().map(|&id| {
            let call = calls.forest().call(id);
            (call.first, call.end, id, None)
        });
        let inlined = inlined::executions(session, thread, &code.copies, watch)?;
        let possible = inlined.iter().filter(|execution| !execution.is_certain);
        self.rests = self.rests.saturating_add(possible.count() as u64);
        let inlined = inlined.into_iter();
        let inlined = inlined.map(|found| (found.first, found.end, found.call, Some(found.function)));
        let mut all: Vec<_> = called.chain(inlined).collect();
        all.sort_by_key(|&(first, end, ..)| (first, std::cmp::Reverse(end)));
        let number_of_all = all.len() as u64;
        for (number, (first, end, call, inlined)) in all.into_iter().enumerate() {
            if number % OFTEN == 0 {
                watch.report(Stage::Measure, number as u64, number_of_all)?;
            }
            let is_inlined = inlined.is_some();
            let stretch = match call_timer.stretch_within(call, first, end) {
                Ok(stretch) => stretch,
                Err(why) => {
                    *self.unmeasured.entry(why).or_default() += 1;
                    continue;
                }
            };
            let span = stretch.span();
            self.measured.push(Measured {
                tid: thread.tid,
                call,
                inlined,
                first,
                end,
                span,
                instructions: end.saturating_sub(first),
            });
            if first < outermost_until {
                continue;
            }
            outermost_until = end;
            covered.add(stretch.widest());
            self.total.least = self.total.least.saturating_add(span.least);
            let split = match is_inlined {
                true => call_timer.split_within(call, first, end),
                false => call_timer.split(call),
            };
            if let Ok(split) = split {
                self.split = self.split.and(split);
            }
        }
        self.total.most = self.total.most.saturating_add(covered.length);
        Ok(())
    }

    /// Returns the number of calls, including those of unknown length.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.measured.len() as u64 + self.unmeasured.values().sum::<u64>()
    }

    /// The longest first: by the length that is certain, then by instructions.
    pub fn sort_by_length(&mut self) {
        let rank = |measured: &Measured| std::cmp::Reverse((measured.span.least, measured.instructions));
        self.measured.sort_by_key(rank);
    }

    /// Returns the call at a percentile, by nearest rank in the order of [`Self::sort_by_length`].
    /// Returns `None` if no length is known.
    ///
    /// `percent` is from 0 to 100: 50 is the median, and 100 the longest call.
    #[must_use]
    pub fn at_percentile(mut self, percent: f64) -> Option<Measured> {
        self.sort_by_length();
        let calls = self.measured.len();
        let rank = (calls as f64 * percent.clamp(0.0, 100.0) / 100.0).ceil() as usize;
        self.measured.into_iter().nth(calls.checked_sub(rank.max(1))?)
    }

    /// The calls that took longest, the longest first.
    #[must_use]
    pub fn slowest(mut self, count: usize) -> Vec<Measured> {
        self.sort_by_length();
        self.measured.truncate(count);
        self.measured
    }
}

impl Split {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            own: self.own.and(other.own),
            callees: self.callees.and(other.callees),
            off_cpu: self.off_cpu.and(other.off_cpu),
        }
    }
}
