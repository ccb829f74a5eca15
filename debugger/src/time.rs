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
                match uncertainty {
                    0 | 1 => f.write_str(&nanos(middle)),
                    _ => f.write_str(&interval(middle, uncertainty.div_ceil(2))),
                }
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
            Some(bounds) => f.write_str(&nanos_range(bounds)),
            None if self.ticks[0] == self.ticks[1] => write!(f, "{} ticks", self.ticks[1]),
            None => write!(f, "{}–{} ticks", self.ticks[0], self.ticks[1]),
        }
    }
}

/// Returns an interval by its middle and half of its length, with the unit once: `-12.3 ms ±1.2`.
///
/// Both numbers have the digits that the second one needs. It is rounded up, so that the text
/// covers the interval.
fn interval(middle: i64, half: u64) -> String {
    let (divisor, unit) = unit_of(middle.unsigned_abs().max(half));
    // Two digits of the half, and no more than three after the point.
    let step = 10_u64.pow(half.max(1).ilog10().saturating_sub(1));
    let step = step.clamp(divisor.div_ceil(1000), divisor);
    let rounded = (middle.unsigned_abs() + step / 2) / step * step;
    let half = (half + rounded.abs_diff(middle.unsigned_abs())).div_ceil(step) * step;
    let decimals = (divisor / step).ilog10() as usize;
    let shown = |ns: u64| format!("{:.decimals$}", ns as f64 / divisor as f64);
    let sign = if middle < 0 && rounded > 0 { "-" } else { "" };
    format!("{sign}{} {unit} ±{}", shown(rounded), shown(half))
}

/// Returns the nanoseconds of the unit for a number of nanoseconds, and its name.
fn unit_of(size: u64) -> (u64, &'static str) {
    match size {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    }
}

/// Returns nanoseconds in a suitable unit: `3.200 µs`.
#[must_use]
pub fn nanos(ns: i64) -> String {
    match unit_of(ns.unsigned_abs()) {
        (1, unit) => format!("{ns} {unit}"),
        (divisor, unit) => format!("{:.3} {unit}", ns as f64 / divisor as f64),
    }
}

/// Returns a range of nanoseconds with the unit once: `0.333–1.000 µs`.
#[must_use]
pub fn nanos_range([shortest, longest]: [u64; 2]) -> String {
    nanos_pair([shortest, longest]).join("–")
}

/// Returns two bounds in nanoseconds. The unit of both is in the last text.
///
/// A bound that would lose digits in the unit of the other one keeps its own.
#[must_use]
pub fn nanos_pair([first, last]: [u64; 2]) -> [String; 2] {
    let (divisor, unit) = unit_of(first.max(last));
    let decimals = if divisor == 1 { 0 } else { 3 };
    let shown = |ns: u64| format!("{:.decimals$}", ns as f64 / divisor as f64);
    let loses_digits = |ns: u64| ns != 0 && ns < divisor / 10;
    if loses_digits(first) || loses_digits(last) {
        return [first, last].map(|ns| nanos(i64::try_from(ns).unwrap_or(i64::MAX)));
    }
    [shown(first), format!("{} {unit}", shown(last))]
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
        assert_eq!(time.to_string(), "-1.199 ms ±0.001");
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
    fn range_names_its_unit_once() {
        for (bounds, expected) in [
            ([56_194_000, 58_897_000], "56.194–58.897 ms"),
            ([333, 1000], "0.333–1.000 µs"),
            ([5, 999], "5–999 ns"),
            ([999_000, 1_001_000], "0.999–1.001 ms"),
            ([5, 2000], "5 ns–2.000 µs"),
            ([1_500, 2_000_000_000], "1.500 µs–2.000 s"),
        ] {
            assert_eq!(nanos_range(bounds), expected);
        }
        assert_eq!(nanos_pair([2_000_000, 0]), ["2.000", "0.000 ms"]);
        assert_eq!(nanos_pair([2_000_000, 5]), ["2.000 ms", "5 ns"]);
        let duration = |ns| Duration { ticks: [2, 5], ns };
        assert_eq!(duration(Some([1000, 2000])).to_string(), "1.000–2.000 µs");
        assert_eq!(duration(Some([0, 2000])).to_string(), "< 2.000 µs");
        assert_eq!(duration(Some([7, 7])).to_string(), "7 ns");
        assert_eq!(duration(None).to_string(), "2–5 ticks");
    }

    #[test]
    fn typed_times_are_read() {
        assert_eq!(parse_nanos("-1.5ms"), Some(-1_500_000));
        assert_eq!(parse_nanos("-3 us"), Some(-3000));
        assert_eq!(parse_nanos("12"), Some(12));
        assert_eq!(parse_nanos("1 year"), None);
    }

    #[test]
    fn interval_is_short_and_covers_its_bounds() {
        for (from, uncertainty, expected) in [
            (-24_000_000, 24_000_000, "-12 ms ±12"),
            (-67_735_000, 2_934_000, "-66.3 ms ±1.5"),
            (-9_530, 9_530, "-4.8 µs ±4.8"),
            (-13_864, 668, "-13.53 µs ±0.34"),
            (-5, 10, "0 ns ±5"),
            (-2_500_000_000, 10, "-2.500 s ±0.001"),
            (-300, 2_000_000, "1.0 ms ±1.1"),
        ] {
            let time = Time {
                tsc: 0,
                ticks: 0,
                uncertainty_ticks: Some(0),
                ns: Some(from),
                uncertainty_ns: Some(uncertainty),
            };
            assert_eq!(time.to_string(), expected);
        }
        let mut random = 7_u64;
        for _ in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let middle = (random >> 20) as i64 % 10_i64.pow((random % 12) as u32 + 1);
            let half = (random >> 30) % 10_u64.pow((random % 11) as u32 + 1) + 1;
            for middle in [middle, -middle] {
                let text = interval(middle, half);
                let [shown, unit, bound] = text.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{text}")
                };
                let digits = bound.bytes().filter(|byte| (b'1'..=b'9').contains(byte)).count();
                assert!(digits <= 3, "{text}");
                let shown = parse_nanos(&format!("{shown} {unit}")).unwrap();
                let bound = parse_nanos(&format!("{} {unit}", bound.trim_start_matches('±'))).unwrap();
                // Numbers of seconds are read with a few digits less.
                let slack = 1 + middle.abs() / 1_000_000_000_000;
                assert!(
                    (shown - middle).abs() + half as i64 <= bound + slack,
                    "{middle} {half}: {text}"
                );
            }
        }
    }
}
