//! A check of recorded values: where they cannot be replayed, and where memory changed unseen.

use crate::evaluation::kernel_data;
use crate::evaluation::thread_path::ThreadPath;
pub use crate::replay::UnseenChange;
use crate::replay::{MemoryRange, ReplayCheck, ReplayGap};
use crate::session::{Session, Thread};
use crate::{Error, Result};
use backtrail_decoder::Watch;
use std::ops::Range;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueCheck {
    /// The parts of the history whose values are unknown, the oldest first.
    pub gaps: Vec<ValueGap>,
    /// Loads of other bytes than the debugger would show there, the oldest first. Only a process
    /// with one thread has them, because other threads change memory as well.
    pub unseen: Vec<UnseenChange>,
    /// The number of segments. Each begins with the registers of the processor.
    pub segments: u64,
    /// The number of instructions that were replayed.
    pub instructions: u64,
}

/// A part of a history whose values are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueGap {
    /// The instructions. An empty range has a place where the registers of the replay are not those
    /// that were recorded.
    pub range: Range<u64>,
    /// The reason for the user.
    pub reason: String,
}

/// Replays all values of a thread. `None`: no values were recorded.
///
/// # Errors
/// Fails when canceled.
pub fn of_thread(session: &Session, thread: &Thread, watch: &Watch<'_>) -> Result<Option<ValueCheck>> {
    let (Some(replay), Some(path)) = (session.replay(thread), ThreadPath::of(session, thread)) else {
        return Ok(None);
    };
    let ReplayCheck {
        gaps,
        mut unseen,
        segments,
        instructions,
    } = replay.check(&path, watch).map_err(|_| Error::Canceled)?;
    let process = session.process(thread).map(|process| process.pid);
    let of_process = session
        .threads()
        .iter()
        .filter(|other| session.process(other).map(|process| process.pid) == process);
    if of_process.count() > 1 {
        unseen.clear();
    }
    // The debugger shows no value there but at accesses.
    let kernel = session
        .process(thread)
        .and_then(|process| kernel_data::range(session, process));
    unseen.retain(|&UnseenChange { address, .. }| {
        let byte = MemoryRange { address, size: 1 };
        !kernel.is_some_and(|data| data.overlaps(byte))
    });
    let reason = |gap: ReplayGap| gap.reason(&path).to_string();
    let gaps = gaps.into_iter().map(|(range, gap)| ValueGap {
        range,
        reason: reason(gap),
    });
    Ok(Some(ValueCheck {
        gaps: gaps.collect(),
        unseen,
        segments,
        instructions,
    }))
}
