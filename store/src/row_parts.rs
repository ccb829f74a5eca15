//! The row groups of a table that were read, found by the index of a row.

use std::sync::Arc;

/// Some row groups of a table.
pub(crate) struct RowParts<T> {
    /// The first row of each row group, and the number of rows.
    starts: Vec<usize>,
    parts: Vec<Option<Arc<T>>>,
}

impl<T> RowParts<T> {
    /// Builds a table of which nothing was read. `starts` ends with the number of rows.
    pub(crate) fn new(starts: Vec<usize>) -> Self {
        let mut parts = Vec::new();
        parts.resize_with(starts.len().saturating_sub(1), || None);
        Self { starts, parts }
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the row groups that have a needed row. `None`: all rows are needed.
    pub(crate) fn needed(&self, rows: Option<&[bool]>) -> Vec<usize> {
        let has_needed = |group: &usize| match (rows, self.starts.get(*group..=*group + 1)) {
            (Some(rows), Some([start, end])) => {
                let rows = rows.get(*start..(*end).min(rows.len()));
                rows.is_some_and(|rows| rows.contains(&true))
            }
            _ => true,
        };
        (0..self.parts.len()).filter(has_needed).collect()
    }

    /// Adds a row group.
    pub(crate) fn set(&mut self, group: usize, part: Arc<T>) {
        if let Some(place) = self.parts.get_mut(group) {
            *place = Some(part);
        }
    }

    /// Returns the row groups that were read, with the index of the first row of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let parts = self.starts.iter().zip(&self.parts);
        parts.filter_map(|(start, part)| Some((*start, &**part.as_ref()?)))
    }

    /// Returns the row group of a row, the row's index in it, and the index of the row group.
    /// `None`: it was not read.
    pub(crate) fn find(&self, row: usize) -> Option<(&T, usize, usize)> {
        let group = self
            .starts
            .partition_point(|start| *start <= row)
            .checked_sub(1)?;
        let part = self.parts.get(group)?.as_ref()?;
        Some((part, row - self.starts.get(group)?, group))
    }

    /// Returns the number of row groups, those that were not read included.
    pub(crate) fn groups(&self) -> usize {
        self.parts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_in_the_row_groups_that_were_read() {
        let mut parts = RowParts::new(vec![0, 3, 5]);
        assert_eq!(parts.needed(None), [0, 1]);
        assert_eq!(parts.needed(Some(&[false, false, false, false, true])), [1]);
        assert_eq!(parts.needed(Some(&[true])), [0]);
        assert!(parts.needed(Some(&[])).is_empty());
        parts.set(1, Arc::new("second"));
        assert_eq!(parts.find(4), Some((&"second", 1, 1)));
        assert_eq!((parts.find(2), parts.find(5)), (None, None));
        assert_eq!(parts.rows(), 5);
        assert_eq!(parts.iter().collect::<Vec<_>>(), [(3, &"second")]);
    }
}
