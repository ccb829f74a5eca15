//! The order of the positions of all threads in time.
//!
//! A position has an earliest and a latest time. Positions are ordered by the earliest time, then
//! by thread and index. So the order agrees with the order in each thread, and with all pairs of
//! positions whose times do not overlap. Two overlapping positions of different threads may have
//! run in either order.

use crate::error::{Error, Result};
use crate::session::{Session, Thread};
use backtrail_decoder::History;
use backtrail_pt::{Tid, Tsc};

/// The rank of a position in the order of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    time: RankTime,
    tid: Tid,
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RankTime {
    /// Before the first stamp of the thread.
    BeforeStamps,
    /// The earliest time.
    At(Tsc),
    /// The end of the process, where all its threads stopped.
    End,
}

impl Rank {
    /// Returns the rank of a position in a thread without times.
    pub(crate) fn unstamped(tid: Tid, index: u64) -> Self {
        Self {
            time: RankTime::BeforeStamps,
            tid,
            index,
        }
    }
}

/// Returns the rank of position `index` of a thread; `None`: the thread has no times.
///
/// # Errors
///
/// If the time may be in history that is not decoded yet.
pub(crate) fn rank(session: &Session, thread: &Thread, index: u64) -> Result<Option<Rank>> {
    let len = thread.history.len();
    let time = if index >= len && session.end_at_once(thread, thread) {
        RankTime::End
    } else if let Some(time) = thread.history.time(index) {
        RankTime::At(time.tsc)
    } else {
        thread.needs_beginning()?;
        if thread.history.first_stamp().is_none() {
            return Ok(None);
        }
        RankTime::BeforeStamps
    };
    Ok(Some(Rank {
        time,
        tid: thread.tid,
        index,
    }))
}

/// Returns how many of the first positions of `other` are before `rank`, which is a position of
/// `here`; `None`: `other` has no times.
///
/// # Errors
///
/// If that may be in history that is not decoded yet.
pub(crate) fn positions_before(
    session: &Session,
    here: &Thread,
    rank: Rank,
    other: &Thread,
) -> Result<Option<u64>> {
    let history = &other.history;
    if other.tid == here.tid {
        return Ok(Some(rank.index));
    }
    let time = match rank.time {
        RankTime::End if is_same_process(session, here, other) => return Ok(Some(history.len())),
        // Another process may have run on.
        RankTime::End => here.history.time(here.history.len()).map(|time| time.tsc),
        RankTime::At(tsc) => Some(tsc),
        RankTime::BeforeStamps => None,
    };
    let Some(first) = history.first_stamp() else {
        other.needs_beginning()?;
        return Ok(None);
    };
    let goes_first = other.tid < here.tid;
    let Some(time) = time else {
        other.needs_beginning()?;
        let unstamped = history.first_from(first).unwrap_or(history.len());
        return Ok(Some(if goes_first { unstamped } else { 0 }));
    };
    if Tsc(time.0.saturating_sub(History::TIME_SLACK)) <= first {
        // Earlier positions may be between the two.
        other.needs_beginning()?;
    }
    let from = if goes_first {
        Tsc(time.0.saturating_add(1))
    } else {
        time
    };
    Ok(Some(history.first_from(from).unwrap_or(history.len())))
}

fn is_same_process(session: &Session, one: &Thread, other: &Thread) -> bool {
    match (session.process(one), session.process(other)) {
        (Some(one), Some(other)) => one.pid == other.pid,
        _ => false,
    }
}

/// Checks that nothing before the decoded history of `other` can come after `rank`.
///
/// # Errors
///
/// [`Error::Earlier`] if it can.
pub(crate) fn needs_nothing_before(rank: Rank, other: &Thread) -> Result<()> {
    let decoded_from = other.history.first_stamp();
    let is_later = match (rank.time, decoded_from) {
        (RankTime::End, Some(_)) => true,
        (RankTime::At(tsc), Some(first)) => first.0.saturating_add(History::TIME_SLACK) < tsc.0,
        _ => false,
    };
    match is_later || !other.is_partial() {
        true => Ok(()),
        false => Err(Error::Earlier),
    }
}
