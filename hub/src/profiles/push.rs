//! Pushed profiles, in the requests of several clients.

pub mod parca;
pub mod pyroscope;

use crate::error::{Error, Result};
use backtrail_profile::format::decoded_size::{MessageShape, decoded_size};
use backtrail_profile::{Event, Profile};

/// A profile of a request, before its format is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushedProfile {
    /// The labels that the client gave, as it named them.
    pub labels: Vec<(String, String)>,
    /// The profile, in a format that its bytes decide.
    pub bytes: Vec<u8>,
    /// The time of the profile in nanoseconds since 1970, for formats without times.
    pub start: Option<u64>,
    /// Its length in nanoseconds, for formats without times.
    pub duration: Option<u64>,
    /// Whether the request is one of OTLP, which may have no profile.
    pub may_be_empty: bool,
    /// The event of folded stacks, which have none of their own. `None`: samples.
    pub folded: Option<FoldedEvent>,
}

/// The event of folded stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedEvent {
    /// The name.
    pub name: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// The amount of the unit for each count of the stacks.
    pub factor: u64,
}

impl FoldedEvent {
    /// Gives the samples of folded stacks this event. A profile with events of its own stays.
    ///
    /// # Errors
    /// Fails if a weight exceeds 64 bits in the unit.
    pub fn apply(&self, profile: &mut Profile) -> Result<()> {
        let text = |id| profile.text(id);
        let is_folded =
            |event: &Event| (text(event.name), text(event.unit), event.period) == ("samples", "count", 1);
        if profile.events.len() != 1 || !profile.events.iter().all(|(_, event)| is_folded(event)) {
            return Ok(());
        }
        let factor = i64::try_from(self.factor).unwrap_or(i64::MAX);
        let event = profile.event(self.name, self.unit, self.factor)?;
        for sample in &mut profile.samples {
            let weight = sample.weight.checked_mul(factor);
            sample.weight =
                weight.ok_or_else(|| Error::TooLarge("a weight exceeds 64 bits in its unit".to_owned()))?;
            sample.event = event;
        }
        Ok(())
    }
}

impl PushedProfile {
    /// Returns the profiles of a label set, in a format that has times.
    ///
    /// # Errors
    /// Fails if the labels are too long, because each profile has a copy of them.
    fn of_series(
        labels: Vec<(String, String)>,
        profiles: impl Iterator<Item = Vec<u8>>,
    ) -> Result<impl Iterator<Item = Self>> {
        let length: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        if labels.len() > MAX_LABELS || length > MAX_LABEL_BYTES {
            return Err(Error::TooLarge(format!(
                "a profile has at most {MAX_LABELS} labels with {} KiB of text",
                MAX_LABEL_BYTES >> 10
            )));
        }
        Ok(profiles.map(move |bytes| Self {
            labels: labels.clone(),
            bytes,
            ..Self::default()
        }))
    }
}

/// The most profiles of a request.
const MAX_PROFILES: usize = 4096;
/// The most labels of a profile.
const MAX_LABELS: usize = 128;
/// The most bytes of the labels of a profile.
const MAX_LABEL_BYTES: usize = 32 << 10;
/// The most memory of a decoded request in bytes.
const MAX_DECODED: usize = 256 << 20;

/// Checks the memory that a message takes when it is decoded.
fn check_memory(message: &[u8], shape: &MessageShape) -> Result<()> {
    if decoded_size(message, shape) > MAX_DECODED {
        return Err(Error::TooLarge(format!(
            "the message takes more than {} MiB when it is decoded; send fewer profiles at once",
            MAX_DECODED >> 20
        )));
    }
    Ok(())
}

/// Checks the number of profiles of a request.
fn check_count(profiles: &[PushedProfile]) -> Result<()> {
    if profiles.is_empty() {
        return Err(Error::Invalid(
            "the message has no profile; send at least one".to_owned(),
        ));
    }
    if profiles.len() > MAX_PROFILES {
        return Err(Error::TooLarge(format!(
            "a request has at most {MAX_PROFILES} profiles, this one has {}",
            profiles.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::format;

    #[test]
    fn folded_stacks_get_their_event() {
        let cpu = FoldedEvent {
            name: "cpu",
            unit: "nanoseconds",
            factor: 10_000_000,
        };
        let mut profile = format::read(b"main;f 3\n").unwrap();
        cpu.apply(&mut profile).unwrap();
        let sample = profile.samples[0];
        let event = profile.events.get(sample.event).unwrap();
        assert_eq!(
            (profile.text(event.name), profile.text(event.unit)),
            ("cpu", "nanoseconds")
        );
        assert_eq!((sample.weight, event.period), (30_000_000, 10_000_000));
        // Its own events are known.
        let before = profile.clone();
        cpu.apply(&mut profile).unwrap();
        assert_eq!(profile.samples, before.samples);
        let mut large = format::read(b"main 9000000000000000\n").unwrap();
        let error = cpu.apply(&mut large).unwrap_err().to_string();
        assert!(error.contains("exceeds 64 bits"), "{error}");
    }
}
