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
    /// The checksum of the function's control flow, with probes. 0: unknown.
    checksum: u64,
    attributes: u32,
}

/// The function was inlined into its caller when the profile was recorded.
pub(super) const WAS_INLINED: u32 = 1;
/// The function should be inlined into its caller in the next build.
pub(super) const SHOULD_BE_INLINED: u32 = 2;

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

    /// Adds executions of a line.
    pub(super) fn add(&mut self, line: SourceLine, count: u64) {
        let line = self.lines.entry(line).or_default();
        line.count = line.count.saturating_add(count);
    }

    /// Sets the checksum of the function's control flow.
    pub(super) fn set_checksum(&mut self, checksum: u64) {
        self.checksum = checksum;
    }

    /// Adds attributes of the context.
    pub(super) fn add_attributes(&mut self, attributes: u32) {
        self.attributes |= attributes;
    }

    /// Removes all attributes.
    pub(super) fn clear_attributes(&mut self) {
        self.attributes = 0;
    }

    /// Returns whether the context has an attribute.
    pub(super) fn has_attribute(&self, attribute: u32) -> bool {
        self.attributes & attribute != 0
    }

    /// Returns whether no line has counts.
    pub(super) fn has_no_lines(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the counts of all lines, without those of inlined functions.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> {
        self.lines.values().map(|line| line.count)
    }

    /// Returns how often calls in a line went to a function. 0: no call was seen.
    pub(super) fn calls_of(&self, line: SourceLine, callee: &str) -> u64 {
        let line = self.lines.get(&line);
        line.and_then(|line| line.calls.get(callee))
            .map_or(0, |count| *count)
    }

    /// Estimates how often the function was entered: the number of calls that were seen, or else
    /// the count of its first line.
    ///
    /// Source: LLVM, `FunctionSamples::getHeadSamplesEstimate`.
    pub(super) fn entries(&self) -> u64 {
        if self.head > 0 {
            return self.head;
        }
        match self.counts().next() {
            Some(count) if count > 0 => count,
            _ => u64::from(self.total > 0),
        }
    }

    /// Adds the counts of the same function in another context. Those of another control flow are
    /// dropped.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.checksum == 0 {
            self.checksum = other.checksum;
        } else if self.checksum != other.checksum {
            return;
        }
        self.add_total(other.total);
        self.add_head(other.head);
        for (line, samples) in &other.lines {
            self.add(*line, samples.count);
            for (callee, count) in &samples.calls {
                self.add_calls(*line, callee, *count);
            }
        }
        for (line, functions) in &other.inlined {
            for (name, samples) in functions {
                self.inlined(*line, name).merge(samples);
            }
        }
    }

    /// Makes another function's counts part of this one: those of its call in a line. The calls
    /// that it replaces are no longer counted.
    ///
    /// Source: LLVM, `ProfileConverter::convertCSProfiles`.
    pub(super) fn nest(&mut self, line: SourceLine, callee: &Arc<str>, samples: Self) {
        self.add_total(samples.total);
        let functions = self.inlined.entry(line).or_default();
        functions.entry(Arc::clone(callee)).or_insert(samples);
        let Some(call) = self.lines.get_mut(&line) else {
            return;
        };
        let removed = call.calls.remove(callee).unwrap_or(0).min(call.count);
        call.count -= removed;
        if call.count == 0 {
            self.lines.remove(&line);
        }
        self.total = self.total.saturating_sub(removed);
    }

    /// Removes inlined functions that do not fulfil a condition on their names.
    pub(super) fn retain_inlined(&mut self, is_kept: &impl Fn(&str) -> bool) {
        for functions in self.inlined.values_mut() {
            functions.retain(|name, _| is_kept(name));
            functions
                .values_mut()
                .for_each(|samples| samples.retain_inlined(is_kept));
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

    /// Writes the text form of a function that is not inlined, with the checksums that profiles by
    /// probes have.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, name: &str, with_checksums: bool, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "{name}:{}:{}", self.total, self.head)?;
        self.write_lines(1, with_checksums, out)
    }

    fn write_lines(&self, depth: usize, with_checksums: bool, out: &mut impl Write) -> fmt::Result {
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
                samples.write_lines(depth + 1, with_checksums, out)?;
            }
        }
        if with_checksums {
            writeln!(out, "{indent}!CFGChecksum: {}", self.checksum)?;
        }
        if self.attributes != 0 {
            writeln!(out, "{indent}!Attributes: {}", self.attributes)?;
        }
        Ok(())
    }
}
