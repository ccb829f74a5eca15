//! A push of profiles that was read, on its way into the store.

use super::origin::SampleOrigins;
use backtrail_profile::{Profile, Sample};
use backtrail_store::PushHash;

/// A push that was read.
#[derive(Debug)]
pub struct ReadPush {
    /// The hash of its content and its labels.
    pub hash: PushHash,
    /// The origins of its samples.
    pub origins: SampleOrigins,
    /// The labels that all its samples have.
    pub labels: Vec<(String, String)>,
    /// Whether the samples had no time of day, so that the profile ends at its arrival.
    pub is_moved: bool,
    /// The profile.
    pub profile: Profile,
}

impl ReadPush {
    /// Returns an estimate of the memory in KiB.
    #[must_use]
    pub fn kibibytes(&self) -> u32 {
        let profile = &self.profile;
        let bytes = profile.samples.len() * size_of::<Sample>()
            + self.origins.of_sample.len() * 4
            + profile.stacks.len() * 40
            + profile.strings.len() * 96
            + (profile.frames.len() + profile.functions.len() + profile.modules.len()) * 80;
        u32::try_from(bytes >> 10).unwrap_or(u32::MAX).saturating_add(1)
    }
}
