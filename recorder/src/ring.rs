//! The packets kept of a thread: all, or the newest.

use std::collections::VecDeque;

/// Segments of packets, each beginning with PSB. When there is a limit, the oldest go first, whole, so
/// that what is kept begins where a decoder can.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    segments: VecDeque<Vec<u8>>,
    kept: usize,
    dropped: u64,
    limit: Option<usize>,
}

impl Ring {
    /// Keeps about `limit` bytes (one segment at least), or all.
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

    /// Bytes dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The kept bytes, oldest first.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.segments.into_iter().collect::<Vec<_>>().concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_segments_go_first_and_whole() {
        let mut ring = Ring::new(Some(5));
        for segment in [vec![1, 1], vec![2, 2], vec![3, 3]] {
            ring.push(segment);
        }
        assert_eq!(ring.dropped(), 2);
        assert_eq!(ring.into_bytes(), [2, 2, 3, 3]);
    }

    #[test]
    fn one_segment_is_kept_however_long() {
        let mut ring = Ring::new(Some(1));
        ring.push(vec![0; 9]);
        assert_eq!(ring.into_bytes().len(), 9);
    }
}
