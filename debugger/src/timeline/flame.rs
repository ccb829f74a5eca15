//! The visible calls of a thread in a window, as a flame chart of columns.
//!
//! Each column is sampled at its beginning. A call at least as long as a column is found this way,
//! with its own bounds. Of shorter calls, one for each column is reported, marked as possibly
//! several. The cost does not depend on the number of calls.

use crate::error::Result;
use backtrail_decoder::{CallId, Forest, History, Stage, Watch};
use backtrail_pt::{Avma, Tsc};
use std::ops::Range;

/// The unit of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Time stamps, in TSC ticks. Between two of them all instructions are taken to be equally
    /// long.
    Ticks,
    /// Instructions.
    Instructions,
}

/// A call in some columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flame {
    /// The depth: the number of calls around it.
    pub level: u32,
    /// The beginning, on the axis.
    pub from: u64,
    /// The end.
    pub to: u64,
    /// The call; the first of several.
    pub call: CallId,
    /// Its function.
    pub function: Avma,
    /// Whether it is shorter than a column, so that it may stand for several.
    pub several: bool,
}

/// The number of columns between two checks for cancellation.
const OFTEN: usize = 64;

/// The calls in `columns` columns of a window, outer ones before inner ones, to a depth of
/// `levels`.
///
/// # Errors
/// When canceled.
pub fn flames(
    history: &History,
    forest: &Forest,
    axis: Axis,
    window: Range<u64>,
    columns: usize,
    levels: usize,
    watch: &Watch<'_>,
) -> Result<Flames> {
    let chart = FlameBuilder {
        history,
        forest,
        axis,
        window,
        columns: columns.max(1),
    };
    let mut found = Flames::default();
    let mut open: Vec<OpenFlame> = Vec::new();
    for column in 0..chart.columns {
        if column % OFTEN == 0 {
            watch.report(Stage::Measure, column as u64, chart.columns as u64)?;
        }
        let path = chart.path(column);
        found.levels = found.levels.max(path.len() as u32);
        let shown = path.get(..levels.min(path.len())).unwrap_or_default();
        let mut same = open
            .iter()
            .zip(shown)
            .take_while(|(open, call)| open.call == **call)
            .count();
        // Short calls of one function in a row are shown as one.
        if let (Some(last), Some(&call)) = (open.get(same), shown.get(same))
            && chart.is_short(last.call)
            && chart.is_short(call)
            && forest.call(last.call).function == forest.call(call).function
            && open.len() == same + 1
            && shown.len() == same + 1
        {
            same += 1;
        }
        for gone in open.drain(same..) {
            found.flames.push(chart.flame(&gone, column));
        }
        let new = shown.iter().enumerate().skip(same);
        open.extend(new.map(|(level, &call)| OpenFlame {
            level: level as u32,
            call,
            since: column,
        }));
    }
    let ended = open.drain(..).map(|gone| chart.flame(&gone, chart.columns));
    found.flames.extend(ended);
    found.flames.sort_by_key(|flame| (flame.level, flame.from));
    Ok(found)
}

/// A flame chart.
#[derive(Clone, Debug, Default)]
pub struct Flames {
    /// The calls, by level and in order.
    pub flames: Vec<Flame>,
    /// The number of levels, including hidden ones.
    pub levels: u32,
}

/// A call that goes on in the next column.
struct OpenFlame {
    level: u32,
    call: CallId,
    since: usize,
}

struct FlameBuilder<'a> {
    history: &'a History,
    forest: &'a Forest,
    axis: Axis,
    window: Range<u64>,
    columns: usize,
}

impl FlameBuilder<'_> {
    fn length(&self) -> u64 {
        self.window.end.saturating_sub(self.window.start).max(1)
    }

    /// Returns the beginning of a column.
    fn edge(&self, column: usize) -> u64 {
        let part = u128::from(self.length()) * column as u128 / self.columns as u128;
        self.window.start.saturating_add(part as u64)
    }

    /// The calls at the beginning of a column, the outermost first.
    fn path(&self, column: usize) -> Vec<CallId> {
        let Some(call) = self
            .index_at(self.edge(column))
            .and_then(|index| self.forest.call_at(index))
        else {
            return Vec::new();
        };
        let mut path: Vec<CallId> = self.forest.ancestors(call).collect();
        path.reverse();
        path
    }

    /// The instruction that runs at a place of the axis; `None`: none does.
    fn index_at(&self, at: u64) -> Option<u64> {
        let len = self.history.len();
        if self.axis == Axis::Instructions {
            return (at < len).then_some(at);
        }
        if self.history.interpolated_arrival(len)? < Tsc(at) {
            return None;
        }
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.history.interpolated_arrival(middle) {
                Some(time) if time > Tsc(at) => high = middle,
                _ => low = middle + 1,
            }
        }
        let reached = low.checked_sub(1)?;
        // Before the first time stamp, the time is unknown.
        self.history
            .interpolated_arrival(reached)
            .map(|_| reached.min(len.saturating_sub(1)))
    }

    /// Returns the beginning and end of a call on the axis.
    fn ends(&self, id: CallId) -> Range<u64> {
        let call = self.forest.call(id);
        match self.axis {
            Axis::Instructions => call.first..call.end,
            Axis::Ticks => {
                let from = self.history.interpolated_departure(call.first);
                let to = self.history.interpolated_arrival(call.end);
                from.map_or(0, |from| from.0)..to.map_or(u64::MAX, |to| to.0)
            }
        }
    }

    fn is_short(&self, call: CallId) -> bool {
        let ends = self.ends(call);
        let column = self.length() / self.columns as u64;
        ends.end.saturating_sub(ends.start) < column
    }

    fn flame(&self, open: &OpenFlame, until: usize) -> Flame {
        let several = self.is_short(open.call);
        let columns = self.edge(open.since)..self.edge(until);
        let ends = match several {
            true => columns,
            false => {
                let ends = self.ends(open.call);
                ends.start.max(self.window.start)..ends.end.min(self.window.end)
            }
        };
        Flame {
            level: open.level,
            from: ends.start,
            to: ends.end.max(ends.start),
            call: open.call,
            function: self.forest.call(open.call).function,
            several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::recording::Recording;
    use backtrail_decoder::Sink;
    use backtrail_pt::Cofi;

    /// One call after the other from one that goes on, each of two instructions, each 40 ticks
    /// after the last.
    fn calls(count: u64) -> (History, Forest) {
        let mut recording = Recording::new();
        recording.time(0).run(0x0, 1).call(0x2, 0x1000).run(0x1000, 8);
        for call in 0..count {
            recording.call(0x1010, 0x2000).run(0x2000, 1).ret(0x2002);
            recording.time((call + 1) * 40);
            let target = Avma(0x1010);
            recording.0.instruction(Avma(0x1012), 2, Cofi::Jump { target });
        }
        let history = recording.0.finish();
        let forest = Forest::build(&history, &(), &Watch::none()).unwrap();
        (history, forest)
    }

    fn shown(count: u64, axis: Axis, window: Range<u64>, columns: usize) -> (Vec<Flame>, u32) {
        let (history, forest) = calls(count);
        let found = flames(&history, &forest, axis, window, columns, 8, &Watch::none()).unwrap();
        (found.flames, found.levels)
    }

    #[test]
    fn visible_calls_are_reported_with_their_own_bounds() {
        // Ten instructions, then four for each call and the jump after it.
        let (found, levels) = shown(3, Axis::Instructions, 0..22, 2200);
        let inner: Vec<_> = found.iter().filter(|flame| flame.level == 2).collect();
        let ends: Vec<_> = inner.iter().map(|flame| flame.from..flame.to).collect();
        assert_eq!(ends, [11..13, 15..17, 19..21]);
        assert!(found.iter().all(|flame| !flame.several));
        assert_eq!(levels, 3);
        let outer = found.iter().find(|flame| flame.level == 1).unwrap();
        assert_eq!((outer.from, outer.to), (2, 22));
    }

    #[test]
    fn short_calls_are_reported_once_a_row_of_columns() {
        let (found, levels) = shown(10_000, Axis::Ticks, 0..400_000, 97);
        assert_eq!(levels, 3);
        let short: Vec<_> = found.iter().filter(|flame| flame.several).collect();
        assert!((1..=97).contains(&short.len()), "{}", short.len());
        assert!(short.iter().all(|flame| flame.level == 2));
        assert!(found.len() <= 291);
        for pair in short.windows(2) {
            assert!(pair[0].to <= pair[1].from);
        }
    }

    #[test]
    fn no_call_of_a_column_s_length_is_missed() {
        let (history, forest) = calls(50);
        for (columns, window) in [(10, 0..2000), (97, 100..1300), (1000, 500..600)] {
            let found = flames(
                &history,
                &forest,
                Axis::Ticks,
                window.clone(),
                columns,
                8,
                &Watch::none(),
            )
            .unwrap();
            let column = (window.end - window.start).div_ceil(columns as u64);
            for id in forest.ids() {
                let call = forest.call(id);
                let from = history.interpolated_departure(call.first).map_or(0, |at| at.0);
                let to = history.interpolated_arrival(call.end).map_or(0, |at| at.0);
                let inside = to.min(window.end).saturating_sub(from.max(window.start));
                if inside > column {
                    assert!(
                        found.flames.iter().any(|flame| flame.call == id),
                        "{call:?} of {columns}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_is_reported_where_nothing_ran() {
        assert!(shown(3, Axis::Instructions, 100..200, 10).0.is_empty());
        assert!(shown(3, Axis::Ticks, 100_000..200_000, 10).0.is_empty());
        assert_eq!(shown(3, Axis::Ticks, 5..5, 0).0.len(), 1);
    }
}
