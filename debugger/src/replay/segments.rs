//! The segments of a value log, and their places in the history.

use backtrail_bundle::value_log::{ValueLog, segment_of};
use backtrail_decoder::History;

/// A segment that the history and the log have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaySegment {
    /// The first instruction.
    pub start: u64,
    /// The first instruction of the next segment, whether the log has that or not; or the end of
    /// the history.
    pub end: u64,
    /// The index in the log.
    pub in_log: usize,
}

/// Returns the segments that the history and the log have, the oldest first.
pub fn find(log: &ValueLog, history: &History) -> Vec<ReplaySegment> {
    let values = history.paused_values().from(0);
    let marks: Vec<(u64, u64)> = values
        .filter_map(|value| Some((value.index, segment_of(value.value)?)))
        .collect();
    let ends = marks
        .iter()
        .skip(1)
        .map(|&(index, _)| index)
        .chain([history.len()]);
    let found = marks.iter().zip(ends).filter_map(|(&(start, number), end)| {
        let in_log = log
            .segments()
            .binary_search_by_key(&number, |segment| segment.number)
            .ok()?;
        Some(ReplaySegment { start, end, in_log })
    });
    found.collect()
}
