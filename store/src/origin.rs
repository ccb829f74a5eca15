//! The origin of a profile.

use crate::{Error, Result};

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
