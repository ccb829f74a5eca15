//! Identifiers of reports, made by the host that reports.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The digits of an identifier: Crockford's base 32 in lower case, without i, l, o and u.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The number of digits of an identifier: 100 bits.
const LENGTH: usize = 20;

/// The identifier of a report, and of the crash at the hub: 20 digits of base 32. They are random,
/// or come from a digest of the bundle.
///
/// A report that is sent twice has the same identifier both times, and counts once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReportId(String);

/// The text is no identifier of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a report's identifier has 20 digits of 0-9 and a-z without i, l, o and u")]
pub struct InvalidId;

impl ReportId {
    /// Returns a new random identifier.
    ///
    /// # Errors
    /// Fails if the system has no random bytes.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        let digits = bytes.map(|byte| char::from(DIGITS[usize::from(byte % 32)]));
        Ok(Self(digits.iter().collect()))
    }

    /// Returns the identifier of a digest. The same digest always has the same identifier.
    #[must_use]
    pub fn of_digest(digest: &[u8; 32]) -> Self {
        let digits = digest
            .iter()
            .take(LENGTH)
            .map(|byte| DIGITS.get(usize::from(byte % 32)));
        Self(digits.flatten().map(|&digit| char::from(digit)).collect())
    }

    /// Returns the digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ReportId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let is_valid = text.len() == LENGTH && text.bytes().all(|byte| DIGITS.contains(&byte));
        is_valid.then(|| Self(text.to_owned())).ok_or(InvalidId)
    }
}

impl TryFrom<String> for ReportId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<ReportId> for String {
    fn from(id: ReportId) -> Self {
        id.0
    }
}

impl fmt::Display for ReportId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_are_valid_and_differ() {
        let (one, two) = (ReportId::random().unwrap(), ReportId::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.as_str().parse(), Ok(one.clone()));
    }

    #[test]
    fn digests_have_one_id_each() {
        let id = ReportId::of_digest(&[7; 32]);
        assert_eq!(id, ReportId::of_digest(&[7; 32]));
        assert_ne!(id, ReportId::of_digest(&[8; 32]));
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
    }

    #[test]
    fn paths_and_markup_are_no_ids() {
        for text in [
            "",
            "../../../etc/passwd",
            "0123456789abcdefghil",
            "0123456789ABCDEFGHJK",
            "0123456789abcdefghj\u{0}",
        ] {
            assert_eq!(text.parse::<ReportId>(), Err(InvalidId), "{text:?}");
        }
    }
}
