//! A timeline in columns of equal length: what can be said of each.

use super::{StateSpan, ThreadState, Window};
use backtrail_decoder::TimeEstimate;
use backtrail_pt::Tsc;

/// Columns of equal length that cover a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    window: Window,
    columns: usize,
}

/// The state of a thread in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridCell {
    /// The history of the thread has not begun, or is over.
    Nothing,
    /// The thread ran for at least seven eighths of the column.
    Ran,
    /// The thread was off-CPU for at least seven eighths of the column.
    OffCpu,
    /// The column has several states, or a part of it is unknown.
    Both,
    /// More than half of the column is unknown.
    Unknown,
    /// History is missing in it, or may be: where exactly is not known.
    Gap,
}

/// Whether an event is in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// The event is not in the column.
    #[default]
    No,
    /// The event may be in the column.
    Maybe,
    /// The event is in the column.
    Yes,
}

/// The duration of each state in a column, in TSC ticks.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnTimes {
    ran: u64,
    off: u64,
    unknown: u64,
    gap: bool,
}

/// The row of a thread while its spans are added, in order of time.
#[derive(Clone, Debug)]
pub struct GridRow {
    grid: Grid,
    sums: Vec<ColumnTimes>,
    /// The time up to which states were added.
    added_until: u64,
}

/// The presence of events, column by column.
#[derive(Clone, Debug)]
pub struct ColumnMarks {
    grid: Grid,
    columns: Vec<Presence>,
}

impl Grid {
    /// `columns` of a window; at least one.
    #[must_use]
    pub fn new(window: Window, columns: usize) -> Self {
        Self {
            window,
            columns: columns.max(1),
        }
    }

    /// The number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The time window.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the beginning of a column; for the index after the last, the end of the window.
    #[must_use]
    pub fn edge(&self, column: usize) -> Tsc {
        let part = self.length() * column as u128 / self.columns as u128;
        Tsc(self.window.from.0.saturating_add(part as u64))
    }

    /// The column of a time; `None`: it is outside of the window.
    #[must_use]
    pub fn column(&self, at: Tsc) -> Option<usize> {
        (self.window.from <= at && at <= self.window.to).then(|| self.nearest(at.0))
    }

    /// In ticks; a moment is one long.
    fn length(&self) -> u128 {
        u128::from(self.window.to.0.saturating_sub(self.window.from.0).max(1))
    }

    fn nearest(&self, at: u64) -> usize {
        let into = u128::from(at.saturating_sub(self.window.from.0));
        let columns = self.columns as u128;
        // Edges are rounded down, so the last tick of a column may seem to be in it and the next.
        let mut column = (into * columns / self.length()).min(columns - 1) as usize;
        while column + 1 < self.columns && self.edge(column + 1).0 <= at {
            column += 1;
        }
        column
    }
}

impl GridRow {
    /// Without spans.
    #[must_use]
    pub fn new(grid: Grid) -> Self {
        Self {
            grid,
            sums: vec![ColumnTimes::default(); grid.columns],
            added_until: grid.window.from.0,
        }
    }

    /// Adds what comes after the spans that were added before.
    pub fn add(&mut self, span: &StateSpan) {
        // The beginning and end may have bounds. Between these, the thread was in this state or the
        // next.
        let certain = span.from.latest().unwrap_or(span.from.tsc);
        self.add_state(ThreadState::Unknown, span.from.tsc, certain);
        self.add_state(span.state, certain, span.to.tsc);
        if let Some(latest) = span.to.latest() {
            self.add_state(ThreadState::Unknown, span.to.tsc, latest);
        }
        if span.state == ThreadState::Gap {
            let until = span.to.latest().unwrap_or(span.to.tsc);
            self.each(span.from.tsc.0, until.0, |sums, _| sums.gap = true);
        }
    }

    fn add_state(&mut self, state: ThreadState, from: Tsc, to: Tsc) {
        let from = from.0.max(self.added_until);
        let to = to.0.min(self.grid.window.to.0);
        if from >= to {
            return;
        }
        self.added_until = to;
        self.each(from, to, |sums, ticks| match state {
            ThreadState::Ran => sums.ran += ticks,
            ThreadState::OffCpu => sums.off += ticks,
            ThreadState::Gap => sums.gap = true,
            ThreadState::Unknown => sums.unknown += ticks,
        });
    }

    /// The columns between two times, and how many ticks of each are between them.
    fn each(&mut self, from: u64, to: u64, change: impl Fn(&mut ColumnTimes, u64)) {
        let Window { from: begin, to: end } = self.grid.window;
        if to < begin.0 || from > end.0 {
            return;
        }
        let (from, to) = (from.max(begin.0), to.min(end.0));
        let grid = self.grid;
        let (first, last) = (grid.nearest(from), grid.nearest(to));
        let columns = (first..).zip(self.sums.iter_mut().skip(first).take(last - first + 1));
        for (column, sums) in columns {
            let ticks = to
                .min(grid.edge(column + 1).0)
                .saturating_sub(from.max(grid.edge(column).0));
            change(sums, ticks);
        }
    }

    /// Returns the state of each column.
    #[must_use]
    pub fn cells(&self) -> Vec<GridCell> {
        self.sums.iter().map(ColumnTimes::cell).collect()
    }
}

impl ColumnTimes {
    fn cell(&self) -> GridCell {
        let all = u128::from(self.ran) + u128::from(self.off) + u128::from(self.unknown);
        let most = |part: u64| u128::from(part) * 8 >= all * 7;
        match self {
            _ if self.gap => GridCell::Gap,
            _ if all == 0 => GridCell::Nothing,
            _ if u128::from(self.unknown) * 2 > all => GridCell::Unknown,
            _ if most(self.ran) => GridCell::Ran,
            _ if most(self.off) => GridCell::OffCpu,
            _ => GridCell::Both,
        }
    }
}

impl ColumnMarks {
    /// Without any.
    #[must_use]
    pub fn new(grid: Grid) -> Self {
        Self {
            grid,
            columns: vec![Presence::No; grid.columns],
        }
    }

    /// Adds something that was from one moment to another.
    pub fn add(&mut self, from: TimeEstimate, to: TimeEstimate) {
        let until = to.latest().unwrap_or(to.tsc);
        self.set(from.tsc, until, Presence::Maybe);
        let certain = from.latest().unwrap_or(from.tsc);
        if certain <= to.tsc {
            self.set(certain, to.tsc, Presence::Yes);
        }
        // All of it is in one column, wherever that is.
        let inside = self.grid.column(from.tsc).zip(self.grid.column(until));
        if inside.is_some_and(|(first, last)| first == last) {
            self.set(from.tsc, until, Presence::Yes);
        }
    }

    fn set(&mut self, from: Tsc, to: Tsc, presence: Presence) {
        let Window { from: begin, to: end } = self.grid.window;
        if to < begin || from > end {
            return;
        }
        let first = self.grid.nearest(from.max(begin).0);
        let last = self.grid.nearest(to.min(end).0);
        for column in self.columns.iter_mut().skip(first).take(last - first + 1) {
            *column = presence.max(*column);
        }
    }

    /// Returns the presence for each column.
    #[must_use]
    pub fn columns(&self) -> &[Presence] {
        &self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let window = Window {
            from: Tsc(1000),
            to: Tsc(2000),
        };
        Grid::new(window, 10)
    }

    fn at(from: u64, to: u64) -> TimeEstimate {
        TimeEstimate {
            tsc: Tsc(from),
            uncertainty: to - from,
        }
    }

    fn span(state: ThreadState, from: TimeEstimate, to: TimeEstimate) -> StateSpan {
        StateSpan::new(state, from, to, 0, 0)
    }

    fn drawn(spans: &[StateSpan]) -> String {
        let mut row = GridRow::new(grid());
        spans.iter().for_each(|span| row.add(span));
        let glyph = |cell| match cell {
            GridCell::Nothing => ' ',
            GridCell::Ran => '#',
            GridCell::OffCpu => '.',
            GridCell::Both => '+',
            GridCell::Unknown => '?',
            GridCell::Gap => 'x',
        };
        row.cells().into_iter().map(glyph).collect()
    }

    #[test]
    fn a_column_shows_what_took_all_of_it() {
        let spans = [
            span(ThreadState::Ran, at(1200, 1200), at(1450, 1450)),
            span(ThreadState::OffCpu, at(1450, 1450), at(1700, 1700)),
            span(ThreadState::Ran, at(1700, 1700), at(1705, 1705)),
        ];
        assert_eq!(drawn(&spans), "  ##+..#  ");
        assert_eq!(drawn(&[]), "          ");
    }

    #[test]
    fn times_without_stamps_are_unknown() {
        // The thread left between 1200 and 1500, and returned between 1600 and 1900.
        let spans = [
            span(ThreadState::Ran, at(1000, 1000), at(1200, 1500)),
            span(ThreadState::OffCpu, at(1200, 1500), at(1600, 1900)),
            span(ThreadState::Ran, at(1600, 1900), at(2000, 2000)),
        ];
        assert_eq!(drawn(&spans), "##???.???#");
        // Both between the same two stamps.
        let spans = [
            span(ThreadState::Ran, at(1000, 1000), at(1200, 1900)),
            span(ThreadState::OffCpu, at(1200, 1900), at(1200, 1900)),
            span(ThreadState::Ran, at(1200, 1900), at(2000, 2000)),
        ];
        assert_eq!(drawn(&spans), "##???????#");
    }

    #[test]
    fn a_gap_is_never_hidden() {
        let spans = [
            span(ThreadState::Ran, at(1000, 1000), at(1250, 1250)),
            span(ThreadState::Gap, at(1250, 1250), at(1250, 1250)),
            span(ThreadState::Ran, at(1250, 1250), at(1900, 1900)),
            span(ThreadState::Gap, at(1900, 1900), at(2000, 2000)),
        ];
        assert_eq!(drawn(&spans), "##x######x");
        let somewhere = [span(ThreadState::Gap, at(1300, 1500), at(1300, 1500))];
        assert_eq!(drawn(&somewhere), "   xxx    ");
    }

    #[test]
    fn an_end_that_nothing_bounds_is_not_drawn() {
        let open = TimeEstimate {
            tsc: Tsc(1500),
            uncertainty: TimeEstimate::UNBOUNDED,
        };
        assert_eq!(
            drawn(&[span(ThreadState::Ran, at(1000, 1000), open)]),
            "#####     "
        );
    }

    #[test]
    fn a_mark_is_certain_where_one_column_has_all_of_it() {
        let shown = |from, to| {
            let mut marks = ColumnMarks::new(grid());
            marks.add(from, to);
            let glyph = |&presence: &Presence| match presence {
                Presence::No => ' ',
                Presence::Maybe => '?',
                Presence::Yes => '#',
            };
            marks.columns().iter().map(glyph).collect::<String>()
        };
        assert_eq!(shown(at(1110, 1110), at(1350, 1350)), " ###      ");
        assert_eq!(shown(at(1110, 1190), at(1110, 1190)), " #        ");
        assert_eq!(shown(at(1110, 1390), at(1110, 1390)), " ???      ");
        assert_eq!(shown(at(1110, 1390), at(1500, 1700)), " ??###??  ");
        assert_eq!(shown(at(10, 20), at(30, 40)), "          ");
        assert_eq!(shown(at(10, 20), at(3000, 4000)), "##########");
    }

    #[test]
    fn the_smallest_and_the_largest_windows_have_columns() {
        let all = Window {
            from: Tsc(0),
            to: Tsc(u64::MAX),
        };
        for window in [
            all,
            Window {
                from: Tsc(7),
                to: Tsc(7),
            },
        ] {
            for columns in [1, 3, 1000] {
                let grid = Grid::new(window, columns);
                assert_eq!(grid.column(window.from), Some(grid.nearest(window.from.0)));
                assert!(grid.column(window.to).unwrap() < columns);
                let mut row = GridRow::new(grid);
                row.add(&span(ThreadState::Gap, at(0, 0), at(u64::MAX, u64::MAX)));
                assert_eq!(row.cells().len(), columns);
            }
        }
    }
}
