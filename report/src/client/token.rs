//! The token that a hub gave to a host or a person.

use std::fmt;
use std::str::FromStr;

/// The longest token in bytes.
const MAX_LENGTH: usize = 4096;

/// A secret that the hub knows. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is empty, or has characters that are not printable ASCII")]
pub struct InvalidToken;

impl Token {
    /// Returns the secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = InvalidToken;

    /// Parses a token. White space around it is ignored.
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let text = text.trim();
        let is_valid =
            (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_valid.then(|| Self(text.to_owned())).ok_or(InvalidToken)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_printable_and_not_printed() {
        let token: Token = " bt_secret\n".parse().unwrap();
        assert_eq!(token.reveal(), "bt_secret");
        assert!(!format!("{token:?}").contains("secret"));
        for wrong in ["", " \n", "a b", "a\r\nx: y", "é"] {
            assert_eq!(wrong.parse::<Token>(), Err(InvalidToken), "{wrong:?}");
        }
    }
}
