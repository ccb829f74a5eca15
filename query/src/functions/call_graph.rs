//! A tree of calls with weights, and its texts.

use std::collections::HashMap;
use std::fmt::Write as _;

/// The maximum number of nodes in a text. Those of the smallest weights are left out.
const MAX_NODES: usize = 50_000;
/// The name of the weight of nodes that are left out, as in the hub's flame graphs.
const LEFT_OUT: &str = "[smaller calls, left out]";

/// The index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NodeIdx(usize);

/// A function with its callers.
#[derive(Debug)]
struct Node {
    name: Box<str>,
    /// The weight of the samples with this node.
    total: i64,
    /// The weight of the samples that end here.
    own: i64,
    children: Vec<NodeIdx>,
}

/// A tree of calls. The root is the first node.
#[derive(Debug)]
pub(super) struct CallGraph {
    nodes: Vec<Node>,
    index: HashMap<(NodeIdx, Box<str>), NodeIdx>,
    bytes: usize,
}

impl CallGraph {
    /// Builds a tree with a root only.
    pub(super) fn new() -> Self {
        let root = Node {
            name: "all".into(),
            total: 0,
            own: 0,
            children: Vec::new(),
        };
        Self {
            nodes: vec![root],
            index: HashMap::new(),
            bytes: 0,
        }
    }

    /// Adds a stack, the outermost function first.
    pub(super) fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>, weight: i64) {
        let mut at = NodeIdx(0);
        self.update(at, |node| node.total = node.total.saturating_add(weight));
        for name in names {
            at = self.child(at, name);
            self.update(at, |node| node.total = node.total.saturating_add(weight));
        }
        self.update(at, |node| node.own = node.own.saturating_add(weight));
    }

    /// Returns the occupied memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn update(&mut self, at: NodeIdx, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(at.0) {
            change(node);
        }
    }

    fn child(&mut self, parent: NodeIdx, name: &str) -> NodeIdx {
        let key = (parent, Box::from(name));
        if let Some(found) = self.index.get(&key) {
            return *found;
        }
        let child = NodeIdx(self.nodes.len());
        self.nodes.push(Node {
            name: name.into(),
            total: 0,
            own: 0,
            children: Vec::new(),
        });
        self.update(parent, |node| node.children.push(child));
        self.index.insert(key, child);
        self.bytes += 2 * (size_of::<Node>() + name.len() + size_of::<NodeIdx>());
        child
    }

    /// Returns the smallest weight of a node in a text.
    fn smallest(&self) -> u64 {
        let mut weights: Vec<u64> = self.nodes.iter().map(|node| node.total.unsigned_abs()).collect();
        if weights.len() <= MAX_NODES {
            return 0;
        }
        let (_, limit, _) = weights.select_nth_unstable_by(MAX_NODES, |a, b| b.cmp(a));
        limit.saturating_add(1)
    }

    /// Calls `visit` for each node that is large enough, and then `leave`. Children come in the
    /// order of their weights, the largest first.
    fn walk(&self, mut visit: impl FnMut(&Node, &[&str], bool), mut leave: impl FnMut()) {
        let smallest = self.smallest();
        let children = |at: NodeIdx| {
            let of = self.nodes.get(at.0).map_or(&[][..], |node| &node.children);
            let mut list: Vec<(&Node, NodeIdx)> = of
                .iter()
                .filter_map(|child| Some((self.nodes.get(child.0)?, *child)))
                .filter(|(node, _)| node.total.unsigned_abs() >= smallest)
                .collect();
            // The next child is the last element.
            list.sort_by(|(a, _), (b, _)| a.total.cmp(&b.total).then_with(|| b.name.cmp(&a.name)));
            list
        };
        let mut path: Vec<&str> = Vec::new();
        let Some(root) = self.nodes.first() else {
            return;
        };
        visit(root, &path, true);
        let mut open = vec![(children(NodeIdx(0)), true)];
        while let Some((list, is_first)) = open.last_mut() {
            let Some((node, at)) = list.pop() else {
                leave();
                open.pop();
                path.pop();
                continue;
            };
            let first = std::mem::replace(is_first, false);
            path.push(&node.name);
            visit(node, &path, first);
            open.push((children(at), true));
        }
    }

    /// Returns the tree as JSON: `{"name", "value", "self", "children"}`.
    pub(super) fn json(&self) -> String {
        let out = std::cell::RefCell::new(String::new());
        self.walk(
            |node, path, is_first| {
                let mut out = out.borrow_mut();
                if !path.is_empty() && !is_first {
                    out.push(',');
                }
                let name = serde_json::Value::from(&*node.name);
                let (value, own) = (node.total, node.own);
                let _ = write!(
                    out,
                    r#"{{"name":{name},"value":{value},"self":{own},"children":["#
                );
            },
            || out.borrow_mut().push_str("]}"),
        );
        out.into_inner()
    }

    /// Returns a line per stack: `outer;inner weight`. A last line has the weight of nodes that are
    /// left out.
    pub(super) fn folded(&self) -> String {
        let mut out = String::new();
        let mut left = self.nodes.first().map_or(0, |root| i128::from(root.total));
        self.walk(
            |node, path, _| {
                left -= i128::from(node.own);
                if node.own != 0 && !path.is_empty() {
                    let names = path.iter().map(|name| name.replace([';', '\n', '\r'], ":"));
                    let line = names.collect::<Vec<_>>().join(";");
                    let _ = writeln!(out, "{line} {}", node.own);
                }
            },
            || (),
        );
        if self.smallest() > 0 && left != 0 {
            let _ = writeln!(out, "{LEFT_OUT} {left}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> CallGraph {
        let mut graph = CallGraph::new();
        graph.add(["main", "parse"].into_iter(), 30);
        graph.add(["main", "write;all"].into_iter(), 50);
        graph.add(["main"].into_iter(), 5);
        graph.add(["main", "parse"].into_iter(), 10);
        graph
    }

    #[test]
    fn texts_have_the_largest_child_first() {
        let graph = sample();
        assert_eq!(graph.folded(), "main 5\nmain;write:all 50\nmain;parse 40\n");
        let value: serde_json::Value = serde_json::from_str(&graph.json()).unwrap();
        assert_eq!((&value["name"], &value["value"]), (&"all".into(), &95.into()));
        let main = &value["children"][0];
        assert_eq!(
            (&main["self"], &main["children"][0]["name"]),
            (&5.into(), &"write;all".into())
        );
        assert_eq!(main["children"][1]["value"], 40);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&CallGraph::new().json()).unwrap()["value"],
            0
        );
    }

    #[test]
    fn smallest_nodes_are_left_out_of_large_trees() {
        let mut graph = CallGraph::new();
        for number in 0..60_000i64 {
            graph.add([&*format!("f{number}")].into_iter(), number);
        }
        let lines = graph.folded().lines().count();
        assert!((40_000..=MAX_NODES).contains(&lines), "{lines}");
        assert!(graph.folded().starts_with("f59999 59999\n"));
    }

    #[test]
    fn deep_stack_is_written_without_recursion() {
        let mut graph = CallGraph::new();
        graph.add(std::iter::repeat_n("f", 40_000), 1);
        assert_eq!(graph.json().matches("]}").count(), 40_001);
    }
}
