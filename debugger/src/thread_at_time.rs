//! The positions of other threads at the time of a position.

use crate::error::Result;
use crate::session::{Session, Thread};
use backtrail_pt::Tsc;

/// The position of a thread at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadAtTime {
    /// Between these two indexes of its history, as precisely as the time stamps determine.
    Between(u64, u64),
    /// Its history begins later.
    NotBegun,
    /// The trace has no time for one of the two.
    Unknown,
}

impl ThreadAtTime {
    /// The index that is known to have been reached.
    #[must_use]
    pub fn index(self) -> Option<u64> {
        match self {
            Self::Between(index, _) => Some(index),
            Self::NotBegun | Self::Unknown => None,
        }
    }
}

/// Returns the position of `other` at the time when `here` was before its instruction `index`.
///
/// # Errors
///
/// If the position is in history that is not decoded yet.
pub fn thread_at_time(session: &Session, here: &Thread, index: u64, other: &Thread) -> Result<ThreadAtTime> {
    if other.tid == here.tid {
        return Ok(ThreadAtTime::Between(index, index));
    }
    let len = other.history.len();
    let same_process = match (session.process(here), session.process(other)) {
        (Some(here), Some(other)) => here.pid == other.pid,
        _ => false,
    };
    if index >= here.history.len() && same_process && session.end_at_once(here, other) {
        return Ok(ThreadAtTime::Between(len, len));
    }
    let Some(time) = here.history.time(index) else {
        here.needs_beginning()?;
        return Ok(ThreadAtTime::Unknown);
    };
    if other.history.departure(len).is_none() {
        other.needs_beginning()?;
        return Ok(ThreadAtTime::Unknown);
    }
    let Some(from) = other.index_at(time.tsc)? else {
        return Ok(ThreadAtTime::NotBegun);
    };
    Ok(ThreadAtTime::Between(
        from,
        until(other, time.latest()).unwrap_or(len),
    ))
}

/// The last index that can have been reached by a time; `None`: no time stamp follows.
pub(crate) fn until(thread: &Thread, latest: Option<Tsc>) -> Option<u64> {
    let len = thread.history.len();
    let reached = thread.history.index_at(latest?)?;
    // The stamp after the last one before that time bounds it.
    let next = thread.history.time(reached)?.latest()?;
    Some(thread.history.index_at(next).unwrap_or(len))
}
