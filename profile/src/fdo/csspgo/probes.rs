//! Contexts by pseudo-probes.
//!
//! Source: LLVM, `llvm/tools/llvm-profgen/ProfileGenerator.cpp`.

use super::MAX_DEPTH;
use super::compress::{compress, trim};
use super::missing_frames::TailCalls;
use super::tree::{ContextFrame, ContextTree, NodeIdx, ROOT, START};
use crate::fdo::autofdo::canonical;
use crate::fdo::binary::Binary;
use crate::fdo::branch_profile::BranchProfile;
use crate::fdo::context_profile::ContextProfile;
use crate::fdo::disjoint::disjoint;
use crate::fdo::function_samples::{SourceLine, WAS_INLINED};
use crate::fdo::pseudo_probe::{self, Probe, ProbeIdx, ProbeKind, PseudoProbes};
use backtrail_pt::Svma;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Returns the counts of all contexts.
pub(super) fn tree_of_probes(
    profile: &ContextProfile,
    probes: &PseudoProbes,
    binary: &impl Binary,
    depth: usize,
) -> ContextTree {
    let mut contexts: BTreeMap<Vec<Svma>, BranchProfile> = BTreeMap::new();
    for (calls, counts) in profile.contexts() {
        let mut calls = calls.to_vec();
        compress(&mut calls);
        trim(&mut calls, depth);
        contexts.entry(calls).or_default().merge(counts);
    }
    let mut builder = Builder {
        binary,
        probes,
        depth,
        names: HashMap::new(),
        tail_calls: TailCalls::new(contexts.values(), binary),
        tree: ContextTree::new(),
        nodes: HashMap::new(),
    };
    for (calls, counts) in &contexts {
        builder.nodes.clear();
        builder.add_blocks(calls, counts);
        builder.add_calls(calls, counts);
    }
    builder.tree
}

struct Builder<'a, B> {
    binary: &'a B,
    probes: &'a PseudoProbes,
    depth: usize,
    names: HashMap<u64, Arc<str>>,
    tail_calls: TailCalls<'a, B>,
    tree: ContextTree,
    /// The nodes of copies of functions in the current context.
    nodes: HashMap<pseudo_probe::NodeIdx, NodeIdx>,
}

impl<B: Binary> Builder<'_, B> {
    fn name(&mut self, guid: u64) -> Arc<str> {
        let probes = self.probes;
        let name = self.names.entry(guid);
        Arc::clone(name.or_insert_with(|| probes.function(guid).name))
    }

    fn add_blocks(&mut self, calls: &[Svma], counts: &BranchProfile) {
        let mut executed: BTreeMap<ProbeIdx, u64> = BTreeMap::new();
        for (range, count) in disjoint(counts.ranges())
            .into_iter()
            .filter(|(_, count)| *count > 0)
        {
            for probe in self.probes.within(range.first..=range.last) {
                let sum = executed.entry(probe).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        // Blocks that were not reached have count 0. Those that the compiler removed have none.
        let mut copies: BTreeSet<(pseudo_probe::NodeIdx, NodeIdx)> = BTreeSet::new();
        for (index, count) in executed {
            let Some(probe) = self
                .probes
                .probe(index)
                .filter(|probe| probe.kind == ProbeKind::Block)
            else {
                continue;
            };
            let Some(node) = self.node_of(calls, probe) else {
                continue;
            };
            copies.insert((probe.node, node));
            let samples = self.tree.add_samples(node);
            samples.add(line_of(probe), count);
            samples.add_total(count);
            if probe.is_entry() {
                samples.add_head(count);
                self.add_inlined_call(probe, node, count);
            }
        }
        for (copy, node) in copies {
            let all = self.probes.node(copy).into_iter().flat_map(|copy| &copy.probes);
            for probe in all.filter_map(|index| self.probes.probe(*index)) {
                self.tree.add_samples(node).add(line_of(probe), 0);
            }
        }
    }

    /// Adds the call of an inlined function to its caller, whose call has no code.
    fn add_inlined_call(&mut self, probe: &Probe, node: NodeIdx, count: u64) {
        let site = self.probes.node(probe.node).and_then(|copy| copy.site);
        let inliner = site.and_then(|(caller, _)| self.probes.node(caller));
        let (Some(inliner), Some(callee)) = (inliner, self.tree.node(node).cloned()) else {
            return;
        };
        if callee.parent == ROOT {
            return;
        }
        let caller = self.tree.add_samples(callee.parent);
        caller.set_checksum(self.probes.function(inliner.guid).checksum);
        caller.add(callee.call_site, count);
        caller.add_total(count);
        caller.add_calls(callee.call_site, &callee.function, count);
    }

    fn add_calls(&mut self, calls: &[Svma], counts: &BranchProfile) {
        for (branch, count) in counts.branches() {
            let (Some(from), Some(to)) = (branch.from, branch.to) else {
                continue;
            };
            let Some(probe) = self.probes.call_at(from) else {
                continue;
            };
            let Some(node) = self.node_of(calls, probe) else {
                continue;
            };
            let samples = self.tree.add_samples(node);
            let line = SourceLine {
                offset: probe.id,
                discriminator: 0,
            };
            samples.add(line, count.taken);
            samples.add_total(count.taken);
            if let Some(callee) = self.binary.entry(to) {
                let samples = self.tree.add_samples(node);
                samples.add_calls(line_of(probe), &canonical(&callee), count.taken);
            }
        }
    }

    /// Returns the node of a probe's function in a context.
    fn node_of(&mut self, calls: &[Svma], probe: &Probe) -> Option<NodeIdx> {
        if let Some(known) = self.nodes.get(&probe.node) {
            return Some(*known);
        }
        let calls = self.tail_calls.complete(calls, probe.address);
        let probes = self.probes;
        let known: Vec<&Probe> = calls
            .iter()
            .rev()
            // An unknown call ends the context: the compiler could not use it.
            .map_while(|call| probes.call_at(*call))
            .collect();
        let mut context = Vec::new();
        for call in known.into_iter().rev() {
            self.extend(&mut context, call);
        }
        self.extend(&mut context, probe);
        let leaf = context.pop()?;
        trim(&mut context, MAX_DEPTH);
        compress(&mut context);
        trim(&mut context, self.depth);
        context.push(ContextFrame { line: START, ..leaf });
        let copy = self.probes.node(probe.node)?;
        let node = self.tree.add_context(&context);
        let samples = self.tree.add_samples(node);
        samples.set_checksum(self.probes.function(copy.guid).checksum);
        if copy.site.is_some() {
            samples.add_attributes(WAS_INLINED);
        }
        self.nodes.insert(probe.node, node);
        Some(node)
    }

    /// Adds the functions that a probe is inlined into, and its own one.
    fn extend(&mut self, context: &mut Vec<ContextFrame>, probe: &Probe) {
        for (guid, call) in self.probes.callers(probe.node) {
            if call == 0 {
                context.clear();
                continue;
            }
            context.push(ContextFrame {
                function: self.name(guid),
                line: SourceLine {
                    offset: call,
                    discriminator: 0,
                },
            });
        }
        if let Some(copy) = self.probes.node(probe.node) {
            context.push(ContextFrame {
                function: self.name(copy.guid),
                line: SourceLine {
                    offset: probe.id,
                    discriminator: 0,
                },
            });
        }
    }
}

/// Returns the line of a probe in profiles.
fn line_of(probe: &Probe) -> SourceLine {
    SourceLine {
        offset: probe.id,
        discriminator: probe.discriminator,
    }
}
