//! Decides which contexts the next build should inline. The others become part of the function
//! without a context.
//!
//! Source: LLVM, `llvm/tools/llvm-profgen/CSPreInliner.cpp`.

use super::call_order::{callers_first, calls_of};
use super::sizes::InlineSizes;
use super::summary::Summary;
use super::tree::{ContextTree, NodeIdx, ROOT, SamplesIdx};
use crate::fdo::function_samples::WAS_INLINED;
use crate::fdo::pseudo_probe::guid;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The largest size of a callee that is called as often as the hottest lines run, in percent.
const HOT_SIZE: f64 = 1500.0;
/// By how much larger a callee may be that was inlined before.
const INLINED_BEFORE: u64 = 100;
/// By how much a function may grow.
const GROWTH: u64 = 12;
/// The size from which on no function grows.
const MAX_SIZE: u64 = 50_000;
/// The size up to which every function may grow.
const MIN_SIZE: u64 = 100;

/// A call that may be inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    calls: u64,
    size: u64,
    guid: u64,
    samples: SamplesIdx,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        // Functions without code are always inlined first.
        let key = |candidate: &Self| {
            let is_empty = candidate.size == 0;
            (
                is_empty,
                candidate.calls,
                Reverse(candidate.size),
                candidate.guid,
                Reverse(candidate.samples),
            )
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Merges the contexts that the next build should not inline.
pub(super) fn preinline(tree: &mut ContextTree, sizes: &mut InlineSizes) {
    let summary = Summary::new(tree);
    tree.index_functions();
    for function in callers_first(tree, summary.cold) {
        let base = tree.merge_contexts(&function);
        if let Some(base) = base.filter(|base| tree.samples(*base).is_some()) {
            inline_into(tree, base, sizes, &summary);
        }
    }
    for node in tree.nodes() {
        let Some(context) = tree.node(node) else {
            continue;
        };
        let is_kept =
            context.parent == ROOT || context.samples.is_some_and(|samples| tree.is_inlined(samples));
        if !is_kept {
            tree.drop_samples(node);
        }
    }
}

/// Marks the contexts that a function should inline, the most executed calls first.
fn inline_into(tree: &mut ContextTree, base: NodeIdx, sizes: &mut InlineSizes, summary: &Summary) {
    let mut size = sizes.size(tree, base);
    let limit = size.saturating_mul(GROWTH).clamp(MIN_SIZE, MAX_SIZE);
    let mut candidates = BinaryHeap::new();
    add_candidates(tree, base, sizes, &mut candidates);
    while size < limit {
        let Some(candidate) = candidates.pop() else {
            return;
        };
        if !is_worth(tree, &candidate, summary) {
            continue;
        }
        tree.set_inlined(candidate.samples);
        size = size.saturating_add(candidate.size);
        if let Some(node) = tree.node_of(candidate.samples) {
            add_candidates(tree, node, sizes, &mut candidates);
        }
    }
}

fn add_candidates(
    tree: &ContextTree,
    caller: NodeIdx,
    sizes: &mut InlineSizes,
    candidates: &mut BinaryHeap<Candidate>,
) {
    for callee in tree.children(caller) {
        let Some(node) = tree.node(callee) else {
            continue;
        };
        let Some((samples, calls)) = node.samples.zip(calls_of(tree, callee)) else {
            continue;
        };
        candidates.push(Candidate {
            calls,
            size: sizes.size(tree, callee),
            guid: guid(&node.function),
            samples,
        });
    }
}

/// Returns whether a call is executed often enough for the callee's size.
fn is_worth(tree: &ContextTree, candidate: &Candidate, summary: &Summary) -> bool {
    if candidate.calls <= summary.cold {
        return false;
    }
    let above = |count: u64| count.saturating_sub(summary.cold) as f64;
    let hotness = (above(candidate.calls) / above(summary.hottest)).min(1.0);
    let mut limit = (HOT_SIZE * hotness * 100.0) as u64 + 1;
    let counts = tree.counts(candidate.samples);
    if counts.is_some_and(|counts| counts.has_attribute(WAS_INLINED)) {
        limit = limit.saturating_mul(INLINED_BEFORE);
    }
    candidate.size < limit
}
