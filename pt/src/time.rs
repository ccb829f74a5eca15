//! Clocks: the time-stamp counter, perf's nanoseconds, and their conversion.

use std::fmt;

/// A time-stamp counter value, in ticks of the invariant TSC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsc(pub u64);

/// Nanoseconds of perf's clock (`CLOCK_MONOTONIC`-like, `perf_event_open(2)` "time_zero").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl fmt::Display for Tsc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// perf's conversion between TSC and nanoseconds, from `struct perf_event_mmap_page`
/// (`linux/perf_event.h`, "cap_user_time_zero").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscConversion {
    /// `time_shift`, below 64.
    pub shift: u16,
    /// `time_mult`, not 0.
    pub mult: u32,
    /// `time_zero`, in nanoseconds; wraps.
    pub zero: u64,
}

impl TscConversion {
    /// Builds a conversion, or returns `None` if the numbers are invalid (`shift` ≥ 64 or `mult` =
    /// 0).
    #[must_use]
    pub fn new(shift: u16, mult: u32, zero: u64) -> Option<Self> {
        (shift < 64 && mult != 0).then_some(Self { shift, mult, zero })
    }

    /// Converts to nanoseconds with the formula in the kernel header; wraps at 2^64 as there.
    #[must_use]
    pub fn nanos(&self, tsc: Tsc) -> Nanos {
        let (shift, mult) = (u32::from(self.shift), u64::from(self.mult));
        let quotient = tsc.0 >> shift;
        let remainder = tsc.0 & ((1 << shift) - 1);
        let fraction = ((u128::from(remainder) * u128::from(mult)) >> shift) as u64;
        Nanos(
            self.zero
                .wrapping_add(quotient.wrapping_mul(mult))
                .wrapping_add(fraction),
        )
    }

    /// Converts to TSC, rounded down, as perf's `perf_time_to_tsc` does.
    #[must_use]
    pub fn tsc(&self, nanos: Nanos) -> Tsc {
        let (shift, mult) = (u32::from(self.shift), u64::from(self.mult));
        let time = nanos.0.wrapping_sub(self.zero);
        let quotient = time / mult;
        let remainder = time % mult;
        let fraction = ((u128::from(remainder) << shift) / u128::from(mult)) as u64;
        Tsc((quotient << shift).wrapping_add(fraction))
    }
}

/// The clock parameters of the traced processor. Zero means unknown.
///
/// A decoder needs them to refine TSC by MTC and CYC packets (SDM volume 3, "Tracing and
/// frequency"; libipt's `pt_config`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimingParams {
    /// `IA32_RTIT_CTL.MTCFreq`: one MTC packet every 2^n ticks of the crystal clock.
    pub mtc_freq: u8,
    /// Nominal (maximum non-turbo) ratio, `MSR_PLATFORM_INFO[15:8]`.
    pub nom_freq: u8,
    /// CPUID leaf 15h EAX: denominator of TSC / crystal clock.
    pub cpuid_15h_eax: u32,
    /// CPUID leaf 15h EBX: numerator of TSC / crystal clock.
    pub cpuid_15h_ebx: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_agrees_with_the_kernel_formula() {
        let conversion = TscConversion::new(31, 1_076_264_588, 18_433_473_881_008_870_804).unwrap();
        let tsc = Tsc(40_450_075_479_261_677);
        let nanos = conversion.nanos(tsc);
        let back = conversion.tsc(nanos);
        assert!(
            tsc.0 - back.0 <= 2,
            "one nanosecond is about two ticks: {tsc} {back}"
        );
    }

    #[test]
    fn invalid_conversions_are_refused() {
        assert_eq!(TscConversion::new(64, 1, 0), None);
        assert_eq!(TscConversion::new(31, 0, 0), None);
    }
}
