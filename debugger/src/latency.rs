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
use crate::functions::FunctionEntries;
use crate::session::{Session, Thread};
use backtrail_decoder::{CallId, Stage, Watch};
use backtrail_pt::Tid;
use call_timer::IntervalUnion;
use std::collections::BTreeMap;

/// A call and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The thread that made it.
    pub tid: Tid,
    /// The call.
    pub call: CallId,
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
    /// The time of all together. A call inside of another is in the other's.
    pub total: Span,
    /// The parts of the time.
    pub split: Split,
}

/// The number of calls between two checks for cancellation.
const OFTEN: usize = 1024;

impl Latencies {
    /// Measures the calls of the functions with these entries, in all of the threads.
    ///
    /// # Errors
    ///
    /// If the beginning of a history is not decoded yet; when canceled.
    pub fn of<'a>(
        session: &Session,
        threads: impl IntoIterator<Item = &'a Thread>,
        entries: &FunctionEntries,
        unit: Unit,
        watch: &Watch<'_>,
    ) -> Result<Self> {
        let mut latencies = Self {
            unit,
            measured: Vec::new(),
            unmeasured: BTreeMap::new(),
            total: Span::default(),
            split: Split::default(),
        };
        for thread in threads {
            thread.needs_beginning()?;
            if !thread.history.is_empty() {
                latencies.add(session, thread, entries, watch)?;
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
        entries: &FunctionEntries,
        watch: &Watch<'_>,
    ) -> Result<()> {
        let calls = Calls::new(session, thread, watch)?;
        let call_timer = CallTimer::new(thread, calls.forest(), self.unit, session.times());
        let mut outermost_until = 0;
        let mut covered = IntervalUnion::within(0, u64::MAX);
        let of_function = calls.of(entries, watch)?;
        for (number, &call) in of_function.iter().enumerate() {
            if number % OFTEN == 0 {
                watch.report(Stage::Measure, number as u64, of_function.len() as u64)?;
            }
            let stretch = match call_timer.stretch(call) {
                Ok(stretch) => stretch,
                Err(why) => {
                    *self.unmeasured.entry(why).or_default() += 1;
                    continue;
                }
            };
            let span = stretch.span();
            let bounds = calls.forest().call(call);
            self.measured.push(Measured {
                tid: thread.tid,
                call,
                span,
                instructions: bounds.end.saturating_sub(bounds.first),
            });
            if bounds.first < outermost_until {
                continue;
            }
            outermost_until = bounds.end;
            covered.add(stretch.widest());
            self.total.least = self.total.least.saturating_add(span.least);
            if let Ok(split) = call_timer.split(call) {
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
        self.measured.get(calls.checked_sub(rank.max(1))?).copied()
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
