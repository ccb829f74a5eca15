//! The sizes of functions by where they are inlined.
//!
//! Source: LLVM, `BinarySizeContextTracker` in `llvm/tools/llvm-profgen/ProfiledBinary.cpp`.

use super::lines::{Places, whole_line};
use super::tree::{ContextTree, NodeIdx, ROOT, START};
use crate::fdo::autofdo::canonical;
use crate::fdo::binary::{Binary, SourceFrame};
use crate::fdo::context_profile::ContextProfile;
use crate::fdo::function_samples::SourceLine;
use crate::fdo::pseudo_probe::{self, PseudoProbes};
use backtrail_pt::Svma;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The sizes in bytes. The tree leads from the callee to its callers.
pub(super) struct InlineSizes {
    tree: ContextTree,
    sizes: HashMap<NodeIdx, u64>,
}

impl InlineSizes {
    /// Measures the functions with samples.
    pub(super) fn new(profile: &ContextProfile, binary: &impl Binary) -> Self {
        let mut sizes = Self {
            tree: ContextTree::new(),
            sizes: HashMap::new(),
        };
        let mut functions = BTreeMap::new();
        for (calls, counts) in profile.contexts() {
            let starts = counts.ranges().map(|(range, _)| range.first);
            let branches = counts.branches();
            let ends = branches.flat_map(|(branch, _)| [branch.from, branch.to]);
            // Without probes, LLVM does not measure functions that only called.
            let calls = calls.iter().copied().filter(|_| binary.probes().is_some());
            for at in calls.chain(starts).chain(ends.flatten()) {
                let ranges = binary.function_ranges(at);
                if let Some(first) = ranges.first() {
                    functions.entry(first.start).or_insert(ranges);
                }
            }
        }
        let mut places = Places::new(binary);
        for range in functions.values().flatten() {
            sizes.add_code(range.start, range.end, binary, &mut places);
        }
        if let Some(probes) = binary.probes() {
            let names: Vec<Arc<str>> = functions
                .keys()
                .filter_map(|start| binary.entry(*start))
                .map(|name| canonical(&name))
                .collect();
            sizes.add_optimized_away(probes, &names);
        }
        sizes
    }

    fn add_code(
        &mut self,
        start: Svma,
        end: Svma,
        binary: &impl Binary,
        places: &mut Places<'_, impl Binary>,
    ) {
        let has_probes = binary.probes().is_some();
        let mut at = start;
        while let Some((here, len)) = binary.instruction(at).filter(|(at, _)| *at < end) {
            let frames = places.at(here);
            let mut node = ROOT;
            for (number, frame) in frames.iter().rev().enumerate() {
                let line = match number {
                    0 => START,
                    _ => line_of(frame, has_probes),
                };
                node = self.tree.add_child(node, line, &frame.function);
            }
            if node != ROOT {
                *self.sizes.entry(node).or_default() += u64::from(len);
            }
            at = here + u64::from(len);
        }
    }

    /// Adds the inlined functions without code. Their probes are left.
    fn add_optimized_away(&mut self, probes: &PseudoProbes, names: &[Arc<str>]) {
        let mut roots: HashMap<Arc<str>, pseudo_probe::NodeIdx> = HashMap::new();
        for (index, node) in probes.roots() {
            roots.insert(probes.function(node.guid).name, index);
        }
        let mut open: Vec<_> = names.iter().filter_map(|name| roots.get(name)).copied().collect();
        while let Some(index) = open.pop() {
            let Some(copy) = probes.node(index) else {
                continue;
            };
            open.extend(&copy.children);
            if copy.probes.is_empty() {
                continue;
            }
            let mut node = self.tree.add_child(ROOT, START, &probes.function(copy.guid).name);
            for (guid, call) in probes.callers(index).into_iter().rev() {
                let line = SourceLine {
                    offset: call,
                    discriminator: 0,
                };
                node = self.tree.add_child(node, line, &probes.function(guid).name);
            }
            self.sizes.entry(node).or_default();
        }
    }

    /// Returns the size of a function in a context, or else in the one that is most like it.
    pub(super) fn size(&mut self, contexts: &ContextTree, node: NodeIdx) -> u64 {
        let mut size = None;
        let mut at = Some(ROOT);
        let mut last = ROOT;
        let mut line = START;
        let mut context = node;
        while let Some(current) = at.filter(|_| context != ROOT) {
            let Some(node) = contexts.node(context) else {
                break;
            };
            last = current;
            at = self.tree.child(current, line, &node.function);
            size = at.and_then(|at| self.sizes.get(&at).copied()).or(size);
            (line, context) = (node.call_site, node.parent);
        }
        let mut other = at.unwrap_or(last);
        while size.is_none() {
            let Some(first) = self.tree.children(other).first().copied() else {
                break;
            };
            other = first;
            size = self.sizes.get(&other).copied();
        }
        size.unwrap_or(0)
    }
}

/// Returns the place of a call: its probe if the binary has probes, and else its line.
fn line_of(frame: &SourceFrame, has_probes: bool) -> SourceLine {
    match has_probes {
        true => SourceLine {
            offset: probe_of(frame.discriminator),
            discriminator: 0,
        },
        false => whole_line(frame),
    }
}

/// Returns the probe in a discriminator.
///
/// Source: LLVM, `PseudoProbeDwarfDiscriminator::extractProbeIndex`.
fn probe_of(discriminator: u32) -> u32 {
    let has_base = discriminator & 1 << 28 != 0;
    match has_base {
        true => discriminator >> 3 & 0x1fff,
        false => discriminator >> 3 & 0xffff,
    }
}
