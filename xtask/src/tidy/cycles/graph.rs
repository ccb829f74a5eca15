//! The import graph of a crate's files, and its cycles.

use super::Edges;
use super::module::{Import, Module};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many re-exports a path may pass before it is given up.
const RE_EXPORTS: usize = 16;

/// Which file imports which.
pub struct Graph {
    edges: Vec<BTreeSet<usize>>,
}

/// The modules of a crate by their paths.
struct Index<'a> {
    modules: &'a [Module],
    by_path: BTreeMap<&'a [String], usize>,
}

impl Graph {
    /// Resolves every path of every module to the file that defines the item.
    pub fn new(modules: &[Module], counted: Edges) -> Self {
        let index = Index {
            modules,
            by_path: (0..)
                .zip(modules)
                .map(|(at, module)| (&module.path[..], at))
                .collect(),
        };
        let mut edges: Vec<BTreeSet<usize>> = (0..)
            .zip(modules)
            .map(|(at, module)| index.edges(at, module))
            .collect();
        if counted == Edges::WithoutAncestors {
            for (found, module) in edges.iter_mut().zip(modules) {
                found.retain(|&to| !module.path.starts_with(&modules[to].path));
            }
        }
        Self { edges }
    }

    /// Returns the groups of two files and more that reach each other.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let reached: Vec<BTreeSet<usize>> = (0..self.edges.len()).map(|at| self.reached(at)).collect();
        let mut groups = Vec::new();
        let mut seen = BTreeSet::new();
        for (at, from_here) in reached.iter().enumerate() {
            let group: Vec<usize> = from_here
                .iter()
                .copied()
                .filter(|&other| reached[other].contains(&at))
                .collect();
            if group.len() > 1 && group.iter().all(|&other| seen.insert(other)) {
                groups.push(group);
            }
        }
        groups
    }

    /// Returns a shortest cycle within a group, with its first file at both ends.
    pub fn shortest_cycle(&self, group: &[usize]) -> Vec<usize> {
        group
            .iter()
            .filter_map(|&start| self.cycle_from(start))
            .min_by_key(Vec::len)
            .unwrap_or_default()
    }

    /// Returns the files that can be reached from one.
    fn reached(&self, start: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            open.extend(self.edges[at].iter().copied().filter(|&to| found.insert(to)));
        }
        found
    }

    fn cycle_from(&self, start: usize) -> Option<Vec<usize>> {
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(at) = open.pop_front() {
            for &to in &self.edges[at] {
                if to == start {
                    let mut cycle = vec![start, at];
                    while let Some(&earlier) = cycle.last().and_then(|last| before.get(last)) {
                        cycle.push(earlier);
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if let Entry::Vacant(entry) = before.entry(to) {
                    entry.insert(at);
                    open.push_back(to);
                }
            }
        }
        None
    }
}

impl Index<'_> {
    /// Returns the files that a module imports from.
    fn edges(&self, at: usize, module: &Module) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for import in &module.imports {
            let Some(target) = self.resolve(at, &import.path, 0) else {
                continue;
            };
            if !self.is_plain_re_export(at, import, target) {
                found.insert(target);
            }
        }
        for path in &module.paths {
            found.extend(self.resolve(at, path, 0));
        }
        found.remove(&at);
        found
    }

    /// Returns whether a module only passes a name on from below itself.
    fn is_plain_re_export(&self, at: usize, import: &Import, target: usize) -> bool {
        let module = &self.modules[at];
        let is_below = self.modules[target].path.starts_with(&module.path);
        import.is_re_export && is_below && !module.identifiers.contains(&import.name)
    }

    /// Returns the file that defines what a path of module `at` names; nothing for other crates.
    fn resolve(&self, at: usize, path: &[String], depth: usize) -> Option<usize> {
        let (mut here, mut rest) = self.first_step(at, path, depth)?;
        while let Some((name, after)) = rest.split_first() {
            let mut child = self.modules[here].path.clone();
            child.push(name.clone());
            if let Some(&next) = self.by_path.get(&child[..]) {
                (here, rest) = (next, after);
                continue;
            }
            return Some(self.definition(here, name, depth).unwrap_or(here));
        }
        Some(here)
    }

    /// Resolves the beginning of a path: `crate`, `self`, `super`s, or a child module.
    fn first_step<'p>(&self, at: usize, path: &'p [String], depth: usize) -> Option<(usize, &'p [String])> {
        let (first, after) = path.split_first()?;
        let own = &self.modules[at].path;
        match first.as_str() {
            "crate" => Some((*self.by_path.get(&[][..])?, after)),
            "self" => Some((at, after)),
            "super" => {
                let count = path.iter().take_while(|segment| *segment == "super").count();
                let above = own.get(..own.len().checked_sub(count)?)?;
                Some((*self.by_path.get(above)?, &path[count..]))
            }
            _ => {
                let mut child = own.clone();
                child.push(first.clone());
                if self.by_path.contains_key(&child[..]) {
                    return Some((at, path));
                }
                // A name of this module that a `use` declaration brought in.
                let import = self.modules[at]
                    .imports
                    .iter()
                    .find(|import| import.name == *first)?;
                let is_itself = import.path.first() == Some(first);
                let target = (depth < RE_EXPORTS && !is_itself)
                    .then(|| self.resolve(at, &import.path, depth + 1))??;
                Some((target, after))
            }
        }
    }

    /// Returns the file that defines a name which a module defines, imports or re-exports.
    fn definition(&self, at: usize, name: &str, depth: usize) -> Option<usize> {
        let module = &self.modules[at];
        if module.items.contains(name) || depth >= RE_EXPORTS {
            return Some(at);
        }
        let by_name = module.imports.iter().find(|import| import.name == name);
        if let Some(import) = by_name {
            return self.resolve(at, &import.path, depth + 1);
        }
        let globs = module.imports.iter().filter(|import| import.name == "*");
        globs
            .filter_map(|import| self.resolve(at, &import.path, depth + 1))
            .find(|&target| target != at && self.modules[target].items.contains(name))
    }
}
