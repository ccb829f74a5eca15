//! Pushed profiles, in the requests of several clients.

pub mod parca;
pub mod pyroscope;

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
}

impl PushedProfile {
    /// Returns the profiles of a label set, in a format that has times.
    fn of_series(
        labels: Vec<(String, String)>,
        profiles: impl Iterator<Item = Vec<u8>>,
    ) -> impl Iterator<Item = Self> {
        profiles.map(move |bytes| Self {
            labels: labels.clone(),
            bytes,
            ..Self::default()
        })
    }
}

/// The most profiles of a request.
const MAX_PROFILES: usize = 4096;

/// Checks the number of profiles of a request.
fn check_count(profiles: &[PushedProfile]) -> crate::error::Result<()> {
    if profiles.is_empty() {
        return Err(crate::error::Error::Invalid(
            "the message has no profile; send at least one".to_owned(),
        ));
    }
    if profiles.len() > MAX_PROFILES {
        return Err(crate::error::Error::TooLarge(format!(
            "a request has at most {MAX_PROFILES} profiles, this one has {}",
            profiles.len()
        )));
    }
    Ok(())
}
