//! How often the source lines ran in a history.
//!
//! A line's count is the most executions of any instruction that the line table lets it start at, as a statement; where
//! none of them ran but others of the line's did, the most of those. Executions are those of the instructions, which the
//! history has, so the count of a line in a loop is that of its rounds. What ran in gaps is not known, and not counted.

use crate::error::{Error, Result};
use crate::session::Process;
use backtrail_decoder::{History, Watch};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A line that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCount {
    /// How often.
    pub count: u64,
    /// The instructions whose executions were counted.
    pub starts: Vec<Avma>,
    /// It was entered at one of its starts, not in its middle alone.
    at_start: bool,
}

/// The lines that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    files: FxHashMap<Arc<str>, BTreeMap<u32, LineCount>>,
    executions: FxHashMap<Avma, u64>,
}

/// Instructions between two looks at whether to stop.
const OFTEN: usize = 4096;

impl Coverage {
    /// Of a history of a process.
    ///
    /// # Errors
    /// When canceled.
    pub fn of(history: &History, process: &Process, watch: &Watch<'_>) -> Result<Self> {
        // One address may be in several blocks.
        let mut executions: FxHashMap<Avma, u64> = FxHashMap::default();
        for (block, count) in history.blocks().filter(|&(_, count)| count > 0) {
            for instruction in history.block(block) {
                *executions.entry(instruction.pc).or_default() += count;
            }
        }
        let mut coverage = Self::default();
        for (number, (&at, &count)) in executions.iter().enumerate() {
            if number % OFTEN == 0 && watch.is_canceled() {
                return Err(Error::Canceled);
            }
            let row = process.symbols.line_at(at);
            if let Some(row) = row.filter(|row| row.line != 0 && !row.file.is_empty()) {
                let at_start = row.is_stmt && row.range.start == at;
                coverage.add(row.file, row.line, at, count, at_start);
            }
        }
        coverage.executions = executions;
        Ok(coverage)
    }

    fn add(&mut self, file: Arc<str>, line: u32, at: Avma, count: u64, at_start: bool) {
        let known = self.files.entry(file).or_default().entry(line).or_default();
        if at_start && !known.at_start {
            *known = LineCount {
                at_start,
                ..LineCount::default()
            };
        }
        if at_start == known.at_start {
            known.count = known.count.max(count);
            known.starts.push(at);
        }
    }

    /// How often a line ran; `None`: it did not. The file is named as the debug information does.
    #[must_use]
    pub fn count(&self, file: &str, line: u32) -> Option<u64> {
        self.files.get(file)?.get(&line).map(|known| known.count)
    }

    /// How often the instruction at an address ran.
    #[must_use]
    pub fn executions(&self, at: Avma) -> u64 {
        self.executions.get(&at).copied().unwrap_or(0)
    }

    /// The files of which a line ran, each with these lines, in no order.
    pub fn files(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeMap<u32, LineCount>)> {
        self.files.iter()
    }
}

/// How often the lines of a file from `first` on ran: 0 for those that have code and did not, `None` for those without.
#[must_use]
pub fn counts(
    coverage: &Coverage,
    process: &Process,
    file: &str,
    first: u32,
    lines: usize,
) -> Vec<Option<u64>> {
    // A line's code may be empty: then it ran when what stands at its address did.
    let passed = |line: u32| {
        let found = process.symbols.addresses_of_line(file, line);
        let of_line = found
            .iter()
            .filter(|found| found.line == line && *found.file == *file);
        of_line.map(|found| coverage.executions(found.address)).max()
    };
    let count = |line: u32| coverage.count(file, line).or_else(|| passed(line));
    (first..).take(lines).map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_by_its_starts_where_it_has_run_from_one() {
        let mut coverage = Coverage::default();
        let file: Arc<str> = "a.c".into();
        coverage.add(Arc::clone(&file), 3, Avma(0x12), 90, false);
        assert_eq!(coverage.count("a.c", 3), Some(90));
        coverage.add(Arc::clone(&file), 3, Avma(0x10), 7, true);
        coverage.add(Arc::clone(&file), 3, Avma(0x14), 95, false);
        coverage.add(Arc::clone(&file), 3, Avma(0x20), 9, true);
        assert_eq!(coverage.count("a.c", 3), Some(9));
        let starts = &coverage.files[&file][&3].starts;
        assert_eq!(*starts, [Avma(0x10), Avma(0x20)]);
        assert_eq!((coverage.count("a.c", 4), coverage.count("b.c", 3)), (None, None));
    }
}
