//! Ids of processes, threads, processors and binaries.

use std::fmt;
use std::str::FromStr;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

number_id! {
    /// Process id: the kernel's thread group id.
    Pid
}
number_id! {
    /// Thread id: the kernel's task id.
    Tid
}
number_id! {
    /// Logical processor number.
    Cpu
}

/// The build id of an ELF file: the bytes of its `NT_GNU_BUILD_ID` note.
///
/// A file without the note, such as one of Go before 1.24, has an id of 20 bytes: `htl:` and the
/// hash of OpenTelemetry's `process.executable.build_id.htlhash`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(Vec<u8>);

/// The first bytes of the id of a file without a note.
const FILE_HASH: &[u8; 4] = b"htl:";

impl BuildId {
    /// The maximum accepted length: GNU ld writes 8, 16 or 20 bytes, and `--build-id=0x…` any
    /// number.
    pub const MAX_LEN: usize = 64;

    /// Builds an id from the bytes of the note, or returns `None` for zero or more than
    /// [`Self::MAX_LEN`] bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=Self::MAX_LEN)
            .contains(&bytes.len())
            .then(|| Self(bytes.to_vec()))
    }

    /// Builds the id of a file without a note from the hash of its contents.
    ///
    /// ```
    /// use backtrail_pt::BuildId;
    ///
    /// let id = BuildId::of_file_hash([0xab; 16]);
    /// assert_eq!(id.to_string(), "68746c3aabababababababababababababababab");
    /// assert_eq!(id.file_hash(), Some(&[0xab; 16]));
    /// ```
    #[must_use]
    pub fn of_file_hash(hash: [u8; 16]) -> Self {
        Self([FILE_HASH.as_slice(), &hash].concat())
    }

    /// Returns the hash of the file's contents, if the file has no note.
    #[must_use]
    pub fn file_hash(&self) -> Option<&[u8; 16]> {
        self.0.strip_prefix(FILE_HASH)?.try_into().ok()
    }

    /// Returns the bytes of the note, or of the id of a file without one.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    /// Lower-case hexadecimal, as in `.build-id` directories.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is not a build id, which is an even number of hexadecimal digits, at most twice
/// [`BuildId::MAX_LEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a build id is an even number of hexadecimal digits, at most 128")]
pub struct ParseBuildIdError;

impl FromStr for BuildId {
    type Err = ParseBuildIdError;

    fn from_str(text: &str) -> Result<Self, ParseBuildIdError> {
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) {
            return Err(ParseBuildIdError);
        }
        let nibble = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
        let bytes: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?))
            .collect();
        bytes.and_then(|bytes| Self::new(&bytes)).ok_or(ParseBuildIdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_id_text_round_trips() {
        let id: BuildId = "00ffA0".parse().unwrap();
        assert_eq!(id.as_bytes(), [0, 0xff, 0xa0]);
        assert_eq!(id.to_string(), "00ffa0");
    }

    #[test]
    fn invalid_build_ids_are_refused() {
        for text in ["", "0", "0g", "é0", &"00".repeat(65)] {
            assert_eq!(text.parse::<BuildId>(), Err(ParseBuildIdError), "{text}");
        }
    }
}
