//! Tokens and their scopes.

use crate::clock;
use crate::error::{Error, Result};
use crate::objects::hexadecimal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// The start of every token, by which scanners of leaked secrets find it.
const PREFIX: &str = "bthub_";
/// The longest life of a token that expires, in days.
pub const MAX_DAYS: u32 = 36_500;
/// Random bytes of a token.
const BYTES: usize = 32;

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// To send reports, bundles and debug files.
    Ingest,
    /// To see groups and crashes, and to download bundles.
    Read,
    /// To change states, rules and tokens.
    Admin,
}

impl Scope {
    /// Returns the name, as tokens are made with.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }

    /// Returns whether one of some scopes is this one, or contains it. `admin` contains `read`.
    #[must_use]
    pub fn is_within(self, scopes: &[Self]) -> bool {
        scopes.contains(&self) || (self == Self::Read && scopes.contains(&Self::Admin))
    }

    /// Returns the scope of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Ingest, Self::Read, Self::Admin]
            .into_iter()
            .find(|scope| scope.name() == name)
    }
}

/// A new token. Only its hash is stored.
pub struct Secret(String);

impl Secret {
    /// Returns a new random token.
    ///
    /// # Errors
    /// Fails if the system has no random bytes.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::system("get random bytes")(std::io::Error::other(error)))?;
        Ok(Self(format!("{PREFIX}{}", hexadecimal(&bytes))))
    }

    /// Returns the text, to show once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// Returns the end of a token's life in microseconds since 1970. `None`: it has none.
///
/// # Errors
/// Fails if the number of days is out of bounds.
pub fn expiry(days: Option<u32>) -> Result<Option<i64>> {
    match days {
        None => Ok(None),
        Some(days) if (1..=MAX_DAYS).contains(&days) => Ok(Some(clock::now() + i64::from(days) * clock::DAY)),
        Some(_) => Err(Error::Invalid(format!(
            "a token is valid for 1 to {MAX_DAYS} days"
        ))),
    }
}

/// Returns the hash of a token, by which it is found. A token has 256 random bits, so that the hash
/// needs no salt. `None`: the text cannot be a token.
#[must_use]
pub fn hash(token: &str) -> Option<String> {
    let is_token = token.len() == PREFIX.len() + 2 * BYTES && token.starts_with(PREFIX);
    is_token.then(|| hexadecimal(&Sha256::digest(token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_not_printed() {
        let (one, two) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(hash(one.reveal()).unwrap(), hash(two.reveal()).unwrap());
        assert_eq!(format!("{one:?}"), "Secret(…)");
    }

    #[test]
    fn other_texts_are_no_tokens() {
        assert_eq!(hash(""), None);
        assert_eq!(hash("bthub_"), None);
        assert_eq!(hash(&"x".repeat(70)), None);
    }

    #[test]
    fn life_of_a_token_is_bounded() {
        assert_eq!(expiry(None).unwrap(), None);
        assert!(expiry(Some(1)).unwrap() > Some(clock::now()));
        assert!(expiry(Some(MAX_DAYS)).is_ok());
        assert!(expiry(Some(0)).is_err());
        assert!(expiry(Some(u32::MAX)).is_err());
    }

    #[test]
    fn scopes_have_names() {
        assert_eq!(Scope::named("read"), Some(Scope::Read));
        assert_eq!(Scope::named("root"), None);
    }
}
