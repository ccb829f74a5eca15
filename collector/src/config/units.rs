//! Sizes and durations in a form that people write.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A size in bytes: a number, or a text with K, M, G or T (1024-based).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A duration: a text with `us`, `ms`, `s`, `m` or `h`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

const SIZES: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];
const SPANS: [(&str, u64); 5] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = SIZES
            .iter()
            .find(|(_, size)| self.0 != 0 && self.0.is_multiple_of(*size));
        match unit {
            Some((name, size)) => write!(f, "{}{name}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        let unit = SPANS.iter().rev().find(|(_, unit)| micros.is_multiple_of(*unit));
        let (name, unit) = unit.copied().unwrap_or(("us", 1));
        write!(f, "{}{name}", micros / unit)
    }
}

/// Splits a text into a whole number and the unit after it.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim()))
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size; write for example 512K, 64M or 1G");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let unit = unit
            .trim_end_matches("iB")
            .trim_end_matches('B')
            .to_ascii_uppercase();
        let factor = match unit.as_str() {
            "" => 1,
            unit => SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1,
        };
        number.checked_mul(factor).map(Self).ok_or_else(wrong)
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration; write for example 50ms, 10s or 2m");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let unit = if unit.is_empty() { "s" } else { unit };
        let factor = SPANS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        let micros = number.checked_mul(factor).ok_or_else(wrong)?;
        Ok(Self(Duration::from_micros(micros)))
    }
}

macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged, expecting = "write a number, or a text of a number and a unit")]
                enum Input {
                    Number(u64),
                    Text(String),
                }
                let text = match Input::deserialize(deserializer)? {
                    Input::Number(number) => number.to_string(),
                    Input::Text(text) => text,
                };
                text.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_text!(Size, Span);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_round_trip() {
        for text in ["0", "1", "512K", "3M", "8G", "5T", "1536"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("64MiB".parse(), Ok(Size(64 << 20)));
        assert_eq!("1k".parse(), Ok(Size(1024)));
        for text in ["50ms", "10s", "2m", "1h", "7us", "1500ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("3".parse(), Ok(Span(Duration::from_secs(3))));
        for text in ["", "M", "-1", "1.5G", "99999999999T", "2 days"] {
            assert!(
                text.parse::<Size>().is_err() && text.parse::<Span>().is_err(),
                "{text}"
            );
        }
    }
}
