//! The name of a call: `c12` by its number, `c#-120` by its first instruction, counted from the
//! end.

use std::fmt;
use std::str::FromStr;

/// The name of a call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallName {
    /// Its number in the forest.
    Number(u32),
    /// The number of instructions from its first instruction to the end.
    FromEnd(u64),
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "c{number}"),
            Self::FromEnd(count) => write!(f, "c#-{count}"),
        }
    }
}

impl FromStr for CallName {
    /// The text names no call.
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let name = text.strip_prefix('c').ok_or(())?;
        let digits = name.strip_prefix("#-").unwrap_or(name);
        // Rust's parser would take a sign.
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(());
        }
        if digits.len() < name.len() {
            digits.parse().map(Self::FromEnd).map_err(|_| ())
        } else {
            digits.parse().map(Self::Number).map_err(|_| ())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CallName;

    #[test]
    fn names_round_trip_and_rubbish_is_none() {
        for (name, text) in [(CallName::Number(12), "c12"), (CallName::FromEnd(120), "c#-120")] {
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
        for text in [
            "",
            "c",
            "c#",
            "c#-",
            "c#1",
            "c-1",
            "c+1",
            "c#-+1",
            "crash",
            "12",
            "c4294967296",
        ] {
            assert_eq!(text.parse::<CallName>(), Err(()), "{text}");
        }
    }
}
