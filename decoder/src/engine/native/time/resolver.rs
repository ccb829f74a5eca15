//! Resolves the timestamps of segments in order, from their timing logs.

use super::log::{TimingLog, TimingRecord};
use super::tsc::TscEstimator;
use crate::Stamp;

/// Resolves timestamps, segment by segment.
pub(crate) struct TimestampResolver {
    /// The state at the start of the next segment.
    time: TscEstimator,
    stamps: ResolvedTimestamps,
}

/// The timestamps of a segment.
#[derive(Default)]
pub(crate) struct ResolvedTimestamps(Vec<Option<Stamp>>);

impl ResolvedTimestamps {
    /// Returns the time after this many records; `None`: unknown.
    pub fn at(&self, records: usize) -> Option<Stamp> {
        self.0.get(records).copied().flatten()
    }
}

impl TimestampResolver {
    pub(in crate::engine::native) fn new(time: TscEstimator) -> Self {
        Self {
            time,
            stamps: ResolvedTimestamps::default(),
        }
    }

    /// Resolves the next segment, which ends at the PSB at `to`. `None`: the packets are
    /// inconsistent, and only a sequential decode determines the result.
    pub fn resolve(&mut self, records: &TimingLog, to: Option<usize>) -> Option<&ResolvedTimestamps> {
        let ResolvedTimestamps(stamps) = &mut self.stamps;
        stamps.clear();
        stamps.push(self.time.stamp());
        let (mut after, mut before_lookaheads) = (None, Vec::new());
        for &record in &records.0 {
            match record {
                // Later records were read ahead; they belong to the next segment.
                TimingRecord::Psb(psb) if Some(psb) == to && before_lookaheads.is_empty() => {
                    after = Some(self.time.clone());
                }
                TimingRecord::LookaheadStart => before_lookaheads.push(self.time.clone()),
                TimingRecord::LookaheadEnd => {
                    if let Some(time) = before_lookaheads.pop() {
                        self.time = time;
                    }
                }
                _ => {}
            }
            self.time.apply(record).ok()?;
            stamps.push(self.time.stamp());
        }
        if let Some(after) = after {
            self.time = after;
        }
        Some(&self.stamps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::TimingParams;

    #[test]
    fn segment_starts_with_the_time_before_its_psb() {
        let mut resolver = TimestampResolver::new(TscEstimator::new(TimingParams::default(), false));
        let tsc = |tsc| TimingRecord::Tsc { tsc, header: false };
        let at = |stamps: &ResolvedTimestamps, records| stamps.at(records).map(|stamp| stamp.tsc.0);
        let first = TimingLog(vec![TimingRecord::Psb(0), tsc(5), TimingRecord::Psb(90), tsc(9)]);
        let stamps = resolver.resolve(&first, Some(90)).unwrap();
        let times: Vec<_> = (0..6).map(|records| at(stamps, records)).collect();
        assert_eq!(times, [None, None, Some(5), Some(5), Some(9), None]);
        let next = TimingLog(vec![TimingRecord::Psb(90), tsc(9)]);
        let stamps = resolver.resolve(&next, None).unwrap();
        assert_eq!(at(stamps, 0), Some(5));
        assert_eq!(at(stamps, 2), Some(9));
    }

    #[test]
    fn impossible_timing_packets_are_refused() {
        let mut resolver = TimestampResolver::new(TscEstimator::new(TimingParams::default(), false));
        // There is no TSC that the TMA could refine.
        let tma = TimingLog(vec![TimingRecord::Tma { ctc: 1, fast: 1 }]);
        assert!(resolver.resolve(&tma, None).is_none());
    }

    #[test]
    fn lookahead_is_checked_and_has_no_effect() {
        let resolver = || TimestampResolver::new(TscEstimator::new(TimingParams::default(), false));
        let tsc = |tsc| TimingRecord::Tsc { tsc, header: false };
        let log = |ahead| {
            let [start, end] = [TimingRecord::LookaheadStart, TimingRecord::LookaheadEnd];
            TimingLog(vec![tsc(5), start, TimingRecord::Psb(90), ahead, end])
        };
        let mut sound = resolver();
        let stamps = sound.resolve(&log(tsc(9)), Some(90)).unwrap();
        assert_eq!(stamps.at(5).map(|stamp| stamp.tsc.0), Some(5));
        assert_eq!(sound.time.stamp().map(|stamp| stamp.tsc.0), Some(5));
        let ratio = TimingRecord::Cbr {
            ratio: 0,
            header: false,
        };
        assert!(resolver().resolve(&log(ratio), None).is_none());
    }
}
