//! The origin of a profile.

use crate::{Error, Result};
use backtrail_profile::Profile;

/// The origin of a profile: columns of each of its samples. An empty text means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The service.
    pub service: Box<str>,
    /// The host.
    pub host: Box<str>,
    /// The build of the service, as a version or commit.
    pub build: Box<str>,
    /// The region.
    pub region: Box<str>,
    /// The language of the service.
    pub language: Box<str>,
}

/// The maximum length of a text of an origin.
const MAX_LEN: usize = 1024;

impl Origin {
    /// Checks the length of the texts.
    pub(crate) fn check(&self) -> Result<()> {
        let texts = [
            ("service", &self.service),
            ("host", &self.host),
            ("build", &self.build),
            ("region", &self.region),
            ("language", &self.language),
        ];
        match texts.into_iter().find(|(_, text)| text.len() > MAX_LEN) {
            None => Ok(()),
            Some((name, text)) => Err(Error::Invalid(format!(
                "the {name} of a profile has {} bytes, more than {MAX_LEN}; shorten it",
                text.len()
            ))),
        }
    }
}

/// The origins of a profile's samples.
#[derive(Clone, Copy, Debug)]
pub struct Origins<'a> {
    /// The distinct origins.
    pub distinct: &'a [Origin],
    /// The index of each sample's origin. Empty: all samples have the first one.
    pub of_sample: &'a [u32],
}

impl<'a> Origins<'a> {
    /// Returns the origins of a profile whose samples all have one.
    #[must_use]
    pub fn one(origin: &'a Origin) -> Self {
        Self {
            distinct: std::slice::from_ref(origin),
            of_sample: &[],
        }
    }

    /// Returns the index of a sample's origin.
    pub(crate) fn of(&self, sample: usize) -> usize {
        self.of_sample.get(sample).map_or(0, |index| *index as usize)
    }

    /// Checks the texts, and that each sample has an origin.
    pub(crate) fn check(&self, profile: &Profile) -> Result<()> {
        self.distinct.iter().try_for_each(Origin::check)?;
        let count = profile.samples.len();
        let mut indexes = self.of_sample.iter().map(|index| *index as usize);
        let is_complete = match self.of_sample.len() {
            0 => count == 0 || !self.distinct.is_empty(),
            len => len == count && indexes.all(|index| index < self.distinct.len()),
        };
        match is_complete {
            true => Ok(()),
            false => Err(Error::Invalid(
                "the samples of a profile do not all have an origin".to_owned(),
            )),
        }
    }
}
