//! All calls of a history, stored explicitly, for many queries.

use super::effects::CallEvent;
use super::index::{CallRef, Index, Node};
use super::{EntryKind, Left};
use crate::Canceled;
use crate::forest::code_sites::SiteIdx;
use crate::history::Flow;
use crate::watch::{Stage, Watch};

/// The number of no call.
const NO_PARENT: u32 = u32::MAX;

/// A call in 24 bytes.
#[derive(Clone, Copy, Debug)]
struct PackedNode {
    first: u64,
    end: u64,
    parent: u32,
    /// The function, and in the low six bits how it was entered and left.
    packed: u32,
}

/// The calls by number.
#[derive(Debug, Default)]
pub(super) struct Nodes(Vec<PackedNode>);

/// Executions between two progress reports.
const REPORT_EVERY: usize = 1 << 20;

impl Nodes {
    /// Stores all calls of a history.
    pub fn new(index: &Index, flow: &Flow, watch: &Watch<'_>) -> Result<Self, Canceled> {
        let blank = PackedNode {
            first: 0,
            end: flow.len(),
            parent: NO_PARENT,
            packed: Left::HistoryEnd.code(),
        };
        let mut nodes = Self(vec![blank; index.len()]);
        // The open calls, outermost first.
        let mut open: Vec<u32> = Vec::new();
        let (mut at, mut start) = (index.start(), 0);
        let (mut tree, mut shift) = (0, 0);
        for (execution, &path) in flow.executions().iter().enumerate() {
            if execution.is_multiple_of(REPORT_EVERY) {
                watch.report(Stage::Calls, execution as u64, flow.executions().len() as u64)?;
            }
            index.effects.pass(&mut at, flow, |event| match event {
                CallEvent::Begin {
                    call,
                    offset,
                    function,
                    entered,
                    ..
                } => {
                    let first = start + u64::from(offset);
                    if index.trees.get(tree).is_some_and(|tree| tree.root == call) {
                        open.clear();
                        for (adopted, function) in index.synthetic_of(tree) {
                            let number = index.number(CallRef::Synthetic(adopted, tree));
                            nodes.begin(number, first, open.last(), function, EntryKind::Adopted);
                            open.push(number);
                        }
                        tree += 1;
                        shift = index.synthetic_before(tree);
                    }
                    let function = index.function(CallRef::Recorded(call), function);
                    nodes.begin(call + shift, first, open.last(), function, entered);
                    open.push(call + shift);
                }
                CallEvent::End { offset, left, .. } => {
                    let ended = open.pop().and_then(|number| nodes.0.get_mut(number as usize));
                    if let Some(node) = ended {
                        node.end = start + u64::from(offset);
                        node.packed = node.packed & !7 | left.code();
                    }
                }
            });
            start += flow.paths.count(path);
        }
        Ok(nodes)
    }

    fn begin(
        &mut self,
        number: u32,
        first: u64,
        parent: Option<&u32>,
        function: SiteIdx,
        entered: EntryKind,
    ) {
        if let Some(node) = self.0.get_mut(number as usize) {
            node.first = first;
            node.parent = parent.copied().unwrap_or(NO_PARENT);
            node.packed |= function.0 << 6 | entered.code() << 3;
        }
    }

    pub fn get(&self, number: u32) -> Option<Node> {
        let node = self.0.get(number as usize)?;
        Some(Node {
            first: node.first,
            end: node.end,
            parent: (node.parent != NO_PARENT).then_some(node.parent),
            function: SiteIdx(node.packed >> 6),
            entered: EntryKind::of(node.packed >> 3 & 7),
            left: Left::of(node.packed & 7),
        })
    }

    /// Returns the number of a call's function.
    pub fn function(&self, number: u32) -> Option<u32> {
        Some(self.0.get(number as usize)?.packed >> 6)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the bytes in use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }
}
