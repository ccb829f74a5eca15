//! The processor model of a trace, which determines the errata that a decoder works around.

use std::fmt;
use std::str::FromStr;

/// The family, model and stepping of an x86 processor, as in `/proc/cpuinfo` (CPUID leaf 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuModel {
    /// The vendor. Errata apply to Intel only.
    pub vendor: Vendor,
    /// Display family.
    pub family: u16,
    /// Display model.
    pub model: u8,
    /// Stepping, 0–15.
    pub stepping: u8,
}

impl CpuModel {
    /// An unknown processor, without errata.
    pub const UNKNOWN: Self = Self {
        vendor: Vendor::Other,
        family: 0,
        model: 0,
        stepping: 0,
    };
}

/// The vendor of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// `GenuineIntel`.
    #[default]
    Intel,
    /// Another or unknown vendor, without errata. The software recorder uses this.
    Other,
}

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.family, self.model, self.stepping)
    }
}

/// The text is not FAMILY/MODEL/STEPPING in range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a processor is FAMILY/MODEL/STEPPING in decimal, for example 6/85/4")]
pub struct ParseCpuModelError;

impl FromStr for CpuModel {
    type Err = ParseCpuModelError;

    fn from_str(text: &str) -> Result<Self, ParseCpuModelError> {
        let mut parts = text.split('/');
        let mut part = || parts.next().ok_or(ParseCpuModelError);
        let family = part()?.parse().map_err(|_| ParseCpuModelError)?;
        let model = part()?.parse().map_err(|_| ParseCpuModelError)?;
        let stepping = part()?.parse().map_err(|_| ParseCpuModelError)?;
        if parts.next().is_some() || stepping > 15 {
            return Err(ParseCpuModelError);
        }
        Ok(Self {
            vendor: Vendor::Intel,
            family,
            model,
            stepping,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_text_round_trips() {
        let model: CpuModel = "6/85/4".parse().unwrap();
        assert_eq!(model.to_string(), "6/85/4");
        for text in ["", "6/85", "6/85/4/1", "6/256/1", "6/85/16", "a/b/c"] {
            assert_eq!(text.parse::<CpuModel>(), Err(ParseCpuModelError), "{text}");
        }
    }
}
