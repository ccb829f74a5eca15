//! The two clocks: perf's, which time stamps of a trace convert to, and `CLOCK_MONOTONIC`, which the crash probe tells.

pub use crate::clock::monotonic;
use backtrail_pt::{Nanos, Tsc, TscConversion};

/// Now, by the time-stamp counter.
#[must_use]
pub fn tsc() -> Tsc {
    // SAFETY: every x86-64 processor has the instruction, and Linux leaves it to user code.
    Tsc(unsafe { std::arch::x86_64::_rdtsc() })
}

/// Now, on perf's clock.
#[must_use]
pub fn perf(conversion: &TscConversion) -> Nanos {
    conversion.nanos(tsc())
}

/// A moment of `CLOCK_MONOTONIC` on perf's clock. The two differ by what they were set to and by how time was slewed since,
/// so that they are compared anew each time; good to about a microsecond for a moment not long ago.
#[must_use]
pub fn perf_of_monotonic(conversion: &TscConversion, moment: u64) -> Nanos {
    // Of some tries the one that was interrupted least.
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
    fn moments_convert_by_their_distance_from_now() {
        // One tick is one nanosecond, whatever the processor's real rate: only the distance is looked at.
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
