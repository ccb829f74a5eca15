//! A position in a trace, as a value that can be stored, printed and parsed.

use backtrail_pt::Tid;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The position before an instruction of a thread, counted from the start or the end of its
/// history.
///
/// If a trace is not decoded from its start on, only its end is known. `t7#-120` is before the
/// 120th instruction from the end, however much of the trace was decoded; `t7#-0` is the end.
/// Positions are ordered within a thread if both are counted from the same end. Those of two
/// threads compare only by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    tid: Tid,
    count: Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Count {
    /// The number of instructions before.
    FromStart(u64),
    /// The number of instructions after, including the position's own.
    FromEnd(u64),
}

impl Position {
    /// Returns the position before instruction `index`, counted from 0, of thread `tid`.
    #[must_use]
    pub fn new(tid: Tid, index: u64) -> Self {
        Self {
            tid,
            count: Count::FromStart(index),
        }
    }

    /// Returns the position before the last `count` instructions of thread `tid`.
    #[must_use]
    pub fn from_end(tid: Tid, count: u64) -> Self {
        Self {
            tid,
            count: Count::FromEnd(count),
        }
    }

    /// Returns the thread.
    #[must_use]
    pub fn tid(self) -> Tid {
        self.tid
    }

    /// Returns whether it is counted from the start.
    #[must_use]
    pub fn is_from_start(self) -> bool {
        matches!(self.count, Count::FromStart(_))
    }

    /// Returns the instruction index in a history of `len` instructions; `None`: it has fewer.
    #[must_use]
    pub fn index(self, len: u64) -> Option<u64> {
        match self.count {
            Count::FromStart(index) => (index <= len).then_some(index),
            Count::FromEnd(count) => len.checked_sub(count),
        }
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if self.tid != other.tid {
            return None;
        }
        match (self.count, other.count) {
            (Count::FromStart(one), Count::FromStart(other)) => Some(one.cmp(&other)),
            (Count::FromEnd(one), Count::FromEnd(other)) => Some(other.cmp(&one)),
            _ => None,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            Count::FromStart(index) => write!(f, "t{}#{index}", self.tid),
            Count::FromEnd(count) => write!(f, "t{}#-{count}", self.tid),
        }
    }
}

/// Returned when a text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position is tTHREAD#INDEX, or tTHREAD#-INDEX from the end, for example t3497496#18220")]
pub struct ParsePositionError;

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, ParsePositionError> {
        let (tid, index) = text
            .strip_prefix('t')
            .and_then(|rest| rest.split_once('#'))
            .ok_or(ParsePositionError)?;
        let (index, count): (_, fn(u64) -> Count) = match index.strip_prefix('-') {
            Some(index) => (index, Count::FromEnd),
            None => (index, Count::FromStart),
        };
        if !digits(tid) || !digits(index) {
            return Err(ParsePositionError);
        }
        Ok(Self {
            tid: tid.parse().map_err(|_| ParsePositionError)?,
            count: count(index.parse().map_err(|_| ParsePositionError)?),
        })
    }
}

/// Returns whether the text has only digits: Rust's parser accepts a sign.
fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_invalid_text_is_refused() {
        for (position, text) in [
            (Position::new(Tid(3_497_496), 18_220), "t3497496#18220"),
            (Position::from_end(Tid(7), 120), "t7#-120"),
            (Position::from_end(Tid(7), 0), "t7#-0"),
        ] {
            assert_eq!(position.to_string(), text);
            assert_eq!(text.parse(), Ok(position));
        }
        for text in [
            "",
            "t",
            "#1",
            "t1",
            "t1#",
            "t#1",
            "t1#+2",
            "t1#--2",
            "t1#-",
            "1#2",
            "t1#2 ",
            "t99999999999#1",
        ] {
            assert_eq!(text.parse::<Position>(), Err(ParsePositionError), "{text}");
        }
    }

    #[test]
    fn a_history_has_the_positions_within_its_length() {
        assert_eq!(Position::new(Tid(1), 9).index(9), Some(9));
        assert_eq!(Position::new(Tid(1), 10).index(9), None);
        assert_eq!(Position::from_end(Tid(1), 0).index(9), Some(9));
        assert_eq!(Position::from_end(Tid(1), 9).index(9), Some(0));
        assert_eq!(Position::from_end(Tid(1), 10).index(9), None);
    }

    #[test]
    fn positions_compare_within_a_thread_and_from_one_end() {
        assert!(Position::new(Tid(1), 1) < Position::new(Tid(1), 2));
        assert!(Position::from_end(Tid(1), 2) < Position::from_end(Tid(1), 1));
        for other in [Position::new(Tid(2), 2), Position::from_end(Tid(1), 2)] {
            assert_eq!(Position::new(Tid(1), 1).partial_cmp(&other), None);
        }
    }
}
