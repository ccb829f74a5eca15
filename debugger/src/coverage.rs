//! The number of executions of each source line in a history.
//!
//! The count of a line is the largest execution count of the instructions at which the line starts
//! as a statement. If none of these ran, the largest count of its other instructions is used. In a
//! loop, the count of a line is the number of iterations. The counts of a line in several functions
//! or inlined copies are added. Instructions in gaps are unknown and not counted.

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
    /// The number of executions.
    pub count: u64,
    /// The instructions whose executions were counted.
    pub starts: Vec<Avma>,
    /// The period of the process's modules and the count of each of these.
    counts: Vec<(usize, u64)>,
    /// Whether execution entered the line at one of its starts.
    at_start: bool,
}

/// The lines that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    files: FxHashMap<Arc<str>, BTreeMap<u32, LineCount>>,
    /// By period of the process's modules, and address.
    executions: FxHashMap<(usize, Avma), u64>,
}

/// The number of instructions between two checks for cancellation.
const OFTEN: usize = 4096;

impl Coverage {
    /// Counts the executions in a history of a process.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn of(history: &History, process: &Process, watch: &Watch<'_>) -> Result<Self> {
        // One address may be in several blocks.
        let mut executions: FxHashMap<(usize, Avma), u64> = FxHashMap::default();
        for (block, count) in history.blocks().filter(|&(_, count)| count > 0) {
            let epoch = process.epoch_at(history.block_version(block));
            for instruction in history.block(block) {
                *executions.entry((epoch, instruction.pc)).or_default() += count;
            }
        }
        let mut coverage = Self::default();
        for (number, (&(epoch, at), &count)) in executions.iter().enumerate() {
            if number % OFTEN == 0 && watch.is_canceled() {
                return Err(Error::Canceled);
            }
            let row = process
                .epochs()
                .get(epoch)
                .and_then(|epoch| epoch.symbols.line_at(at));
            if let Some(row) = row.filter(|row| row.line != 0 && !row.file.is_empty()) {
                let at_start = row.is_stmt && row.range.start == at;
                coverage.add(row.file, row.line, (epoch, at), count, at_start);
            }
        }
        for line in coverage.files.values_mut().flat_map(BTreeMap::values_mut) {
            if watch.is_canceled() {
                return Err(Error::Canceled);
            }
            if line.at_start && line.starts.len() > 1 {
                line.count = line.count_of_copies(process);
            }
        }
        coverage.executions = executions;
        Ok(coverage)
    }

    fn add(&mut self, file: Arc<str>, line: u32, (epoch, at): (usize, Avma), count: u64, at_start: bool) {
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
            known.counts.push((epoch, count));
        }
    }

    /// Returns the number of executions of a line; `None` if it did not run. The file is named as
    /// in the debug information.
    #[must_use]
    pub fn count(&self, file: &str, line: u32) -> Option<u64> {
        self.files.get(file)?.get(&line).map(|known| known.count)
    }

    /// Returns the number of executions of the instruction at an address in a period of the
    /// process's modules.
    #[must_use]
    pub fn executions(&self, epoch: usize, at: Avma) -> u64 {
        self.executions.get(&(epoch, at)).copied().unwrap_or(0)
    }

    /// The files of which a line ran, each with these lines, in no order.
    pub fn files(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeMap<u32, LineCount>)> {
        self.files.iter()
    }
}

/// Returns the execution counts of the lines of a file from `first` on. 0 means code that did not
/// run, `None` no code.
#[must_use]
pub fn counts(
    coverage: &Coverage,
    process: &Process,
    file: &str,
    first: u32,
    lines: usize,
) -> Vec<Option<u64>> {
    // The code of a line can be empty. The line then ran if the instruction at its address did.
    let passed = |line: u32| {
        let epochs = process.epochs().iter().enumerate();
        let counts = epochs.filter_map(|(number, epoch)| {
            let found = epoch.symbols.addresses_of_line(file, line);
            let of_line = found
                .iter()
                .filter(|found| found.line == line && *found.file == *file);
            of_line
                .map(|found| coverage.executions(number, found.address))
                .max()
        });
        counts.max()
    };
    let count = |line: u32| coverage.count(file, line).or_else(|| passed(line));
    (first..).take(lines).map(count).collect()
}

impl LineCount {
    /// Returns the sum over all functions and inlined copies of the largest count in each.
    fn count_of_copies(&self, process: &Process) -> u64 {
        let mut copies: BTreeMap<(usize, Option<Avma>), u64> = BTreeMap::new();
        for (&at, &(epoch, count)) in self.starts.iter().zip(&self.counts) {
            let symbols = process.epochs().get(epoch).map(|epoch| &epoch.symbols);
            let frames = symbols.map(|symbols| symbols.frames_at(at)).unwrap_or_default();
            let copy = frames.first().map(|frame| frame.entry);
            let largest = copies.entry((epoch, copy)).or_default();
            *largest = count.max(*largest);
        }
        copies.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_by_its_starts_where_it_has_run_from_one() {
        let mut coverage = Coverage::default();
        let file: Arc<str> = "a.c".into();
        coverage.add(Arc::clone(&file), 3, (0, Avma(0x12)), 90, false);
        assert_eq!(coverage.count("a.c", 3), Some(90));
        coverage.add(Arc::clone(&file), 3, (0, Avma(0x10)), 7, true);
        coverage.add(Arc::clone(&file), 3, (0, Avma(0x14)), 95, false);
        coverage.add(Arc::clone(&file), 3, (0, Avma(0x20)), 9, true);
        assert_eq!(coverage.count("a.c", 3), Some(9));
        let starts = &coverage.files[&file][&3].starts;
        assert_eq!(*starts, [Avma(0x10), Avma(0x20)]);
        assert_eq!((coverage.count("a.c", 4), coverage.count("b.c", 3)), (None, None));
    }
}
