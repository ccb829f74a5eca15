//! Storage for the packets of a thread: all of them, or the newest.

use backtrail_bundle::versions::Boundary;
use std::collections::VecDeque;

/// Packet segments that each begin with a PSB. With a limit, the oldest segments are dropped whole,
/// so that decoding can start at the first byte kept.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    segments: VecDeque<Vec<u8>>,
    kept: usize,
    dropped: u64,
    limit: Option<usize>,
}

impl Ring {
    /// Builds a ring that keeps about `limit` bytes, at least one segment, or everything.
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Adds a segment.
    pub(crate) fn push(&mut self, segment: Vec<u8>) {
        self.kept += segment.len();
        self.segments.push_back(segment);
        let limit = self.limit.unwrap_or(usize::MAX);
        while self.kept > limit && self.segments.len() > 1 {
            let oldest = self.segments.pop_front().map_or(0, |segment| segment.len());
            self.kept -= oldest;
            self.dropped += oldest as u64;
        }
    }

    /// Returns the number of dropped bytes.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the stored bytes, oldest first.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.segments.into_iter().collect::<Vec<_>>().concat()
    }
}

/// Returns the boundaries in the packets that follow the `dropped` ones. The last boundary before
/// them is still valid at their beginning.
pub(crate) fn kept_boundaries(mut boundaries: Vec<Boundary>, dropped: u64) -> Vec<Boundary> {
    let before = boundaries.partition_point(|boundary| boundary.offset < dropped);
    let mut kept = boundaries.split_off(before.saturating_sub(1));
    for boundary in &mut kept {
        boundary.offset = boundary.offset.saturating_sub(dropped);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_dropped_boundary_is_kept() {
        let boundary = |offset, number| Boundary { offset, number };
        let all = vec![boundary(10, 1), boundary(20, 2), boundary(30, 3)];
        assert_eq!(kept_boundaries(all.clone(), 25), [boundary(0, 2), boundary(5, 3)]);
        assert_eq!(kept_boundaries(all.clone(), 0), all);
    }

    #[test]
    fn oldest_segments_are_dropped_whole() {
        let mut ring = Ring::new(Some(5));
        for segment in [vec![1, 1], vec![2, 2], vec![3, 3]] {
            ring.push(segment);
        }
        assert_eq!(ring.dropped(), 2);
        assert_eq!(ring.into_bytes(), [2, 2, 3, 3]);
    }

    #[test]
    fn ring_keeps_at_least_one_segment() {
        let mut ring = Ring::new(Some(1));
        ring.push(vec![0; 9]);
        assert_eq!(ring.into_bytes().len(), 9);
    }
}
