//! Contexts by lines, for binaries without probes.
//!
//! Source: LLVM, `llvm/tools/llvm-profgen/ProfileGenerator.cpp`.

use super::MAX_DEPTH;
use super::compress::{compress, trim};
use super::tree::{ContextFrame, ContextTree, NodeIdx, ROOT, START};
use crate::fdo::autofdo::canonical;
use crate::fdo::binary::{Binary, SourceFrame};
use crate::fdo::branch_profile::{BranchProfile, CodeRange};
use crate::fdo::context_profile::ContextProfile;
use crate::fdo::discriminator;
use crate::fdo::disjoint::disjoint;
use crate::fdo::function_samples::{SourceLine, WAS_INLINED};
use backtrail_pt::Svma;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The counts of one context, the outermost function first. Empty: unknown.
#[derive(Default)]
struct Counts {
    profile: BranchProfile,
    was_inlined: bool,
    /// The place that decides whether the context was inlined: the smallest.
    decided_by: Vec<u64>,
}

/// The places of instructions, which are looked up once.
pub(super) struct Places<'a, B> {
    binary: &'a B,
    known: HashMap<Svma, Rc<[SourceFrame]>>,
}

impl<'a, B: Binary> Places<'a, B> {
    pub(super) fn new(binary: &'a B) -> Self {
        Self {
            binary,
            known: HashMap::new(),
        }
    }

    pub(super) fn at(&mut self, address: Svma) -> Rc<[SourceFrame]> {
        let binary = self.binary;
        let places = self.known.entry(address).or_insert_with(|| {
            let frames = binary.source_frames(address).into_iter();
            let frames = frames.map(|frame| SourceFrame {
                function: canonical(&frame.function),
                ..frame
            });
            frames.collect()
        });
        Rc::clone(places)
    }
}

/// Returns the counts of all contexts.
pub(super) fn tree_of_lines(profile: &ContextProfile, binary: &impl Binary, depth: usize) -> ContextTree {
    let mut builder = Builder {
        binary,
        places: Places::new(binary),
        depth,
        contexts: BTreeMap::new(),
        compressed: HashMap::new(),
        tree: ContextTree::new(),
    };
    for (calls, counts) in profile.contexts() {
        builder.add(calls, counts);
    }
    for (context, counts) in std::mem::take(&mut builder.contexts) {
        builder.add_context(&context, &counts);
    }
    builder.estimate_inlined_calls();
    builder.tree
}

struct Builder<'a, B> {
    binary: &'a B,
    places: Places<'a, B>,
    depth: usize,
    contexts: BTreeMap<Vec<ContextFrame>, Counts>,
    /// The contexts of functions by what they are inlined into, for the current calls.
    compressed: HashMap<Vec<ContextFrame>, Vec<ContextFrame>>,
    tree: ContextTree,
}

impl<B: Binary> Builder<'_, B> {
    /// Adds counts to the contexts that inlined functions have in them.
    fn add(&mut self, calls: &[Svma], counts: &BranchProfile) {
        let callers = self.callers(calls);
        self.compressed.clear();
        for (range, count) in counts.ranges() {
            for (part, places) in self.parts(range) {
                if let Some(context) = self.context(callers.as_deref(), &places) {
                    let counts = self.counts(context, &places, calls, part.first);
                    counts.add_range(part, count);
                }
            }
        }
        for (branch, count) in counts.branches() {
            if branch.to.is_none() {
                continue;
            }
            let known = branch.from.and_then(|from| {
                let places = self.places.at(from);
                let context = self.context(callers.as_deref(), &places)?;
                Some((context, places, from))
            });
            let counts = match known {
                Some((context, places, from)) => self.counts(context, &places, calls, from),
                None => &mut self.contexts.entry(Vec::new()).or_default().profile,
            };
            counts.add_branch(branch, count.taken, count.mispredicted);
        }
    }

    /// Returns the counts of a context, which a place after calls has.
    ///
    /// One context may be that of code that was inlined and of code that was called. LLVM takes
    /// the place that comes first in its hash tables, which have 64 buckets in most cases.
    fn counts(
        &mut self,
        context: Vec<ContextFrame>,
        places: &[SourceFrame],
        calls: &[Svma],
        place: Svma,
    ) -> &mut BranchProfile {
        let bucket = |at: &Svma| {
            let mixed = at.0.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 31) & 63
        };
        let order: Vec<u64> = calls.iter().chain([&place]).map(bucket).collect();
        let counts = self.contexts.entry(context).or_default();
        if counts.decided_by.is_empty() || order < counts.decided_by {
            counts.decided_by = order;
            counts.was_inlined = places.len() > 1;
        }
        &mut counts.profile
    }

    /// Returns the functions of calls. `None`: a place is unknown.
    fn callers(&mut self, calls: &[Svma]) -> Option<Vec<ContextFrame>> {
        let mut frames = Vec::new();
        for call in calls {
            let places = self.places.at(*call);
            if places.is_empty() {
                return None;
            }
            frames.extend(places.iter().map(context_frame));
        }
        Some(frames)
    }

    /// Returns the context of an instruction.
    fn context(
        &mut self,
        callers: Option<&[ContextFrame]>,
        places: &[SourceFrame],
    ) -> Option<Vec<ContextFrame>> {
        let (leaf, inlined_into) = places.split_last()?;
        let callers = callers?;
        let inlined_into: Vec<ContextFrame> = inlined_into.iter().map(context_frame).collect();
        let depth = self.depth;
        let compressed = self
            .compressed
            .entry(inlined_into)
            .or_insert_with_key(|inlined_into| {
                let mut context = [callers, inlined_into].concat();
                trim(&mut context, MAX_DEPTH);
                compress(&mut context);
                trim(&mut context, depth);
                context
            });
        let mut context = compressed.clone();
        context.push(ContextFrame {
            function: leaf.function.clone(),
            line: START,
        });
        Some(context)
    }

    /// Splits straight code where functions are inlined. Each part has the places of its first
    /// instruction.
    fn parts(&mut self, range: CodeRange) -> Vec<(CodeRange, Rc<[SourceFrame]>)> {
        let mut parts: Vec<(CodeRange, Rc<[SourceFrame]>)> = Vec::new();
        let mut before: Option<Rc<[SourceFrame]>> = None;
        let mut at = range.first;
        while let Some((start, len)) = self.binary.instruction(at).filter(|(at, _)| *at <= range.last) {
            let places = self.places.at(start);
            let goes_on = before.is_some_and(|before| is_same_copy(&before, &places));
            match parts.last_mut().filter(|_| goes_on) {
                Some((part, _)) => part.last = start,
                None => {
                    let part = CodeRange {
                        first: start,
                        last: start,
                    };
                    parts.push((part, Rc::clone(&places)));
                }
            }
            before = Some(places);
            at = start + u64::from(len);
        }
        parts
    }

    /// Adds the counts of a context to the tree.
    fn add_context(&mut self, context: &[ContextFrame], counts: &Counts) {
        let node = self.tree.add_context(context);
        if node != ROOT {
            let samples = self.tree.add_samples(node);
            if counts.was_inlined {
                samples.add_attributes(WAS_INLINED);
            }
            self.add_lines(node, &counts.profile);
        }
        for (branch, count) in counts.profile.branches() {
            let Some(callee) = branch.to.and_then(|to| self.binary.entry(to)) else {
                continue;
            };
            let callee = canonical(&callee);
            let mut line = START;
            let from = branch.from.filter(|_| node != ROOT);
            if let Some(leaf) = from.and_then(|from| self.places.at(from).last().cloned()) {
                let samples = self.tree.add_samples(node);
                samples.add_calls(base_line(&leaf), &callee, count.taken);
                line = whole_line(&leaf);
            }
            let callee = self.tree.add_child(node, line, &callee);
            self.tree.add_samples(callee).add_head(count.taken);
        }
    }

    fn add_lines(&mut self, node: NodeIdx, counts: &BranchProfile) {
        for (range, count) in disjoint(counts.ranges()) {
            if count == 0 {
                continue;
            }
            let mut at = range.first;
            while let Some((start, len)) = self.binary.instruction(at).filter(|(at, _)| *at <= range.last) {
                if let Some(leaf) = self.places.at(start).last() {
                    let factor = discriminator::duplication_factor(leaf.discriminator);
                    let samples = self.tree.add_samples(node);
                    samples.raise(base_line(leaf), count.saturating_mul(factor));
                    samples.add_total(count);
                }
                at = start + u64::from(len);
            }
        }
    }

    /// Adds calls of inlined functions to their callers. There is no branch for them, so the count
    /// of the callee's first line replaces it.
    fn estimate_inlined_calls(&mut self) {
        let nodes = self.tree.nodes();
        for index in nodes.iter().rev() {
            let Some(node) = self.tree.node(*index).cloned() else {
                continue;
            };
            let Some(samples) = self.tree.samples(*index) else {
                continue;
            };
            if samples.head() > 0 || node.parent == ROOT {
                continue;
            }
            let entries = match samples.entries() {
                0 if samples.has_no_lines() => 1,
                entries => entries,
            };
            let caller = self.tree.add_samples(node.parent);
            caller.add_calls(node.call_site, &node.function, entries);
            caller.add(node.call_site, entries);
            caller.add_total(entries);
        }
        for node in nodes {
            if self.tree.samples(node).is_some() {
                self.tree.add_samples(node).raise_to_calls();
            }
        }
    }
}

/// Returns whether two instructions belong to the same inlined copy of a function.
fn is_same_copy(one: &[SourceFrame], other: &[SourceFrame]) -> bool {
    let (Some((_, one)), Some((_, other))) = (one.split_last(), other.split_last()) else {
        return false;
    };
    let is_same = |(one, other): (&SourceFrame, &SourceFrame)| {
        one.function == other.function && whole_line(one) == whole_line(other)
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

fn context_frame(frame: &SourceFrame) -> ContextFrame {
    ContextFrame {
        function: frame.function.clone(),
        line: base_line(frame),
    }
}

/// Returns a line with the base discriminator.
fn base_line(frame: &SourceFrame) -> SourceLine {
    SourceLine {
        discriminator: discriminator::base(frame.discriminator),
        ..whole_line(frame)
    }
}

/// Returns a line with the whole discriminator, as DWARF has it.
pub(super) fn whole_line(frame: &SourceFrame) -> SourceLine {
    SourceLine {
        offset: frame.line.wrapping_sub(frame.declared_line) & 0xffff,
        discriminator: frame.discriminator,
    }
}
