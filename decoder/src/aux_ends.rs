//! The times at which pieces of a trace were complete.
//!
//! perf stops tracing at a context switch and when its buffer fills, and records then how far the
//! trace has come (`PERF_RECORD_AUX`). These times bound the flow between them. They need no timing
//! packet.

use backtrail_pt::Tsc;

/// The end of a piece of trace: the packets before it were written at this time or earlier, all
/// others later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxEnd {
    /// The offset in the trace bytes.
    pub offset: u64,
    /// The time.
    pub at: Tsc,
}

/// The ends of the pieces of one trace, ascending in offset and time.
#[derive(Debug, Default)]
pub(crate) struct AuxEnds(Vec<AuxEnd>);

impl AuxEnds {
    /// Returns the ends in order. An end that contradicts an earlier one is dropped.
    pub fn new(ends: &[AuxEnd]) -> Self {
        let mut sorted = ends.to_vec();
        sorted.sort_by_key(|end| (end.offset, end.at));
        let mut kept: Vec<AuxEnd> = Vec::with_capacity(sorted.len());
        for end in sorted {
            match kept.last() {
                Some(last) if end.at < last.at || end.offset == last.offset => {}
                _ => kept.push(end),
            }
        }
        Self(kept)
    }

    /// Returns bounds of the time of the packet at an offset: the last end before it, and the end
    /// of its piece.
    pub fn around(&self, offset: u64) -> (Option<Tsc>, Option<Tsc>) {
        let next = self.0.partition_point(|end| end.offset <= offset);
        let before = next.checked_sub(1).and_then(|last| self.0.get(last));
        (before.map(|end| end.at), self.0.get(next).map(|end| end.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_between_the_ends_around_them() {
        let end = |(offset, at)| AuxEnd { offset, at: Tsc(at) };
        // The one at 25 goes back in time.
        let ends = AuxEnds::new(&[(30, 300), (10, 100), (25, 50), (10, 150)].map(end));
        let around = |offset| {
            let (after, before) = ends.around(offset);
            (after.map(|at| at.0), before.map(|at| at.0))
        };
        assert_eq!(around(0), (None, Some(100)));
        assert_eq!(around(9), (None, Some(100)));
        assert_eq!(around(10), (Some(100), Some(300)));
        assert_eq!(around(30), (Some(300), None));
        assert_eq!(AuxEnds::default().around(5), (None, None));
    }
}
