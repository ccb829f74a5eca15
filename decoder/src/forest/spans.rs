//! The call depth along a history, and the search for low depths.

/// Executions per span.
pub(super) const SPAN: usize = 64;

/// Spans per group, and groups per larger group.
const FAN: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// The number of calls started before it.
    pub began: u32,
    /// The depth before it, and the lowest depth in it.
    pub depth: i32,
    pub lowest: i32,
}

/// The spans of a history in order.
#[derive(Debug, Default)]
pub(super) struct Spans {
    all: Vec<Span>,
    /// The lowest depths of groups of [`FAN`] spans, of [`FAN`] such groups, and so on.
    lows: Vec<Vec<i32>>,
}

impl Spans {
    pub fn new(mut all: Vec<Span>) -> Self {
        all.shrink_to_fit();
        let mut lows = Vec::new();
        let mut below: Vec<_> = all.iter().map(|span| span.lowest).collect();
        while below.len() > FAN {
            let groups = below.chunks(FAN).map(|group| group.iter().copied().min());
            below = groups.map(Option::unwrap_or_default).collect();
            lows.push(below.clone());
        }
        Self { all, lows }
    }

    pub fn get(&self, span: usize) -> Option<&Span> {
        self.all.get(span)
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &Span> {
        self.all.iter()
    }

    /// Returns the span in which a recorded call started.
    pub fn of_call(&self, call: u32) -> Option<usize> {
        self.all.partition_point(|span| span.began <= call).checked_sub(1)
    }

    fn low(&self, level: usize, at: usize) -> Option<i32> {
        match level.checked_sub(1) {
            None => self.get(at).map(|span| span.lowest),
            Some(above) => self.lows.get(above)?.get(at).copied(),
        }
    }

    /// Returns the first span, from one on, whose lowest depth is at most `depth`.
    pub fn next_low(&self, from: usize, depth: i32) -> Option<usize> {
        let (mut level, mut at) = (0, from);
        loop {
            let end = (at / FAN + 1) * FAN;
            let found = (at..end).find(|&at| self.low(level, at).is_some_and(|low| low <= depth));
            match (found, level) {
                (Some(found), 0) => return Some(found),
                (Some(found), _) => (level, at) = (level - 1, found * FAN),
                (None, level) if level == self.lows.len() => return None,
                (None, _) => (level, at) = (level + 1, end / FAN),
            }
        }
    }

    /// Returns the last span before one whose lowest depth is at most `depth`.
    pub fn last_low(&self, before: usize, depth: i32) -> Option<usize> {
        let (mut level, mut end) = (0, before);
        loop {
            let first = end.checked_sub(1)? / FAN * FAN;
            let low = |&at: &usize| self.low(level, at).is_some_and(|low| low <= depth);
            match ((first..end).rev().find(low), level) {
                (Some(found), 0) => return Some(found),
                (Some(found), _) => (level, end) = (level - 1, (found + 1) * FAN),
                (None, level) if level == self.lows.len() => return None,
                (None, _) => (level, end) = (level + 1, first / FAN),
            }
        }
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        let lows: usize = self.lows.iter().map(|lows| size_of_val(&**lows)).sum();
        size_of_val(&*self.all) + lows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses pseudo-random depths, in enough spans for three levels.
    #[test]
    fn nearest_low_span_is_found_from_anywhere() {
        let mut chance = 7_u32;
        let mut depth = 0;
        let all: Vec<_> = (0..40_000)
            .map(|_| {
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                depth += (chance >> 16) as i32 % 7 - 3;
                Span {
                    began: 0,
                    depth,
                    lowest: depth,
                }
            })
            .collect();
        let spans = Spans::new(all.clone());
        assert_eq!(spans.lows.len(), 3);
        for at in (0..all.len()).step_by(97) {
            for depth in [all[at].depth, all[at].depth - 5, i32::MIN, i32::MAX] {
                let low = |span: &Span| span.lowest <= depth;
                let next = all[at..].iter().position(low).map(|found| found + at);
                assert_eq!(spans.next_low(at, depth), next);
                assert_eq!(spans.last_low(at, depth), all[..at].iter().rposition(low));
            }
        }
        assert_eq!(spans.next_low(all.len(), i32::MAX), None);
    }
}
