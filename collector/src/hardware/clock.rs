//! The two clocks: perf's clock, which trace timestamps convert to, and `CLOCK_MONOTONIC`, which
//! the crash probe uses.

pub use crate::clock::monotonic;
use backtrail_pt::{Nanos, Tsc, TscConversion};

/// Returns the time-stamp counter.
#[must_use]
pub fn tsc() -> Tsc {
    // SAFETY: every x86-64 processor has the instruction, and Linux permits it in user mode.
    Tsc(unsafe { std::arch::x86_64::_rdtsc() })
}

/// Returns the current time on perf's clock.
#[must_use]
pub fn perf(conversion: &TscConversion) -> Nanos {
    conversion.nanos(tsc())
}

/// Converts a time of `CLOCK_MONOTONIC` to perf's clock. The offset of the two clocks changes, so
/// each call compares them again. The result is accurate to about a microsecond for recent times.
#[must_use]
pub fn perf_of_monotonic(conversion: &TscConversion, moment: u64) -> Nanos {
    // Uses the attempt with the shortest interruption.
    let tries = (0..5).map(|_| {
        let before = monotonic();
        let now = perf(conversion);
        let after = monotonic();
        (after.wrapping_sub(before), before / 2 + after / 2, now)
    });
    let (_, middle, now) = tries.min_by_key(|(took, ..)| *took).unwrap_or_default();
    Nanos(now.0.wrapping_sub(middle.wrapping_sub(moment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert_by_their_distance_from_now() {
        // One tick is one nanosecond, because this test checks only the distance.
        let conversion = TscConversion::new(0, 1, 0).unwrap();
        let moment = monotonic();
        let (early, late) = (
            perf_of_monotonic(&conversion, moment - 1_000_000_000),
            perf_of_monotonic(&conversion, moment),
        );
        let apart = late.0.wrapping_sub(early.0);
        assert!((1_000_000_000..2_000_000_000).contains(&apart), "{apart}");
    }
}
