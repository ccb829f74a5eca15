//! Counts of a function's lines, with those of the functions inlined into it, and their text form.
//!
//! Source: LLVM, "Sample Profile text format" in clang's user manual.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

/// A line relative to the function's first one, and its base discriminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// The number of lines after the function's first one, modulo 65536.
    pub offset: u32,
    /// The base discriminator.
    pub discriminator: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.discriminator {
            0 => write!(f, "{}", self.offset),
            discriminator => write!(f, "{}.{discriminator}", self.offset),
        }
    }
}

/// The counts of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LineSamples {
    count: u64,
    /// How often a call in the line went to each function.
    calls: BTreeMap<Arc<str>, u64>,
}

/// The counts of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSamples {
    total: u64,
    head: u64,
    lines: BTreeMap<SourceLine, LineSamples>,
    inlined: BTreeMap<SourceLine, BTreeMap<Arc<str>, FunctionSamples>>,
}

impl FunctionSamples {
    /// Adds to the total.
    pub(super) fn add_total(&mut self, count: u64) {
        self.total = self.total.saturating_add(count);
    }

    /// Adds executions of the entry.
    pub(super) fn add_head(&mut self, count: u64) {
        self.head = self.head.saturating_add(count);
    }

    /// Returns the counts of a function that is inlined into a line.
    pub(super) fn inlined(&mut self, line: SourceLine, function: &Arc<str>) -> &mut Self {
        let functions = self.inlined.entry(line).or_default();
        functions.entry(Arc::clone(function)).or_default()
    }

    /// Raises the count of a line to this one.
    pub(super) fn raise(&mut self, line: SourceLine, count: u64) {
        let line = self.lines.entry(line).or_default();
        line.count = line.count.max(count);
    }

    /// Adds calls of a function in a line.
    pub(super) fn add_calls(&mut self, line: SourceLine, callee: &Arc<str>, count: u64) {
        let line = self.lines.entry(line).or_default();
        let sum = line.calls.entry(Arc::clone(callee)).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Raises the count of each line to the number of its calls. Lines of inlined functions keep
    /// theirs, as in LLVM 19.
    pub(super) fn raise_to_calls(&mut self) {
        for line in self.lines.values_mut() {
            let calls = line
                .calls
                .values()
                .fold(0, |sum: u64, count| sum.saturating_add(*count));
            line.count = line.count.max(calls);
        }
    }

    /// Returns the number of executed bytes of instructions, which orders functions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of calls that were seen.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Writes the text form of a function that is not inlined.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, name: &str, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "{name}:{}:{}", self.total, self.head)?;
        self.write_lines(1, out)
    }

    fn write_lines(&self, depth: usize, out: &mut impl Write) -> fmt::Result {
        let indent = " ".repeat(depth);
        for (line, samples) in &self.lines {
            write!(out, "{indent}{line}: {}", samples.count)?;
            let mut calls: Vec<_> = samples.calls.iter().collect();
            calls.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), Arc::clone(name)));
            for (name, count) in calls {
                write!(out, " {name}:{count}")?;
            }
            writeln!(out)?;
        }
        for (line, functions) in &self.inlined {
            for (name, samples) in functions {
                writeln!(out, "{indent}{line}: {name}:{}", samples.total)?;
                samples.write_lines(depth + 1, out)?;
            }
        }
        Ok(())
    }
}
