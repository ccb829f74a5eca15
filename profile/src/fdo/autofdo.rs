//! AutoFDO: a sample profile by lines or probes, for clang's `-fprofile-sample-use`.
//!
//! The counts are those of LLVM's `llvm-profgen` without context. A line has the largest count of
//! its instructions. The total of a function is the number of executed bytes. In a binary with
//! pseudo-probes, the probes are the lines, and the total is the number of executed probes.

use super::binary::{Binary, SourceFrame};
use super::branch_profile::{BranchProfile, CodeRange};
use super::discriminator;
use super::disjoint::disjoint;
use super::function_samples::{FunctionSamples, SourceLine};
use super::pseudo_probe::{Probe, PseudoProbes};
use backtrail_pt::Svma;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A sample profile: the counts of each function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleProfile {
    functions: BTreeMap<Arc<str>, FunctionSamples>,
    has_probes: bool,
}

impl SampleProfile {
    /// Returns the sample profile of a binary's branches: by probes if it has any, and else by
    /// lines.
    #[must_use]
    pub fn new(branches: &BranchProfile, binary: &impl Binary) -> Self {
        let mut profile = match binary.probes() {
            Some(probes) => Self::by_probes(branches, probes, binary),
            None => Self::by_lines(branches, binary),
        };
        profile
            .functions
            .values_mut()
            .for_each(FunctionSamples::raise_to_calls);
        profile
    }

    fn by_lines(branches: &BranchProfile, binary: &impl Binary) -> Self {
        let mut profile = Self::default();
        for (range, count) in ranges(branches, binary) {
            profile.add_range(range, count, binary);
        }
        for (branch, count) in branches.branches() {
            let Some(callee) = branch.to.and_then(|to| binary.entry(to)) else {
                continue;
            };
            let callee = canonical(&callee);
            if let Some(from) = branch.from {
                profile.add_call(&binary.source_frames(from), &callee, count.taken);
            }
            profile.functions.entry(callee).or_default().add_head(count.taken);
        }
        profile
    }

    fn by_probes(branches: &BranchProfile, probes: &PseudoProbes, binary: &impl Binary) -> Self {
        let mut profile = Self {
            has_probes: true,
            ..Self::default()
        };
        for (range, count) in ranges(branches, binary) {
            for probe in probes.within(range.first..=range.last) {
                let Some(probe) = probes.probe(probe) else {
                    continue;
                };
                if let Some(samples) = profile.function_of(probe, probes, count) {
                    samples.add(
                        SourceLine {
                            offset: probe.id,
                            discriminator: probe.discriminator,
                        },
                        count,
                    );
                    if probe.is_entry() {
                        samples.add_head(count);
                    }
                }
            }
        }
        for (branch, count) in branches.branches() {
            let callee = branch.to.and_then(|to| binary.entry(to));
            let probe = branch.from.and_then(|from| probes.call_at(from));
            let Some((callee, probe)) = callee.zip(probe) else {
                continue;
            };
            if let Some(samples) = profile.function_of(probe, probes, 0) {
                let line = SourceLine {
                    offset: probe.id,
                    discriminator: 0,
                };
                samples.add_calls(line, &canonical(&callee), count.taken);
            }
        }
        profile
    }

    /// Returns the counts of a probe's function, and adds to the totals of all functions on the
    /// way.
    fn function_of(
        &mut self,
        probe: &Probe,
        probes: &PseudoProbes,
        count: u64,
    ) -> Option<&mut FunctionSamples> {
        let guid = probes.node(probe.node)?.guid;
        let mut callers = probes.callers(probe.node);
        // A call without a probe is unknown: the function then has no caller.
        let unknown = callers.iter().rposition(|(_, call)| *call == 0);
        callers.drain(..unknown.map_or(0, |at| at + 1));
        let path = callers.into_iter().chain([(guid, probe.id)]);
        let mut path = path.map(|(guid, call)| (probes.function(guid), call));
        let (outermost, mut call) = path.next()?;
        let mut samples = self.functions.entry(outermost.name).or_default();
        samples.add_total(count);
        samples.set_checksum(outermost.checksum);
        for (function, next) in path {
            let line = SourceLine {
                offset: call,
                discriminator: 0,
            };
            samples = samples.inlined(line, &function.name);
            samples.add_total(count);
            samples.set_checksum(function.checksum);
            call = next;
        }
        Some(samples)
    }

    fn add_range(&mut self, range: CodeRange, count: u64, binary: &impl Binary) {
        let mut at = range.first;
        while at <= range.last {
            // A disjoint range may start within an instruction.
            let Some((start, len)) = binary.instruction(at) else {
                return;
            };
            at = start;
            if at > range.last {
                return;
            }
            let frames = binary.source_frames(at);
            let total = count.saturating_mul(u64::from(len));
            if let Some((leaf, samples)) = self.leaf(&frames, total) {
                let factor = discriminator::duplication_factor(leaf.discriminator);
                samples.raise(line(leaf), count.saturating_mul(factor));
            }
            at = at + u64::from(len);
        }
    }

    fn add_call(&mut self, frames: &[SourceFrame], callee: &Arc<str>, count: u64) {
        if let Some((leaf, samples)) = self.leaf(frames, 0) {
            samples.add_calls(line(leaf), callee, count);
        }
    }

    /// Returns the innermost function's counts, and adds to the totals of all functions on the way.
    fn leaf<'f>(
        &mut self,
        frames: &'f [SourceFrame],
        total: u64,
    ) -> Option<(&'f SourceFrame, &mut FunctionSamples)> {
        let (outermost, inlined) = frames.split_first()?;
        let mut samples = self.functions.entry(canonical(&outermost.function)).or_default();
        samples.add_total(total);
        let mut caller = outermost;
        for frame in inlined {
            samples = samples.inlined(line(caller), &canonical(&frame.function));
            samples.add_total(total);
            caller = frame;
        }
        Some((caller, samples))
    }

    /// Returns the functions in the order of their totals, the largest first.
    #[must_use]
    pub fn functions(&self) -> Vec<(&str, &FunctionSamples)> {
        let functions = self.functions.iter();
        let mut functions: Vec<_> = functions.map(|(name, samples)| (&**name, samples)).collect();
        functions.sort_by_key(|(name, samples)| (std::cmp::Reverse(samples.total()), *name));
        functions
    }

    /// Returns the text form, which clang and `llvm-profdata` read.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, samples) in self.functions() {
            // Writing to a string cannot fail.
            let _ = samples.write(name, self.has_probes, &mut text);
        }
        text
    }
}

/// Returns the executed code as disjoint ranges that begin with an instruction. The rest of each
/// executed function has count 0, which the compiler reads as cold.
fn ranges(branches: &BranchProfile, binary: &impl Binary) -> Vec<(CodeRange, u64)> {
    let mut zero = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let whole = || {
        branches
            .ranges()
            .filter(|(range, _)| !binary.is_interrupted(*range))
    };
    for (range, _) in whole() {
        let functions = binary.function_ranges(range.first);
        if functions.first().is_some_and(|first| !seen.insert(first.start)) {
            continue;
        }
        let last = |range: &std::ops::Range<Svma>| Svma(range.end.0.saturating_sub(1));
        zero.extend(functions.iter().map(|range| CodeRange {
            first: range.start,
            last: last(range),
        }));
    }
    let zero = zero.into_iter().map(|range| (range, 0));
    disjoint(whole().chain(zero))
}

fn line(frame: &SourceFrame) -> SourceLine {
    SourceLine {
        offset: frame.line.wrapping_sub(frame.declared_line) & 0xffff,
        discriminator: discriminator::base(frame.discriminator),
    }
}

/// Returns a name without the suffixes of clones that compilers make.
///
/// Source: LLVM, `FunctionSamples::getCanonicalFnName`: `.llvm.`, `.part.` and `.__uniq.`.
pub(super) fn canonical(name: &Arc<str>) -> Arc<str> {
    let mut end = name.len();
    for suffix in [".llvm.", ".part."] {
        if let Some(at) = name.get(..end).and_then(|name| name.rfind(suffix)) {
            end = at;
        }
    }
    match name.get(..end) {
        Some(short) if end < name.len() => short.into(),
        _ => Arc::clone(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdo::{Branch, LinkedFunction, Transfer};
    use std::ops::Range;

    /// A binary with instructions of 4 bytes. `main` is at 0x100 to 0x140, and `inner` is inlined
    /// into it at 0x110 to 0x120. `callee` is at 0x200 to 0x220.
    struct Example;

    impl Example {
        fn frame(function: &str, line: u32, declared_line: u32, discriminator: u32) -> SourceFrame {
            SourceFrame {
                function: function.into(),
                line,
                declared_line,
                discriminator,
            }
        }
    }

    impl Binary for Example {
        fn instruction(&self, at: Svma) -> Option<(Svma, u8)> {
            let start = at.0.next_multiple_of(4);
            (0x100..0x300).contains(&start).then_some((Svma(start), 4))
        }

        fn is_interrupted(&self, range: CodeRange) -> bool {
            range.first.0 < 0x140 && range.last.0 >= 0x140
        }

        fn source_frames(&self, at: Svma) -> Vec<SourceFrame> {
            match at.0 {
                0x110..0x120 => vec![
                    Self::frame("main", 12, 10, 0),
                    // Unrolled four times.
                    Self::frame("inner", 3, 1, 2 << 1 | 4 << 8),
                ],
                0x100..0x140 => vec![Self::frame("main", 11 + (at.0 >= 0x120) as u32 * 2, 10, 0)],
                0x200..0x220 => vec![Self::frame("callee.llvm.77", 50, 50, 0)],
                _ => Vec::new(),
            }
        }

        fn function_ranges(&self, at: Svma) -> Vec<Range<Svma>> {
            match at.0 {
                0x100..0x140 => vec![Svma(0x100)..Svma(0x140)],
                0x200..0x220 => vec![Svma(0x200)..Svma(0x220)],
                _ => Vec::new(),
            }
        }

        fn entry(&self, at: Svma) -> Option<Arc<str>> {
            (at.0 == 0x200).then(|| "callee.llvm.77".into())
        }

        fn transfer(&self, _: Svma) -> Option<Transfer> {
            Some(Transfer::None)
        }

        fn instruction_before(&self, at: Svma) -> Option<Svma> {
            Some(Svma(at.0 - 4))
        }

        fn linked_function(&self, _: Svma) -> Option<LinkedFunction> {
            None
        }
    }

    #[test]
    fn lines_have_the_largest_count_of_their_instructions() {
        let branch = |from, to| Branch {
            from: Some(Svma(from)),
            to: Some(Svma(to)),
        };
        let mut branches = BranchProfile::default();
        let calls = [(branch(0x118, 0x110), false), (branch(0x11c, 0x200), false)];
        branches.add_history(calls, 5);
        branches.add_history([(branch(0x11c, 0x200), true), (branch(0x204, 0x120), false)], 2);
        let text = SampleProfile::new(&branches, &Example).text();
        assert_eq!(
            text,
            "main:80:0\n 1: 0\n 3: 0\n 2: inner:80\n  2.2: 20 callee:7\ncallee:16:7\n 0: 2\n"
        );
    }

    #[test]
    fn suffixes_of_clones_are_dropped() {
        for (name, expected) in [
            ("f", "f"),
            ("f.llvm.123", "f"),
            ("f.part.0", "f"),
            ("f.part.0.llvm.9", "f"),
            ("f.cold", "f.cold"),
        ] {
            assert_eq!(&*canonical(&name.into()), expected);
        }
    }
}
