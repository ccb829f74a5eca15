//! A range of history. Properties of its positions are computed in the slow and simple way.

use backtrail_debugger::lines::FrameKey;
use backtrail_debugger::step::Steps;
use backtrail_debugger::{Direction, Motion};
use backtrail_decoder::CallId;
use std::ops::Range;

/// The number of positions to check at the end of history, where users begin.
const LAST: u64 = 600;
/// The number of positions in a stretch elsewhere.
const LEN: u64 = 250;
/// The number of stretches in code with lines, and the number anywhere.
const STRETCHES: u64 = 4;
/// The maximum distance to a predecessor.
const FAR: u64 = 2000;

/// Returns the stretches of a thread to check: its end, some in code with lines, some anywhere.
/// They are the same in every run.
pub fn stretches(steps: &Steps<'_>) -> Vec<Range<u64>> {
    let len = steps.lines.history.len();
    let with_lines: Vec<u64> = (0..len)
        .filter(|&index| steps.lines.statement(index).is_some())
        .collect();
    let mut random = SplitMix(len);
    // One stretch in each of `count` equal parts of the history.
    let mut spread = |count: u64| -> Vec<u64> {
        let part = (count / STRETCHES).max(1);
        let parts = (0..STRETCHES).map(|number| number * part + random.below(part));
        parts.filter(|&at| at < count).collect()
    };
    let mut starts = spread(with_lines.len() as u64);
    for start in &mut starts {
        *start = with_lines[*start as usize].saturating_sub(LEN / 2);
    }
    starts.extend(spread(len));
    let elsewhere = starts.into_iter().map(|start| start..(start + LEN).min(len));
    elsewhere
        .chain(std::iter::once(len.saturating_sub(LAST)..len))
        .collect()
}

/// A stretch of one thread's history; its end is a position too.
pub struct Stretch<'a> {
    pub steps: &'a Steps<'a>,
    pub low: u64,
    pub high: u64,
    starts: Vec<bool>,
    frames: Vec<Option<FrameKey>>,
    calls: Vec<Option<CallId>>,
}

impl<'a> Stretch<'a> {
    pub fn new(steps: &'a Steps<'a>, range: Range<u64>) -> Self {
        let positions = || range.start..=range.end;
        Self {
            steps,
            low: range.start,
            high: range.end,
            starts: positions().map(|at| is_start(steps, at)).collect(),
            frames: positions().map(|at| steps.lines.frame(at)).collect(),
            calls: positions().map(|at| steps.lines.forest.call_at(at)).collect(),
        }
    }

    pub fn positions(&self) -> impl Iterator<Item = u64> + use<> {
        self.low..=self.high
    }

    pub fn is_start(&self, at: u64) -> bool {
        self.starts[(at - self.low) as usize]
    }

    pub fn frame(&self, at: u64) -> Option<FrameKey> {
        self.frames[(at - self.low) as usize]
    }

    pub fn call(&self, at: u64) -> Option<CallId> {
        self.calls[(at - self.low) as usize]
    }

    /// Returns whether every motion stops at this position.
    pub fn is_edge(&self, at: u64) -> bool {
        at == 0 || at == self.steps.lines.history.len() || self.steps.gaps.contains(&at)
    }

    /// Returns the nearest position to `from` in the stretch that is an edge or satisfies `fits`.
    pub fn nearest(&self, direction: Direction, from: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
        let stops = |at: &u64| self.is_edge(*at) || fits(*at);
        match direction {
            Direction::Forward => (from + 1..=self.high).find(stops),
            Direction::Backward => (self.low..from).rev().find(stops),
        }
    }

    /// Returns the position to which the debugger moves.
    pub fn target(&self, motion: &Motion, direction: Direction, from: u64) -> u64 {
        self.steps.target(motion, direction, from).unwrap().index
    }

    /// Returns `frame` and its callers.
    pub fn around(&self, frame: FrameKey) -> Vec<FrameKey> {
        let lines = &self.steps.lines;
        let out = |frame: &FrameKey| match lines.lines.around(frame.chain) {
            Some(chain) => Some(FrameKey { chain, ..*frame }),
            None => lines.caller(*frame),
        };
        std::iter::successors(Some(frame), out).collect()
    }
}

/// Returns whether `index` is a line start by the definition, or the debugger's result if the
/// predecessor is too far away.
fn is_start(steps: &Steps<'_>, index: u64) -> bool {
    let lines = &steps.lines;
    let found = lines.is_start(index).unwrap();
    let (Some(statement), Some(call)) = (lines.statement(index), lines.forest.call_at(index)) else {
        assert!(!found, "{index} has no line");
        return false;
    };
    let first = lines.forest.call(call).first;
    let own = (first.max(index.saturating_sub(FAR))..index)
        .rev()
        .filter(|&at| lines.forest.call_at(at) == Some(call));
    let predecessor = own.filter_map(|at| lines.statement(at)).find(|before| {
        before.chain == statement.chain || !lines.lines.is_within(before.chain, statement.chain)
    });
    if predecessor.is_some() || first + FAR >= index {
        assert_eq!(found, predecessor != Some(statement), "line start {index}");
    }
    found
}

/// `SplitMix64`: the same numbers in every run.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
