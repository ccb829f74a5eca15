//! Times as a reader wants them: relative to the end, with their uncertainty.

use backtrail_decoder::TimeEstimate;
use backtrail_pt::{Tsc, TscConversion};
use serde::Serialize;
use std::fmt;

/// From TSC ticks to times before the crash.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timebase {
    /// perf's conversion, if the trace has one.
    pub conversion: Option<TscConversion>,
    /// The moment called 0: the crash, or the end of the trace.
    pub zero: Option<Tsc>,
}

/// The time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Time {
    /// Not before this, in TSC ticks.
    pub tsc: u64,
    /// Not later than this many ticks after; `None`: no later stamp bounds it.
    pub uncertainty_ticks: Option<u64>,
    /// Nanoseconds from the crash (or the end), negative before it; `None`: no conversion is known.
    pub ns: Option<i64>,
    /// Not later than this many nanoseconds after.
    pub uncertainty_ns: Option<u64>,
    #[serde(skip)]
    ticks: i64,
}

impl Timebase {
    /// A time of the trace.
    #[must_use]
    pub fn time(&self, estimate: TimeEstimate) -> Time {
        let zero = self.zero.unwrap_or(estimate.tsc);
        let ns = self.conversion.map(|conversion| {
            conversion
                .nanos(estimate.tsc)
                .0
                .wrapping_sub(conversion.nanos(zero).0) as i64
        });
        let uncertainty_ticks = estimate.latest().map(|latest| latest.0 - estimate.tsc.0);
        let uncertainty_ns = self
            .conversion
            .zip(estimate.latest())
            .map(|(conversion, latest)| {
                conversion
                    .nanos(latest)
                    .0
                    .saturating_sub(conversion.nanos(estimate.tsc).0)
            });
        Time {
            tsc: estimate.tsc.0,
            uncertainty_ticks,
            ns,
            uncertainty_ns,
            ticks: estimate.tsc.0.wrapping_sub(zero.0) as i64,
        }
    }

    /// The TSC value at `ns` nanoseconds from zero; `None` without a conversion.
    #[must_use]
    pub fn tsc_at(&self, ns: i64) -> Option<Tsc> {
        let (conversion, zero) = (self.conversion?, self.zero?);
        if ns == 0 {
            // Not the first tick of that nanosecond.
            return Some(zero);
        }
        let zero = conversion.nanos(zero);
        Some(conversion.tsc(backtrail_pt::Nanos(zero.0.wrapping_add(ns as u64))))
    }

    /// Returns the duration between a lower and an upper bound in ticks.
    #[must_use]
    pub fn duration(&self, ticks: [u64; 2]) -> Duration {
        let in_ns = |conversion: TscConversion| {
            let zero = conversion.nanos(Tsc(0)).0;
            let [shortest, longest] = ticks.map(|ticks| conversion.nanos(Tsc(ticks)).0);
            // A remaining fraction of a nanosecond belongs to the upper bound.
            let remains = conversion.tsc(backtrail_pt::Nanos(longest)).0 < ticks[1];
            [
                shortest.wrapping_sub(zero),
                longest.wrapping_add(u64::from(remains)).wrapping_sub(zero),
            ]
        };
        Duration {
            ticks,
            ns: self.conversion.map(in_ns),
        }
    }
}

impl Time {
    /// TSC ticks from the crash (or the end), negative before it.
    #[must_use]
    pub fn ticks(&self) -> i64 {
        self.ticks
    }
}

/// A length of time, between a shortest and a longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Duration {
    /// In TSC ticks.
    pub ticks: [u64; 2],
    /// In nanoseconds, if a conversion is known.
    pub ns: Option<[u64; 2]>,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ns, self.uncertainty_ns) {
            (Some(ns), Some(uncertainty)) => {
                let middle = ns.saturating_add((uncertainty / 2) as i64);
                write!(f, "{}", nanos(middle))?;
                if uncertainty > 1 {
                    write!(f, " ±{}", nanos(uncertainty.div_ceil(2) as i64))?;
                }
                Ok(())
            }
            (Some(ns), None) => write!(f, "{} or later", nanos(ns)),
            (None, _) => match self.uncertainty_ticks {
                Some(0) => write!(f, "{} ticks", self.ticks),
                Some(more) => write!(
                    f,
                    "{}..{} ticks",
                    self.ticks,
                    self.ticks.saturating_add(more as i64)
                ),
                None => write!(f, "{} ticks or later", self.ticks),
            },
        }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns {
            Some([shortest, longest]) if shortest == longest => write!(f, "{}", nanos(longest as i64)),
            Some([0, longest]) => write!(f, "< {}", nanos(longest as i64)),
            Some([shortest, longest]) => write!(f, "{}–{}", nanos(shortest as i64), nanos(longest as i64)),
            None if self.ticks[0] == self.ticks[1] => write!(f, "{} ticks", self.ticks[1]),
            None => write!(f, "{}–{} ticks", self.ticks[0], self.ticks[1]),
        }
    }
}

/// Returns nanoseconds in a suitable unit: `3.200 µs`.
#[must_use]
pub fn nanos(ns: i64) -> String {
    let size = ns.unsigned_abs();
    let (divisor, unit) = match size {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{:.3} {unit}", ns as f64 / divisor)
}

/// Reads a time as it is typed after `@`: a number with `ns`, `us`, `µs`, `ms` or `s`.
#[must_use]
pub fn parse_nanos(text: &str) -> Option<i64> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = (text.get(..split)?, text.get(split..)?);
    let scale = match unit {
        "ns" | "" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let value = number.trim().parse::<f64>().ok()? * scale;
    value.is_finite().then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_to_zero_and_carry_their_uncertainty() {
        let base = Timebase {
            conversion: TscConversion::new(0, 2, 0),
            zero: Some(Tsc(1_000_000)),
        };
        let time = base.time(TimeEstimate {
            tsc: Tsc(400_000),
            uncertainty: 1000,
        });
        assert_eq!((time.ns, time.uncertainty_ns), (Some(-1_200_000), Some(2000)));
        assert_eq!(time.to_string(), "-1.199 ms ±1.000 µs");
        let last = base.time(TimeEstimate {
            tsc: Tsc(1_000_000),
            uncertainty: TimeEstimate::UNBOUNDED,
        });
        assert_eq!(last.to_string(), "0 ns or later");
        assert_eq!(base.tsc_at(-1_200_000), Some(Tsc(400_000)));
        let coarse = Timebase {
            conversion: TscConversion::new(3, 1, 0),
            zero: Some(Tsc(1_000_005)),
        };
        assert_eq!(coarse.tsc_at(0), coarse.zero);
    }

    #[test]
    fn no_length_is_longer_than_its_upper_bound() {
        let base = Timebase {
            conversion: TscConversion::new(2, 3, 7),
            zero: None,
        };
        // Three quarters of a nanosecond a tick.
        assert_eq!(base.duration([4, 8]).ns, Some([3, 6]));
        assert_eq!(base.duration([1, 9]).ns, Some([0, 7]));
        assert_eq!(base.duration([0, 0]).ns, Some([0, 0]));
    }

    #[test]
    fn typed_times_are_read() {
        assert_eq!(parse_nanos("-1.5ms"), Some(-1_500_000));
        assert_eq!(parse_nanos("-3 us"), Some(-3000));
        assert_eq!(parse_nanos("12"), Some(12));
        assert_eq!(parse_nanos("1 year"), None);
    }
}
