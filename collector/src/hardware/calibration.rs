//! Converts times when the kernel recalibrates its clock.
//!
//! Some seconds after boot, Linux refines the frequency of the time-stamp counter by up to one
//! percent (`tsc_refine_calibration_work`). From then on, perf's clock has another conversion from
//! the counter. Earlier records have times of the old clock, but a bundle has one conversion for
//! all.

use backtrail_pt::{Nanos, Tsc, TscConversion};

/// The last change of the clock, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calibration(Option<RateChange>);

/// A change from one clock conversion to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RateChange {
    old: TscConversion,
    new: TscConversion,
    /// The time of the change, which is the same on both clocks.
    at: Nanos,
}

impl Calibration {
    /// Records that `new` replaced `old`. Returns whether times of earlier records have to be
    /// converted.
    pub(super) fn record_change(&mut self, old: TscConversion, new: TscConversion, now: Tsc) -> bool {
        self.0 = RateChange::find(old, new, now);
        self.0.is_some()
    }

    /// Converts the time of a record to the current clock, whichever clock it was taken with.
    pub(super) fn to_current(self, time: Nanos) -> Nanos {
        self.0.map_or(time, |change| change.to_current(time))
    }
}

impl RateChange {
    /// Finds the moment at which both clocks agree. The kernel starts a new rate at the current
    /// clock value, so there is one. `None`: the clocks do not agree at any time before `now`, so
    /// the clock of a record cannot be determined.
    fn find(old: TscConversion, new: TscConversion, now: Tsc) -> Option<Self> {
        let shift = old.shift.max(new.shift);
        let rate = |clock: &TscConversion| i128::from(clock.mult) << (shift - clock.shift);
        // The values are on a circle of 2^64, and their distance is small.
        let apart = i128::from(new.zero.wrapping_sub(old.zero).cast_signed()) << shift;
        let tsc = apart.checked_div(rate(&old) - rate(&new))?;
        let tsc = Tsc(u64::try_from(tsc).ok()?);
        (tsc <= now).then(|| Self {
            old,
            new,
            at: new.nanos(tsc),
        })
    }

    fn to_current(self, time: Nanos) -> Nanos {
        if time < self.at {
            self.new.nanos(self.old.tsc(time))
        } else {
            time
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kernel's conversion for a counter of `khz` that shows `nanos` at `tsc`, as
    /// `clocks_calc_mult_shift` and `__set_cyc2ns_scale` compute it.
    fn clock(khz: u64, tsc: u64, nanos: u64) -> TscConversion {
        let mult = u32::try_from((1_000_000u64 << 31) / khz).unwrap();
        let from_zero = ((u128::from(tsc) * u128::from(mult)) >> 31) as u64;
        TscConversion::new(31, mult, nanos.wrapping_sub(from_zero)).unwrap()
    }

    const KHZ: u64 = 2_594_027;
    const CHANGED: u64 = 9_000_000_000_000;
    const NOW: Tsc = Tsc(CHANGED + 2_000_000_000);

    fn clocks() -> (TscConversion, TscConversion) {
        let old = clock(KHZ, 5_000_000_000_000, 77_000_000_000);
        let new = clock(KHZ + KHZ / 110, CHANGED, old.nanos(Tsc(CHANGED)).0);
        (old, new)
    }

    #[test]
    fn times_of_both_clocks_convert_back() {
        let (old, new) = clocks();
        let mut calibration = Calibration::default();
        assert!(calibration.record_change(old, new, NOW));
        for ticks in [0, 1_000_000, 2_594_000_000, 25_940_000_000] {
            let (before, after) = (Tsc(CHANGED - ticks), Tsc(CHANGED + ticks));
            for (stamp, taken) in [(before, old.nanos(before)), (after, new.nanos(after))] {
                let back = new.tsc(calibration.to_current(taken));
                assert!(back.0.abs_diff(stamp.0) < 1000, "{stamp} is told as {back}");
            }
        }
        let tenth = Tsc(CHANGED - KHZ * 100);
        let off = new.tsc(old.nanos(tenth)).0.abs_diff(tenth.0);
        assert!(
            off > KHZ / 2,
            "without it, a time of 100 ms before is off by {off}"
        );
    }

    #[test]
    fn order_is_preserved_across_the_change() {
        let (old, new) = clocks();
        let mut calibration = Calibration::default();
        calibration.record_change(old, new, NOW);
        let at = old.nanos(Tsc(CHANGED)).0;
        let times: Vec<u64> = (at - 5000..at + 5000)
            .step_by(100)
            .map(|time| calibration.to_current(Nanos(time)).0)
            .collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn clocks_that_never_agree_change_nothing() {
        let (old, new) = clocks();
        let mut calibration = Calibration::default();
        let shifted = TscConversion {
            zero: old.zero + 1_000_000,
            ..old
        };
        assert!(!calibration.record_change(old, shifted, NOW), "the same rate");
        assert!(
            !calibration.record_change(old, new, Tsc(CHANGED - 1_000_000)),
            "in the future"
        );
        assert_eq!(calibration.to_current(Nanos(5)), Nanos(5));
    }
}
