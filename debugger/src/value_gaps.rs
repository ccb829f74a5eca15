//! The parts of a history whose recorded values cannot be replayed.

use crate::evaluation::thread_path::ThreadPath;
use crate::replay::ReplayGap;
use crate::session::{Session, Thread};
use crate::{Error, Result};
use backtrail_decoder::Watch;
use std::ops::Range;

/// A part of a history whose values are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueGap {
    /// The instructions. An empty range has a place where the registers of the replay are not those
    /// that were recorded.
    pub range: Range<u64>,
    /// The reason for the user.
    pub reason: String,
}

/// Replays all values of a thread. Returns the parts of its history whose values are unknown, the
/// oldest first. `None`: no values were recorded.
///
/// # Errors
/// Fails when canceled.
pub fn of_thread(session: &Session, thread: &Thread, watch: &Watch<'_>) -> Result<Option<Vec<ValueGap>>> {
    let (Some(replay), Some(path)) = (session.replay(thread), ThreadPath::of(session, thread)) else {
        return Ok(None);
    };
    let gaps = replay.gaps(&path, watch).map_err(|_| Error::Canceled)?;
    let reason = |gap: ReplayGap| gap.reason(&path).to_string();
    let gaps = gaps.into_iter().map(|(range, gap)| ValueGap {
        range,
        reason: reason(gap),
    });
    Ok(Some(gaps.collect()))
}
