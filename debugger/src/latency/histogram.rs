//! The histogram of lengths.

use super::Span;
use serde::Serialize;

/// A row of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HistogramRow {
    /// Not shorter than this.
    pub from: u64,
    /// Shorter than this.
    pub to: u64,
    /// The number of calls whose upper bound is in the row.
    pub calls: u64,
    /// The number of these calls that may belong to an earlier row.
    pub uncertain: u64,
}

/// Rows of 1, 2, 5, 10, 20, … from the shortest to the longest, those without calls between them
/// included.
#[must_use]
pub fn histogram(spans: impl Iterator<Item = Span>) -> Vec<HistogramRow> {
    let mut rows: Vec<HistogramRow> = Vec::new();
    for span in spans {
        let (from, to) = row_of(span.most);
        let uncertain = u64::from(span.least < from);
        match rows.binary_search_by_key(&from, |row| row.from) {
            Ok(at) => {
                if let Some(row) = rows.get_mut(at) {
                    row.calls += 1;
                    row.uncertain += uncertain;
                }
            }
            Err(at) => rows.insert(
                at,
                HistogramRow {
                    from,
                    to,
                    calls: 1,
                    uncertain,
                },
            ),
        }
    }
    with_empty_rows(rows)
}

fn with_empty_rows(rows: Vec<HistogramRow>) -> Vec<HistogramRow> {
    let mut all: Vec<HistogramRow> = Vec::with_capacity(rows.len());
    for row in rows {
        while let Some(last) = all.last().filter(|last| last.to < row.from) {
            let (from, to) = row_of(last.to);
            all.push(HistogramRow {
                from,
                to,
                calls: 0,
                uncertain: 0,
            });
        }
        all.push(row);
    }
    all
}

/// The bounds of the row that a length is in.
fn row_of(length: u64) -> (u64, u64) {
    if length == 0 {
        return (0, 1);
    }
    let decade = 10u64.pow(length.ilog10());
    let next = decade.saturating_mul(10);
    match length / decade {
        0..2 => (decade, decade.saturating_mul(2)),
        2..5 => (decade.saturating_mul(2), decade.saturating_mul(5)),
        _ => (decade.saturating_mul(5), next),
    }
}

/// Returns the length of a bar for `count` of `most` calls, at most `width`.
///
/// The length is logarithmic, so that one call among a million is visible.
#[must_use]
pub fn bar(count: u64, most: u64, width: usize) -> usize {
    if count == 0 || most == 0 {
        return 0;
    }
    let log = |count: u64| (count as f64 + 1.0).log2();
    let length = log(count.min(most)) / log(most) * width as f64;
    (length.round() as usize).clamp(1, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_are_of_1_2_and_5() {
        assert_eq!(row_of(0), (0, 1));
        assert_eq!(row_of(1), (1, 2));
        assert_eq!(row_of(19), (10, 20));
        assert_eq!(row_of(20), (20, 50));
        assert_eq!(row_of(99), (50, 100));
        assert_eq!(row_of(u64::MAX).0, 10_000_000_000_000_000_000);
    }

    #[test]
    fn a_call_is_placed_by_its_upper_bound_and_marked_uncertain() {
        let spans = [(3, 3), (4, 4), (1, 4), (30, 30)];
        let rows = histogram(spans.into_iter().map(|(least, most)| Span { least, most }));
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.from, row.to, row.calls, row.uncertain))
            .collect();
        assert_eq!(
            rows,
            [(2, 5, 3, 1), (5, 10, 0, 0), (10, 20, 0, 0), (20, 50, 1, 0)]
        );
    }

    #[test]
    fn bars_are_long_by_the_logarithm() {
        assert_eq!(bar(0, 9, 40), 0);
        assert_eq!(bar(9, 9, 40), 40);
        assert_eq!(bar(1, 1_000_000, 40), 2);
        assert!(bar(1000, 1_000_000, 40) == 20);
        assert_eq!(bar(1, u64::MAX, 40), 1);
    }

    proptest! {
        #[test]
        fn no_call_is_lost(lengths in prop::collection::vec(any::<u64>(), 0..50)) {
            let rows = histogram(lengths.iter().copied().map(Span::exactly));
            prop_assert_eq!(rows.iter().map(|row| row.calls).sum::<u64>(), lengths.len() as u64);
            for pair in rows.windows(2) {
                prop_assert_eq!(pair[0].to, pair[1].from);
            }
            for length in lengths {
                let (from, to) = row_of(length);
                prop_assert!(from <= length && (length < to || to == u64::MAX));
            }
        }
    }
}
