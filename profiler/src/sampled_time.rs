//! The processor time that a program used, beside that of its samples.
//!
//! The timer of an event starts again in each process. A process that ends before its first period
//! has no sample, in perf too. Source: `kernel/events/core.c` (`perf_swevent_start_hrtimer`).

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use std::time::Duration;

/// The least time of a program that a note is about.
const LEAST: Duration = Duration::from_millis(100);
/// The part of the time that has samples, in percent, from which on nothing is noted. Samples of a
/// short time vary by chance.
const ENOUGH: u32 = 70;

/// The processor time of processes that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    user: Duration,
    system: Duration,
}

impl ProcessorTime {
    /// Returns the time of all children that have ended, with those that they waited for.
    pub fn of_children() -> Self {
        let duration = |time: TimeVal| {
            let micros = u64::try_from(time.num_microseconds()).unwrap_or(0);
            Duration::from_micros(micros)
        };
        match getrusage(UsageWho::RUSAGE_CHILDREN) {
            Ok(usage) => Self {
                user: duration(usage.user_time()),
                system: duration(usage.system_time()),
            },
            Err(_) => Self::default(),
        }
    }

    /// Returns the time since an earlier state.
    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }

    /// Returns the sum, without the time in the kernel unless that is sampled.
    pub fn of(self, has_kernel: bool) -> Duration {
        self.user + if has_kernel { self.system } else { Duration::ZERO }
    }
}

/// Returns a sentence if much of a program's time has no samples. `period` is that of a sample.
pub(crate) fn note(sampled: Duration, used: Duration, period: Duration) -> Option<String> {
    if used < LEAST || sampled * 100 >= used * ENOUGH {
        return None;
    }
    Some(format!(
        "samples have {:.2} s of the {:.2} s of processor time that the program used; a process that ends within {:.1} ms has none: raise --freq, or record with --all",
        sampled.as_secs_f64(),
        used.as_secs_f64(),
        period.as_secs_f64() * 1e3
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn missing_time_is_noted() {
        let millis = Duration::from_millis;
        let period = Duration::from_micros(10_101);
        assert_eq!(note(millis(700), millis(1000), period), None);
        assert_eq!(note(millis(0), millis(99), period), None);
        assert_eq!(
            note(millis(50), millis(1450), period).unwrap(),
            "samples have 0.05 s of the 1.45 s of processor time that the program used; a process that ends within 10.1 ms has none: raise --freq, or record with --all"
        );
    }

    #[test]
    fn time_of_children_grows() {
        let before = ProcessorTime::of_children();
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", spin]).status().unwrap().success());
        let used = ProcessorTime::of_children().since(before).of(true);
        assert!(used > Duration::from_millis(5), "{used:?}");
    }
}
