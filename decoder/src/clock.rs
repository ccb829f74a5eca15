//! When the instructions of a history ran: sampled time stamps.

use crate::Stamp;
use backtrail_pt::Tsc;

/// When an instruction ran, as far as the time packets tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEstimate {
    /// Not before this.
    pub tsc: Tsc,
    /// Not later than this many ticks after `tsc`; [`TimeEstimate::UNBOUNDED`] when no later stamp
    /// bounds it.
    pub uncertainty: u64,
}

impl TimeEstimate {
    /// The uncertainty of a time after which no stamp follows.
    pub const UNBOUNDED: u64 = u64::MAX;

    /// The latest it can have been; `None` when no later stamp bounds it.
    #[must_use]
    pub fn latest(&self) -> Option<Tsc> {
        (self.uncertainty != Self::UNBOUNDED).then(|| Tsc(self.tsc.0.saturating_add(self.uncertainty)))
    }
}

/// Time stamps by instruction index.
///
/// A stamp at index *i* was taken when *i* instructions had run or were about to retire. Stamps are
/// thinned to one in [`Clock::STRIDE`] instructions, or when [`Clock::LEAP`] ticks have passed;
/// thinning widens the uncertainty and makes no estimate wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Ascending in both; the last one may be replaced by a later one at the same index.
    samples: Vec<Sample>,
    /// The newest stamp, though it may have been thinned out.
    last: Option<Tsc>,
    /// MTC and CYC packets the engine could not use, over all.
    lost: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    index: u64,
    tsc: Tsc,
}

impl Clock {
    /// Instructions between two kept stamps, when time goes on slowly.
    const STRIDE: u64 = 64;
    /// Ticks after which a stamp is kept however few instructions it is after the last one.
    const LEAP: u64 = 4096;

    /// Takes a stamp; one that goes back in time is not believed, except after [`Clock::restart`].
    pub fn push(&mut self, index: u64, stamp: Stamp) {
        self.lost = self
            .lost
            .saturating_add(u64::from(stamp.lost_mtc) + u64::from(stamp.lost_cyc));
        if self.last.is_some_and(|last| stamp.tsc < last) {
            return;
        }
        self.last = Some(stamp.tsc);
        let keep = self.samples.last().is_none_or(|sample| {
            index - sample.index.min(index) >= Self::STRIDE || stamp.tsc.0 - sample.tsc.0 >= Self::LEAP
        });
        if keep {
            self.keep(index, stamp.tsc);
        }
    }

    /// Keeps the newest stamp as a sample at `index`: something ends or begins here.
    pub fn pin(&mut self, index: u64) {
        if let Some(last) = self.last {
            self.keep(index, last);
        }
    }

    fn keep(&mut self, index: u64, tsc: Tsc) {
        if self
            .samples
            .last()
            .is_some_and(|sample| sample.index == index && sample.tsc == tsc)
        {
            return;
        }
        self.samples.push(Sample { index, tsc });
    }

    /// The newest stamp.
    pub fn last(&self) -> Option<Tsc> {
        self.last
    }

    /// When the instruction at `index` ran.
    pub fn at(&self, index: u64) -> Option<TimeEstimate> {
        let after = self.samples.partition_point(|sample| sample.index <= index);
        let before = self.samples.get(after.checked_sub(1)?)?;
        let uncertainty = match self.samples.get(after) {
            Some(next) => next.tsc.0.saturating_sub(before.tsc.0),
            None => TimeEstimate::UNBOUNDED,
        };
        Some(TimeEstimate {
            tsc: before.tsc,
            uncertainty,
        })
    }

    /// The first index that cannot have run before `tsc`, for a search by time.
    pub fn index_at(&self, tsc: Tsc) -> Option<u64> {
        let after = self.samples.partition_point(|sample| sample.tsc <= tsc);
        self.samples.get(after.checked_sub(1)?).map(|sample| sample.index)
    }

    /// The samples with an index in `from..to`, as (index, stamp).
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Tsc)> + '_ {
        let first = self.samples.partition_point(|sample| sample.index < from);
        let rest = self.samples.get(first..).unwrap_or(&[]);
        rest.iter()
            .take_while(move |sample| sample.index < to)
            .map(|sample| (sample.index, sample.tsc))
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    pub fn memory(&self) -> usize {
        size_of_val(&*self.samples)
    }
}
