//! The times of a history's instructions: sampled timestamps.

use crate::Stamp;
use backtrail_pt::Tsc;

/// The time of an instruction, as far as timing packets determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEstimate {
    /// The earliest time.
    pub tsc: Tsc,
    /// The latest time is this many ticks after `tsc`; [`TimeEstimate::UNBOUNDED`] if no later
    /// stamp bounds it.
    pub uncertainty: u64,
}

impl TimeEstimate {
    /// The uncertainty of a time that no stamp follows.
    pub const UNBOUNDED: u64 = u64::MAX;

    /// Returns the latest possible time; `None` if no later stamp bounds it.
    #[must_use]
    pub fn latest(&self) -> Option<Tsc> {
        (self.uncertainty != Self::UNBOUNDED).then(|| Tsc(self.tsc.0.saturating_add(self.uncertainty)))
    }
}

/// Timestamps by instruction index.
///
/// A stamp at index *i* was taken when *i* instructions had run. One stamp is kept for each
/// [`Clock::STRIDE`] instructions, or when [`Clock::LEAP`] ticks have passed. Thinning widens the
/// uncertainty, but makes no estimate wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Ascending in index and time.
    samples: Vec<Sample>,
    /// The newest stamp, even if it was thinned out.
    last: Option<Sample>,
    /// The number of MTC and CYC packets that the engine could not use.
    lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    index: u64,
    tsc: Tsc,
}

impl Sample {
    fn moment(self) -> TimeEstimate {
        TimeEstimate {
            tsc: self.tsc,
            uncertainty: 0,
        }
    }
}

impl Clock {
    /// Instructions between two kept stamps, while time passes slowly.
    const STRIDE: u64 = 64;
    /// Ticks after which a stamp is kept even if few instructions ran.
    pub const LEAP: u64 = 4096;

    /// Adds a stamp. Ignores one that repeats the last (an engine reports the last known time with
    /// each event), or that goes back in time.
    pub fn push(&mut self, index: u64, stamp: Stamp) {
        if self.last.is_some_and(|last| stamp.tsc <= last.tsc) {
            return;
        }
        self.lost = self
            .lost
            .saturating_add(u64::from(stamp.lost_mtc) + u64::from(stamp.lost_cyc));
        let stamp = Sample {
            index,
            tsc: stamp.tsc,
        };
        let before = self.last.replace(stamp).filter(|before| before.index == index);
        let far = self.samples.last().is_none_or(|kept| {
            let (instructions, ticks) = (index.saturating_sub(kept.index), stamp.tsc.0 - kept.tsc.0);
            instructions == 0 || instructions >= Self::STRIDE || ticks >= Self::LEAP
        });
        if far {
            // An event here after the earlier stamp, such as a wait, started after that stamp.
            before.into_iter().for_each(|before| self.keep(before));
            self.keep(stamp);
        }
    }

    /// Keeps the newest stamp: something starts or ends here.
    pub fn pin(&mut self) {
        if let Some(last) = self.last {
            self.keep(last);
        }
    }

    fn keep(&mut self, stamp: Sample) {
        // Of all stamps at an index, the first bounds what is before, the last what is after.
        match &mut *self.samples {
            [.., before, last] if before.index == stamp.index && last.index == stamp.index => *last = stamp,
            [.., last] if *last == stamp => {}
            _ => self.samples.push(stamp),
        }
    }

    /// Returns the oldest stamp.
    pub fn first(&self) -> Option<Tsc> {
        self.samples.first().map(|first| first.tsc)
    }

    /// Returns the newest stamp.
    pub fn last(&self) -> Option<Tsc> {
        self.last.map(|last| last.tsc)
    }

    /// Returns the time of the instruction at `index`.
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

    /// Returns the time when `index` instructions had run, before anything that followed.
    pub fn arrival(&self, index: u64) -> Option<TimeEstimate> {
        let next = self.samples.partition_point(|sample| sample.index < index);
        match self.samples.get(next) {
            Some(exact) if exact.index == index => Some(exact.moment()),
            _ => self.at(index),
        }
    }

    /// Returns the time when instruction `index` was about to run, after anything that preceded it.
    pub fn departure(&self, index: u64) -> Option<TimeEstimate> {
        let after = self.samples.partition_point(|sample| sample.index <= index);
        match self.samples.get(after.checked_sub(1)?) {
            Some(exact) if exact.index == index => Some(exact.moment()),
            _ => self.at(index),
        }
    }

    /// Returns a guess at [`Clock::departure`]: all instructions between two stamps took equally
    /// long.
    pub fn interpolated_departure(&self, index: u64) -> Option<Tsc> {
        let after = self.samples.partition_point(|sample| sample.index <= index);
        self.interpolate(after, index)
    }

    /// Returns a guess at [`Clock::arrival`].
    pub fn interpolated_arrival(&self, index: u64) -> Option<Tsc> {
        let after = self.samples.partition_point(|sample| sample.index < index);
        self.interpolate(after, index)
    }

    /// Interpolates; `after` is the number of the first sample that is not before.
    fn interpolate(&self, after: usize, index: u64) -> Option<Tsc> {
        let before = self.samples.get(after.checked_sub(1)?)?;
        let Some(next) = self.samples.get(after) else {
            return Some(before.tsc);
        };
        let part = u128::from(index.saturating_sub(before.index));
        let all = u128::from(next.index.saturating_sub(before.index)).max(1);
        let ticks = u128::from(next.tsc.0.saturating_sub(before.tsc.0)) * part.min(all) / all;
        Some(Tsc(before.tsc.0.saturating_add(ticks as u64)))
    }

    /// Returns the first index that cannot have run before `tsc`.
    pub fn index_at(&self, tsc: Tsc) -> Option<u64> {
        let after = self.samples.partition_point(|sample| sample.tsc <= tsc);
        self.samples.get(after.checked_sub(1)?).map(|sample| sample.index)
    }

    /// Returns the first index whose earliest time is `tsc` or later; `None` if no kept stamp is.
    pub fn first_from(&self, tsc: Tsc) -> Option<u64> {
        let first = self.samples.partition_point(|sample| sample.tsc < tsc);
        self.samples.get(first).map(|sample| sample.index)
    }

    /// Returns the samples with an index in `from..to`, as (index, stamp).
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

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(stamps: &[(u64, u64)]) -> Clock {
        let mut clock = Clock::default();
        for &(index, tsc) in stamps {
            clock.push(
                index,
                Stamp {
                    tsc: Tsc(tsc),
                    lost_mtc: 1,
                    lost_cyc: 2,
                },
            );
        }
        clock
    }

    #[test]
    fn a_time_is_between_two_stamps() {
        let clock = clock(&[(5, 1000), (100, 2000)]);
        assert_eq!(clock.at(4), None);
        assert_eq!(
            clock.at(5),
            Some(TimeEstimate {
                tsc: Tsc(1000),
                uncertainty: 1000
            })
        );
        assert_eq!(clock.at(99).and_then(|time| time.latest()), Some(Tsc(2000)));
        assert_eq!(clock.at(100).and_then(|time| time.latest()), None);
        assert_eq!(
            (clock.index_at(Tsc(999)), clock.index_at(Tsc(1999))),
            (None, Some(5))
        );
        let first = [0, 1000, 1001, 2000, 2001].map(|tsc| clock.first_from(Tsc(tsc)));
        assert_eq!(first, [Some(5), Some(5), Some(100), Some(100), None]);
        assert_eq!(clock.lost(), 6);
    }

    #[test]
    fn interpolation_stays_on_its_side_of_a_wait() {
        let clock = clock(&[(0, 1000), (100, 2000), (100, 50_000), (200, 51_000)]);
        let at = |index| clock.interpolated_departure(index).map(|tsc| tsc.0);
        let before = |index| clock.interpolated_arrival(index).map(|tsc| tsc.0);
        assert_eq!((at(0), at(50), at(99)), (Some(1000), Some(1500), Some(1990)));
        assert_eq!(
            (before(100), at(100), at(150)),
            (Some(2000), Some(50_000), Some(50_500))
        );
        assert_eq!(
            (before(0), before(200), at(900)),
            (None, Some(51_000), Some(51_000))
        );
    }

    #[test]
    fn stamp_before_a_wait_is_kept() {
        let clock = clock(&[(95, 2000), (100, 2001), (100, 90_000), (101, 90_001)]);
        let bounds = |time: Option<TimeEstimate>| time.map(|time| (time.tsc.0, time.uncertainty));
        assert_eq!(bounds(clock.arrival(100)), Some((2001, 0)));
        assert_eq!(bounds(clock.departure(100)), Some((90_000, 0)));
    }

    #[test]
    fn stamp_bounds_arrival_and_departure() {
        // Off-CPU time between 2000 and 3000, before instruction 100.
        let clock = clock(&[(5, 1000), (100, 2000), (100, 3000), (200, 3100)]);
        let bounds = |time: Option<TimeEstimate>| time.map(|time| (time.tsc.0, time.uncertainty));
        assert_eq!(bounds(clock.arrival(100)), Some((2000, 0)));
        assert_eq!(bounds(clock.departure(100)), Some((3000, 0)));
        assert_eq!(bounds(clock.arrival(99)), Some((1000, 1000)));
        assert_eq!(bounds(clock.departure(99)), Some((1000, 1000)));
        assert_eq!(bounds(clock.departure(101)), Some((3000, 100)));
        assert_eq!(bounds(clock.arrival(200)), Some((3100, 0)));
        assert_eq!(bounds(clock.arrival(201)), Some((3100, TimeEstimate::UNBOUNDED)));
        assert_eq!((clock.arrival(4), clock.departure(4)), (None, None));
    }

    #[test]
    fn thinning_keeps_pinned_and_far_stamps() {
        let mut clock = clock(&[(0, 1000), (1, 1001), (2, 1002), (3, 9000), (4, 9001)]);
        clock.pin();
        clock.push(
            4,
            Stamp {
                tsc: Tsc(9001),
                lost_mtc: 0,
                lost_cyc: 0,
            },
        );
        let kept: Vec<u64> = clock.between(0, 10).map(|(index, _)| index).collect();
        assert_eq!(kept, [0, 3, 4]);
    }

    #[test]
    fn backward_time_is_ignored() {
        let clock = clock(&[(0, 1000), (100, 500), (200, 1500)]);
        assert_eq!(
            clock.at(150),
            Some(TimeEstimate {
                tsc: Tsc(1000),
                uncertainty: 500
            })
        );
    }
}
