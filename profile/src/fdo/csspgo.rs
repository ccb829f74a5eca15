//! CSSPGO: a sample profile with the calling contexts of functions, for clang's
//! `-fprofile-sample-use`.
//!
//! The counts are those of LLVM's `llvm-profgen` for samples with call chains. Unlike those without
//! contexts, the total of a function is the number of its executed instructions, or of its
//! probes.

mod call_order;
mod compress;
mod lines;
mod missing_frames;
mod preinline;
mod probes;
mod sizes;
mod summary;
mod tree;

use super::binary::Binary;
use super::context_profile::ContextProfile;
use super::function_samples::{FunctionSamples, SourceLine};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use summary::Summary;
use tree::{ContextFrame, ContextTree, NodeIdx, ROOT, START};

/// The form of a profile with contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextOptions {
    /// Whether each context is a profile of its own, and cold ones are merged. Otherwise the
    /// contexts that the next build should inline are nested in their callers, and the others are
    /// merged.
    pub keep_all: bool,
    /// The most calls of a context. `None`: all.
    pub max_depth: Option<usize>,
}

/// A sample profile with contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextSampleProfile {
    /// The counts by their contexts. A function without a context has one frame.
    contexts: BTreeMap<Vec<ContextFrame>, FunctionSamples>,
    is_nested: bool,
    has_probes: bool,
}

/// The most functions of a context, with the inlined ones.
const MAX_DEPTH: usize = 1 << 11;

/// Functions that each object file has its own version of. Their merged counts mean nothing.
const AMBIGUOUS: [&str; 2] = ["__cxx_global_var_init", "__tls_init"];

fn is_unambiguous(name: &str) -> bool {
    !AMBIGUOUS.iter().any(|prefix| name.starts_with(prefix))
}

impl ContextSampleProfile {
    /// Returns the sample profile of a binary's branches: by probes if it has any, and else by
    /// lines.
    #[must_use]
    pub fn new(profile: &ContextProfile, binary: &impl Binary, options: ContextOptions) -> Self {
        let depth = options.max_depth.map_or(MAX_DEPTH, |depth| depth.min(MAX_DEPTH));
        let mut tree = match binary.probes() {
            Some(probes) => probes::tree_of_probes(profile, probes, binary, depth),
            None => lines::tree_of_lines(profile, binary, depth),
        };
        let mut contexts = match options.keep_all {
            true => {
                let hot = Summary::new(&tree).hot;
                merge_cold(all_contexts(&tree), hot)
            }
            false => {
                let mut sizes = sizes::InlineSizes::new(profile, binary);
                preinline::preinline(&mut tree, &mut sizes);
                nested(&tree)
            }
        };
        contexts.retain(|context, _| context.last().is_some_and(|leaf| is_unambiguous(&leaf.function)));
        contexts
            .values_mut()
            .for_each(|samples| samples.retain_inlined(&is_unambiguous));
        Self {
            contexts,
            is_nested: !options.keep_all,
            has_probes: binary.probes().is_some(),
        }
    }

    /// Returns the text form, which clang and `llvm-profdata` read.
    #[must_use]
    pub fn text(&self) -> String {
        let mut contexts: Vec<_> = self.contexts.iter().collect();
        contexts.sort_by_key(|(_, samples)| std::cmp::Reverse(samples.total()));
        let mut text = String::new();
        for (context, samples) in contexts {
            let name = match self.is_nested {
                true => context
                    .last()
                    .map_or_else(String::new, |leaf| leaf.function.to_string()),
                false => format!("[{}]", name_of(context)),
            };
            // Writing to a string cannot fail.
            let _ = samples.write(&name, self.has_probes, &mut text);
        }
        text
    }
}

/// Returns `main:3 @ work:1 @ leaf`.
fn name_of(context: &[ContextFrame]) -> String {
    let mut name = String::new();
    for (number, frame) in context.iter().enumerate() {
        let is_leaf = number + 1 == context.len();
        // Writing to a string cannot fail.
        let _ = match is_leaf {
            true => write!(name, "{}", frame.function),
            false => write!(name, "{}:{} @ ", frame.function, frame.line),
        };
    }
    name
}

fn all_contexts(tree: &ContextTree) -> BTreeMap<Vec<ContextFrame>, FunctionSamples> {
    let nodes = tree.nodes().into_iter();
    let contexts = nodes.filter_map(|node| Some((tree.context(node), tree.samples(node)?.clone())));
    contexts.collect()
}

/// Merges contexts with few samples into the function without a context.
///
/// Source: LLVM, `SampleContextTrimmer::trimAndMergeColdContextProfiles`.
fn merge_cold(
    contexts: BTreeMap<Vec<ContextFrame>, FunctionSamples>,
    threshold: u64,
) -> BTreeMap<Vec<ContextFrame>, FunctionSamples> {
    let (mut kept, mut cold) = (BTreeMap::new(), Vec::new());
    for (context, samples) in contexts {
        match samples.total() < threshold {
            true => cold.push((context, samples)),
            false => drop(kept.insert(context, samples)),
        }
    }
    let mut merged: BTreeMap<Vec<ContextFrame>, FunctionSamples> = BTreeMap::new();
    for (context, mut samples) in cold {
        let base: Vec<ContextFrame> = context.into_iter().next_back().into_iter().collect();
        // They are those of a context, which is lost.
        samples.clear_attributes();
        merge_into(&mut merged, base, &samples);
    }
    for (base, samples) in merged {
        merge_into(&mut kept, base, &samples);
    }
    kept
}

/// Merges counts into those of a context. Attributes stay those of the first one.
fn merge_into(
    contexts: &mut BTreeMap<Vec<ContextFrame>, FunctionSamples>,
    context: Vec<ContextFrame>,
    samples: &FunctionSamples,
) {
    match contexts.get_mut(&context) {
        Some(known) => known.merge(samples),
        None => drop(contexts.insert(context, samples.clone())),
    }
}

/// Returns the functions without a context, with the contexts nested in their callers. The counts
/// of a context whose caller has none are those of the function.
///
/// Source: LLVM, `ProfileConverter::convertCSProfiles`.
fn nested(tree: &ContextTree) -> BTreeMap<Vec<ContextFrame>, FunctionSamples> {
    let mut functions = BTreeMap::new();
    let mut counts: BTreeMap<NodeIdx, FunctionSamples> = BTreeMap::new();
    for index in tree.nodes().into_iter().rev() {
        // The children come first, and have added theirs.
        let Some(own) = tree.samples(index) else {
            continue;
        };
        let mut samples = own.clone();
        let mut children = tree.children(index);
        children.retain(|child| counts.contains_key(child));
        for child in children {
            let site: Option<(SourceLine, Arc<str>)> = tree
                .node(child)
                .map(|node| (node.call_site, Arc::clone(&node.function)));
            if let (Some((line, name)), Some(nested)) = (site, counts.remove(&child)) {
                samples.nest(line, &name, nested);
            }
        }
        counts.insert(index, samples);
    }
    // Those that are left have no caller with counts. LLVM merges callees before their callers.
    let (mut order, mut open) = (Vec::new(), vec![ROOT]);
    while let Some(node) = open.pop() {
        order.push(node);
        open.extend(tree.children(node));
    }
    for index in order.into_iter().rev() {
        if let Some((samples, node)) = counts.remove(&index).zip(tree.node(index)) {
            let base = vec![ContextFrame {
                function: Arc::clone(&node.function),
                line: START,
            }];
            merge_into(&mut functions, base, &samples);
        }
    }
    functions
}
