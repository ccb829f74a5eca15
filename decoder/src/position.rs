//! A place in a trace, as a value that can be kept, printed and parsed.

use backtrail_pt::Tid;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Before instruction `index` of thread `tid`; one past the last index is the end of the history.
///
/// Positions order only within a thread; those of two threads compare by time, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    tid: Tid,
    index: u64,
}

impl Position {
    /// Before instruction `index`, counted from 0, of thread `tid`.
    #[must_use]
    pub fn new(tid: Tid, index: u64) -> Self {
        Self { tid, index }
    }

    /// The thread.
    #[must_use]
    pub fn tid(self) -> Tid {
        self.tid
    }

    /// How many instructions of the thread's history come before.
    #[must_use]
    pub fn index(self) -> u64 {
        self.index
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.tid == other.tid).then(|| self.index.cmp(&other.index))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}#{}", self.tid, self.index)
    }
}

/// The text was no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position is tTHREAD#INDEX, for example t3497496#18220")]
pub struct ParsePositionError;

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, ParsePositionError> {
        let (tid, index) = text
            .strip_prefix('t')
            .and_then(|rest| rest.split_once('#'))
            .ok_or(ParsePositionError)?;
        if !digits(tid) || !digits(index) {
            return Err(ParsePositionError);
        }
        Ok(Self {
            tid: tid.parse().map_err(|_| ParsePositionError)?,
            index: index.parse().map_err(|_| ParsePositionError)?,
        })
    }
}

/// Digits and nothing else: Rust's parser would take a sign.
fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_rubbish_is_refused() {
        let position = Position::new(Tid(3_497_496), 18_220);
        assert_eq!(position.to_string(), "t3497496#18220");
        assert_eq!("t3497496#18220".parse(), Ok(position));
        for text in [
            "",
            "t",
            "#1",
            "t1",
            "t1#",
            "t#1",
            "t1#+2",
            "1#2",
            "t1#2 ",
            "t99999999999#1",
        ] {
            assert_eq!(text.parse::<Position>(), Err(ParsePositionError), "{text}");
        }
    }

    #[test]
    fn threads_do_not_compare() {
        assert!(Position::new(Tid(1), 1) < Position::new(Tid(1), 2));
        assert_eq!(
            Position::new(Tid(1), 1).partial_cmp(&Position::new(Tid(2), 2)),
            None
        );
    }
}
