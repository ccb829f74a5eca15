//! The clock of the recorded packets: the time-stamp counter (TSC), calibrated against
//! `CLOCK_MONOTONIC`.
#![allow(unsafe_code)]

use backtrail_pt::encoder::TimingOptions;
use backtrail_pt::{TimingParams, Tsc, TscConversion};
use std::time::Duration;

/// TSC ticks per crystal clock tick in our streams: the largest ratio that a TMA packet can
/// express.
const CRYSTAL_RATIO: u32 = 512;
/// MTC every 2^12 crystal ticks: 0.5–1 ms.
const MTC_FREQ: u8 = 12;
/// How long calibration measures before recording starts.
const CALIBRATION: Duration = Duration::from_millis(10);

/// Returns the current time-stamp counter.
pub(crate) fn now() -> Tsc {
    // SAFETY: every x86-64 processor has RDTSC, and Linux lets user code use it.
    Tsc(unsafe { core::arch::x86_64::_rdtsc() })
}

/// Both clocks, read at the same moment.
#[derive(Clone, Copy, Debug)]
struct ClockSample {
    tsc: u64,
    nanos: u64,
}

impl ClockSample {
    /// Takes several samples and returns the one with the shortest read window.
    fn take() -> Self {
        let tries = (0..16).map(|_| {
            let before = now().0;
            let nanos = monotonic();
            let width = now().0.wrapping_sub(before);
            (
                width,
                Self {
                    tsc: before.wrapping_add(width / 2),
                    nanos,
                },
            )
        });
        tries
            .min_by_key(|(width, _)| *width)
            .map_or(Self { tsc: 0, nanos: 0 }, |(_, sample)| sample)
    }
}

/// The relation between the two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calibration {
    start: ClockSample,
    params: TimingParams,
}

impl Calibration {
    /// Measures the TSC frequency for some milliseconds.
    pub(crate) fn start() -> Self {
        let start = ClockSample::take();
        std::thread::sleep(CALIBRATION);
        let end = ClockSample::take();
        let ticks = u128::from(end.tsc.wrapping_sub(start.tsc));
        let nanos = u128::from(end.nanos.saturating_sub(start.nanos)).max(1);
        // The ratio is in units of a 100 MHz bus clock.
        let nom_freq = (ticks * 10 / nanos).clamp(1, 255) as u8;
        let params = TimingParams {
            mtc_freq: MTC_FREQ,
            nom_freq,
            cpuid_15h_eax: 1,
            cpuid_15h_ebx: CRYSTAL_RATIO,
        };
        Self { start, params }
    }

    /// Returns the timing options of the packet encoder.
    pub(crate) fn timing(&self, fine: bool) -> TimingOptions {
        TimingOptions {
            params: self.params,
            mtc: fine,
            cyc: fine,
        }
    }

    /// Returns the timing parameters that a decoder needs.
    pub(crate) fn params(&self) -> TimingParams {
        self.params
    }

    /// Returns the conversion measured since the start, or `None` if the clock readings are
    /// unusable.
    pub(crate) fn conversion(&self) -> Option<TscConversion> {
        let end = ClockSample::take();
        let ticks = end.tsc.checked_sub(self.start.tsc)?;
        let nanos = end.nanos.checked_sub(self.start.nanos)?;
        conversion(ticks, nanos, end)
    }
}

/// Returns the most precise multiplier that fits, with the offset that makes `at` match.
fn conversion(ticks: u64, nanos: u64, at: ClockSample) -> Option<TscConversion> {
    let (mult, shift) = (0..=32u16).rev().find_map(|shift| {
        let mult = (u128::from(nanos) << shift).checked_div(u128::from(ticks))?;
        Some((u32::try_from(mult).ok().filter(|mult| *mult != 0)?, shift))
    })?;
    let from_zero = TscConversion::new(shift, mult, 0)?.nanos(Tsc(at.tsc));
    TscConversion::new(shift, mult, at.nanos.wrapping_sub(from_zero.0))
}

/// The processes that CPU time is summed over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CpuTimeScope {
    /// The recorder, with all its threads.
    Recorder,
    /// The children that have been waited for, and their descendants.
    Children,
}

/// Returns the CPU time used so far, in nanoseconds (getrusage(2)).
pub(crate) fn cpu_time(scope: CpuTimeScope) -> u64 {
    let who = match scope {
        CpuTimeScope::Recorder => libc::RUSAGE_SELF,
        CpuTimeScope::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: all zeros are a valid value, and the kernel writes no more than its size.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let nanos = |time: libc::timeval| (time.tv_sec as u64) * 1_000_000_000 + (time.tv_usec as u64) * 1000;
    nanos(usage.ru_utime).saturating_add(nanos(usage.ru_stime))
}

fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writes, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::Nanos;

    #[test]
    fn known_rate_converts_exactly() {
        let at = ClockSample {
            tsc: 25_000_000_000,
            nanos: 77_000_000_000,
        };
        let conversion = conversion(2_500_000, 1_000_000, at).unwrap();
        assert_eq!(conversion.nanos(Tsc(25_000_000_000)), Nanos(77_000_000_000));
        let later = conversion.nanos(Tsc(27_500_000_000));
        assert!(later.0.abs_diff(78_000_000_000) <= 2, "{later:?}");
        assert!(super::conversion(0, 1, at).is_none());
    }

    #[test]
    fn this_machine_converts_to_its_monotonic_clock() {
        let conversion = Calibration::start().conversion().unwrap();
        let (before, tsc, after) = (monotonic(), now(), monotonic());
        let nanos = conversion.nanos(tsc);
        assert!(nanos.0 + 1_000_000 > before && nanos.0 < after + 1_000_000);
    }
}
