//! Units of weights, and their conversion to nanoseconds and bytes.

use crate::profile::Profile;
use crate::sample::Sample;
use crate::table::Id;
use crate::{Error, Result};

/// The unit of times.
const NANOSECONDS: &str = "nanoseconds";
/// The unit of memory.
const BYTES: &str = "bytes";

/// Returns the base unit of a unit, and the number of base units that it has. Times have
/// `nanoseconds`, and amounts of memory have `bytes`. `None`: another unit, as `count`.
///
/// Names and factors are those of pprof: a kilobyte has 1024 bytes.
///
/// ```
/// use backtrail_profile::base_unit;
///
/// assert_eq!(base_unit("milliseconds"), Some(("nanoseconds", 1_000_000)));
/// assert_eq!(base_unit("count"), None);
/// ```
#[must_use]
pub fn base_unit(unit: &str) -> Option<(&'static str, i64)> {
    let unit = unit.to_lowercase();
    // `ns` is no plural.
    let singular = match unit.strip_suffix('s') {
        Some(singular) if unit.chars().count() > 2 => singular,
        _ => &*unit,
    };
    Some(match singular {
        "ns" | "nanosecond" => (NANOSECONDS, 1),
        // The micro sign, and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" | "microsecond" => (NANOSECONDS, 1000),
        "ms" | "millisecond" => (NANOSECONDS, 1_000_000),
        "s" | "sec" | "second" => (NANOSECONDS, 1_000_000_000),
        "hr" | "hour" => (NANOSECONDS, 3_600_000_000_000),
        "b" | "byte" => (BYTES, 1),
        "kb" | "kbyte" | "kilobyte" => (BYTES, 1 << 10),
        "mb" | "mbyte" | "megabyte" => (BYTES, 1 << 20),
        "gb" | "gbyte" | "gigabyte" => (BYTES, 1 << 30),
        "tb" | "tbyte" | "terabyte" => (BYTES, 1 << 40),
        "pb" | "pbyte" | "petabyte" => (BYTES, 1 << 50),
        _ => return None,
    })
}

impl Profile {
    /// Converts weights and periods of times to nanoseconds, and those of memory to bytes. Then an
    /// event has one sum, even if its samples came in several units.
    ///
    /// A period that exceeds 64 bits becomes 0, which is unknown.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`] if a weight exceeds 64 bits. Then the profile is as before. Otherwise as
    /// [`Profile::string`].
    pub fn convert_units(&mut self) -> Result<()> {
        let base = |unit: &str| base_unit(unit).filter(|(base, _)| *base != unit);
        let events = self.events.iter();
        let bases: Vec<_> = events.map(|(_, event)| base(self.text(event.unit))).collect();
        if bases.iter().all(Option::is_none) {
            return Ok(());
        }
        let weight = |sample: &Sample| match bases.get(sample.event.index()) {
            Some(Some((base, factor))) => {
                let weight = sample.weight.checked_mul(*factor);
                weight.ok_or_else(|| self.exceeding(sample, base))
            }
            _ => Ok(sample.weight),
        };
        let weights: Vec<i64> = self.samples.iter().map(weight).collect::<Result<_>>()?;
        let events = std::mem::take(&mut self.events);
        let mut ids = Vec::with_capacity(bases.len());
        for ((_, event), base) in events.iter().zip(bases) {
            let mut event = event.clone();
            if let Some((unit, factor)) = base {
                event.unit = self.string(unit)?;
                event.period = event.period.checked_mul(factor.unsigned_abs()).unwrap_or(0);
            }
            ids.push(self.intern_event(event)?);
        }
        for (sample, weight) in self.samples.iter_mut().zip(weights) {
            sample.weight = weight;
            if let Some(id) = ids.get(sample.event.index()) {
                sample.event = *id;
            }
        }
        Ok(())
    }

    fn exceeding(&self, sample: &Sample, base: &'static str) -> Error {
        let unit = self.events.get(sample.event).map(|event| event.unit);
        Error::Weight {
            weight: sample.weight,
            unit: unit.map_or("", |unit| self.text(unit)).chars().take(32).collect(),
            base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StackId;

    fn profile(events: &[(&str, &str, u64, i64)]) -> Profile {
        let mut profile = Profile::default();
        for (name, unit, period, weight) in events {
            let event = profile.event(name, unit, *period).unwrap();
            profile.add(event, *weight, StackId::EMPTY).unwrap();
        }
        profile
    }

    fn totals(profile: &Profile) -> Vec<(&str, &str, u64, i64)> {
        let totals = profile.events.iter().map(|(id, event)| {
            let texts = (profile.text(event.name), profile.text(event.unit));
            (texts.0, texts.1, event.period, profile.total(id))
        });
        totals.collect()
    }

    #[test]
    fn names_of_units_are_those_of_pprof() {
        for (unit, expected) in [
            ("nanoseconds", Some((NANOSECONDS, 1))),
            ("ns", Some((NANOSECONDS, 1))),
            ("us", Some((NANOSECONDS, 1000))),
            ("\u{b5}s", Some((NANOSECONDS, 1000))),
            ("Microsecond", Some((NANOSECONDS, 1000))),
            ("ms", Some((NANOSECONDS, 1_000_000))),
            ("s", Some((NANOSECONDS, 1_000_000_000))),
            ("secs", Some((NANOSECONDS, 1_000_000_000))),
            ("hours", Some((NANOSECONDS, 3_600_000_000_000))),
            ("B", Some((BYTES, 1))),
            ("kB", Some((BYTES, 1024))),
            ("megabytes", Some((BYTES, 1 << 20))),
            ("count", None),
            ("samples", None),
            ("", None),
        ] {
            assert_eq!(base_unit(unit), expected, "{unit}");
        }
    }

    #[test]
    fn units_of_an_event_become_one() {
        let mut profile = profile(&[
            ("cpu", "milliseconds", 10, 90),
            ("alloc", "kilobytes", 512, -3),
            ("cpu", "microseconds", 10_000, 7),
            ("cpu", "nanoseconds", 10_000_000, 5),
            ("cpu", "count", 1, 4),
        ]);
        profile.convert_units().unwrap();
        let expected = [
            ("cpu", "nanoseconds", 10_000_000, 90_007_005),
            ("alloc", "bytes", 512 << 10, -3 << 10),
            ("cpu", "count", 1, 4),
        ];
        assert_eq!(totals(&profile), expected);
        profile.convert_units().unwrap();
        assert_eq!(totals(&profile), expected);
    }

    #[test]
    fn weight_beyond_64_bits_is_an_error() {
        let events = [
            ("cpu", "us", 1, 7),
            ("cpu", "s", u64::MAX, i64::MAX / 1_000_000_000),
        ];
        let mut fits = profile(&events);
        fits.convert_units().unwrap();
        assert_eq!(
            totals(&fits),
            [("cpu", "nanoseconds", 0, 9_223_372_036_000_007_000)]
        );
        let mut exceeds = profile(&events);
        exceeds.samples[1].weight += 1;
        let error = exceeds.convert_units().unwrap_err().to_string();
        assert_eq!(
            error,
            "a sample weighs 9223372037 s, which is more nanoseconds than 64 bits hold; \
             correct its weight or its unit"
        );
        assert_eq!((exceeds.events.len(), exceeds.samples[0].weight), (2, 7));
    }
}
