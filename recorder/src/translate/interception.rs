//! The system calls that the recorder makes itself.

use crate::signal_state::FORCED;

/// The system calls of a number that the recorder makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interception {
    /// None.
    Never = 0,
    /// All.
    Always = 1,
    /// Those with standard error as the first argument.
    OfStandardError = 2,
    /// Those with a signal as the first argument that the recorder may cause.
    OfForcedSignals = 3,
}

impl Interception {
    const ALL: [Self; 4] = [
        Self::Never,
        Self::Always,
        Self::OfStandardError,
        Self::OfForcedSignals,
    ];
    /// The number of kinds.
    pub(super) const COUNT: u64 = Self::ALL.len() as u64;

    /// Returns whether it covers a call with this low byte of the first argument.
    fn covers(self, argument: u8) -> bool {
        let argument = i32::from(argument);
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::OfStandardError => argument == libc::STDERR_FILENO,
            Self::OfForcedSignals => FORCED.contains(&argument),
        }
    }

    /// Returns the tables of [`layout::BY_ARGUMENT`](super::layout::BY_ARGUMENT).
    pub(super) fn by_argument() -> Vec<u8> {
        let arguments = |class: Self| (0..=u8::MAX).map(move |argument| u8::from(class.covers(argument)));
        Self::ALL.into_iter().flat_map(arguments).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::layout;

    #[test]
    fn interception_depends_on_the_low_byte_of_the_first_argument() {
        let table = Interception::by_argument();
        let covered = |class: Interception| {
            let row: &[u8] = table.chunks(256).nth(class as usize).unwrap();
            (0..256).filter(|at| row[*at] == 1).collect::<Vec<_>>()
        };
        assert_eq!(table.len() as u64, layout::BY_ARGUMENT_SIZE);
        assert!(covered(Interception::Never).is_empty());
        assert_eq!(covered(Interception::Always).len(), 256);
        assert_eq!(covered(Interception::OfStandardError), [2]);
        assert_eq!(covered(Interception::OfForcedSignals), [5, 11]);
    }
}
