//! The counts of functions by their calling contexts, as a tree.
//!
//! Source: LLVM, `llvm/lib/Transforms/IPO/SampleContextTracker.cpp`.

use crate::fdo::function_samples::{FunctionSamples, SHOULD_BE_INLINED, SourceLine};
use crate::fdo::pseudo_probe::guid;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// A function of a context, and the place in it: of a call, or of the start if it is the innermost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ContextFrame {
    pub(super) function: Arc<str>,
    pub(super) line: SourceLine,
}

/// The place of a function that no call leads to.
pub(super) const START: SourceLine = SourceLine {
    offset: 0,
    discriminator: 0,
};

/// The index of a [`ContextNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeIdx(usize);

/// The index of a function's counts in one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SamplesIdx(usize);

/// A function in a context.
#[derive(Clone, Debug)]
pub(super) struct ContextNode {
    pub(super) function: Arc<str>,
    /// The place of the call in the caller.
    pub(super) call_site: SourceLine,
    pub(super) parent: NodeIdx,
    pub(super) samples: Option<SamplesIdx>,
    children: BTreeMap<u64, NodeIdx>,
}

/// The counts of a function in one context.
#[derive(Clone, Debug)]
struct ContextSamples {
    counts: FunctionSamples,
    node: NodeIdx,
    is_inlined: bool,
    is_merged: bool,
}

/// The tree. Its root is no function, and its children are functions without a context.
#[derive(Clone, Debug)]
pub(super) struct ContextTree {
    nodes: Vec<ContextNode>,
    samples: Vec<ContextSamples>,
    guids: HashMap<Arc<str>, u64>,
    /// The contexts of each function, since [`Self::index_functions`].
    contexts: HashMap<Arc<str>, Vec<SamplesIdx>>,
}

/// The root.
pub(super) const ROOT: NodeIdx = NodeIdx(0);

impl ContextTree {
    pub(super) fn new() -> Self {
        let root = ContextNode {
            function: "".into(),
            call_site: START,
            parent: ROOT,
            samples: None,
            children: BTreeMap::new(),
        };
        Self {
            nodes: vec![root],
            samples: Vec::new(),
            guids: HashMap::new(),
            contexts: HashMap::new(),
        }
    }

    /// Notes the contexts of each function, those with the fewest calls first.
    pub(super) fn index_functions(&mut self) {
        let mut open: VecDeque<NodeIdx> = self.children(ROOT).into();
        while let Some(index) = open.pop_front() {
            open.extend(self.children(index));
            let Some(node) = self.nodes.get(index.0) else {
                continue;
            };
            if let Some(samples) = node.samples {
                let contexts = self.contexts.entry(Arc::clone(&node.function)).or_default();
                contexts.push(samples);
            }
        }
    }

    pub(super) fn node(&self, node: NodeIdx) -> Option<&ContextNode> {
        self.nodes.get(node.0)
    }

    /// Returns the children of a node, in LLVM's order.
    pub(super) fn children(&self, node: NodeIdx) -> Vec<NodeIdx> {
        let node = self.node(node);
        node.map_or_else(Vec::new, |node| node.children.values().copied().collect())
    }

    /// Returns the nodes, each before its children.
    pub(super) fn nodes(&self) -> Vec<NodeIdx> {
        let mut order = Vec::new();
        let mut open = self.children(ROOT);
        while let Some(node) = open.pop() {
            order.push(node);
            open.extend(self.children(node));
        }
        order
    }

    pub(super) fn child(&mut self, node: NodeIdx, line: SourceLine, callee: &Arc<str>) -> Option<NodeIdx> {
        let key = self.key(line, callee);
        self.node(node).and_then(|node| node.children.get(&key)).copied()
    }

    pub(super) fn add_child(&mut self, parent: NodeIdx, line: SourceLine, callee: &Arc<str>) -> NodeIdx {
        if let Some(known) = self.child(parent, line, callee) {
            return known;
        }
        let index = NodeIdx(self.nodes.len());
        self.nodes.push(ContextNode {
            function: Arc::clone(callee),
            call_site: line,
            parent,
            samples: None,
            children: BTreeMap::new(),
        });
        self.link(parent, line, callee, index);
        index
    }

    /// Returns the node of a context, the outermost function first.
    pub(super) fn add_context(&mut self, context: &[ContextFrame]) -> NodeIdx {
        let mut node = ROOT;
        let mut line = START;
        for frame in context {
            node = self.add_child(node, line, &frame.function);
            line = frame.line;
        }
        node
    }

    /// Returns the context of a node, the outermost function first.
    pub(super) fn context(&self, node: NodeIdx) -> Vec<ContextFrame> {
        let mut frames = Vec::new();
        let mut line = START;
        let mut at = node;
        while let Some(node) = self.node(at).filter(|_| at != ROOT) {
            frames.push(ContextFrame {
                function: Arc::clone(&node.function),
                line,
            });
            line = node.call_site;
            at = node.parent;
        }
        frames.reverse();
        frames
    }

    /// Returns the counts of a node, which it has from now on.
    pub(super) fn add_samples(&mut self, node: NodeIdx) -> &mut FunctionSamples {
        let next = SamplesIdx(self.samples.len());
        let known = self
            .nodes
            .get_mut(node.0)
            .map(|node| *node.samples.get_or_insert(next));
        let index = known.unwrap_or(next);
        if index == next {
            self.samples.push(ContextSamples {
                counts: FunctionSamples::default(),
                node,
                is_inlined: false,
                is_merged: false,
            });
        }
        // Every index that a node has is one of `samples`.
        &mut self.samples[index.0].counts
    }

    /// Returns the counts of a node, if it has any.
    pub(super) fn samples(&self, node: NodeIdx) -> Option<&FunctionSamples> {
        let samples = self.node(node)?.samples?;
        self.counts(samples)
    }

    pub(super) fn counts(&self, samples: SamplesIdx) -> Option<&FunctionSamples> {
        self.samples.get(samples.0).map(|samples| &samples.counts)
    }

    /// Returns the node that has counts.
    pub(super) fn node_of(&self, samples: SamplesIdx) -> Option<NodeIdx> {
        self.samples.get(samples.0).map(|samples| samples.node)
    }

    /// Removes the counts of a node.
    pub(super) fn drop_samples(&mut self, node: NodeIdx) {
        if let Some(node) = self.nodes.get_mut(node.0) {
            node.samples = None;
        }
    }

    /// Returns whether the counts are those of a context that the next build should inline.
    pub(super) fn is_inlined(&self, samples: SamplesIdx) -> bool {
        self.samples
            .get(samples.0)
            .is_some_and(|samples| samples.is_inlined)
    }

    /// Marks the counts of a context as one that the next build should inline.
    pub(super) fn set_inlined(&mut self, samples: SamplesIdx) {
        if let Some(samples) = self.samples.get_mut(samples.0) {
            samples.is_inlined = true;
            samples.counts.add_attributes(SHOULD_BE_INLINED);
        }
    }

    /// Merges the contexts of a function that are not inlined into the node without a context, and
    /// returns that node.
    pub(super) fn merge_contexts(&mut self, function: &Arc<str>) -> Option<NodeIdx> {
        let mut base = self.child(ROOT, START, function);
        let contexts = self.contexts.get(function).cloned().unwrap_or_default();
        for samples in contexts {
            let Some(context) = self.samples.get(samples.0) else {
                continue;
            };
            let node = context.node;
            if context.is_inlined || context.is_merged || Some(node) == base {
                continue;
            }
            base = Some(self.promote(node));
        }
        base
    }

    /// Moves a node to the root, and returns what it is there.
    fn promote(&mut self, node: NodeIdx) -> NodeIdx {
        let Some(from) = self.node(node) else {
            return node;
        };
        let (parent, line, function) = (from.parent, from.call_site, Arc::clone(&from.function));
        let to = self.move_or_merge(node, ROOT, START);
        let key = self.key(line, &function);
        if let Some(parent) = self.nodes.get_mut(parent.0).filter(|_| parent != ROOT) {
            parent.children.remove(&key);
        }
        to
    }

    /// Makes a node and all below it part of another parent.
    fn move_or_merge(&mut self, node: NodeIdx, parent: NodeIdx, line: SourceLine) -> NodeIdx {
        let mut open = vec![(node, parent, line)];
        let mut result = None;
        while let Some((from, parent, line)) = open.pop() {
            let Some(moved) = self.node(from) else {
                continue;
            };
            let (function, samples) = (Arc::clone(&moved.function), moved.samples);
            let to = self.child(parent, line, &function);
            let to = match to {
                None => {
                    self.link(parent, line, &function, from);
                    if let Some(moved) = self.nodes.get_mut(from.0) {
                        (moved.parent, moved.call_site) = (parent, line);
                    }
                    from
                }
                Some(to) => {
                    self.merge_samples(samples, to);
                    let children = self.children(from);
                    if let Some(moved) = self.nodes.get_mut(from.0) {
                        moved.children.clear();
                    }
                    let site = |child: NodeIdx| self.node(child).map(|node| node.call_site);
                    let children: Vec<_> = children
                        .into_iter()
                        .filter_map(|child| Some((child, to, site(child)?)))
                        .collect();
                    open.extend(children);
                    to
                }
            };
            result.get_or_insert(to);
        }
        result.unwrap_or(node)
    }

    fn merge_samples(&mut self, from: Option<SamplesIdx>, to: NodeIdx) {
        let Some(from) = from else {
            return;
        };
        let Some(target) = self.nodes.get_mut(to.0) else {
            return;
        };
        let Some(into) = target.samples else {
            target.samples = Some(from);
            if let Some(moved) = self.samples.get_mut(from.0) {
                moved.node = to;
            }
            return;
        };
        let Some(source) = self.samples.get_mut(from.0) else {
            return;
        };
        source.is_merged = true;
        let counts = source.counts.clone();
        if let Some(into) = self.samples.get_mut(into.0) {
            into.counts.merge(&counts);
            if counts.has_attribute(SHOULD_BE_INLINED) {
                into.counts.add_attributes(SHOULD_BE_INLINED);
            }
        }
    }

    fn link(&mut self, parent: NodeIdx, line: SourceLine, callee: &Arc<str>, child: NodeIdx) {
        let key = self.key(line, callee);
        if let Some(parent) = self.nodes.get_mut(parent.0) {
            parent.children.insert(key, child);
        }
    }

    /// Returns the number by which LLVM orders children.
    ///
    /// Source: LLVM, `FunctionSamples::getCallSiteHash`.
    fn key(&mut self, line: SourceLine, callee: &Arc<str>) -> u64 {
        let name = match self.guids.get(callee) {
            Some(known) => *known,
            None => {
                let hash = guid(callee);
                self.guids.insert(Arc::clone(callee), hash);
                hash
            }
        };
        let place = u64::from(line.discriminator) << 32 | u64::from(line.offset);
        name.wrapping_add(place << 5).wrapping_add(place)
    }

    /// Returns the counts of each function, with all contexts merged.
    pub(super) fn without_contexts(&self) -> BTreeMap<Arc<str>, FunctionSamples> {
        let mut functions: BTreeMap<Arc<str>, FunctionSamples> = BTreeMap::new();
        for node in self.nodes() {
            if let Some((samples, node)) = self.samples(node).zip(self.node(node)) {
                let function = functions.entry(Arc::clone(&node.function)).or_default();
                function.merge(samples);
            }
        }
        functions
    }
}
