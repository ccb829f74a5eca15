//! The import graph of a crate's files, and its circles.

use super::module::{Import, Module};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many re-exports a path may pass before it is given up.
const RE_EXPORTS: usize = 16;

/// The imports between the files of a crate.
pub struct Graph<'a> {
    modules: &'a [Module],
    edges: Vec<BTreeSet<usize>>,
}

/// Files that import each other in a circle.
pub struct Circle {
    /// All files that reach each other.
    pub group: BTreeSet<usize>,
    /// A shortest circle, with its first file at both ends.
    pub shortest: Vec<usize>,
}

/// The modules of a crate by their paths.
struct Index<'a> {
    modules: &'a [Module],
    by_path: BTreeMap<&'a [String], usize>,
}

impl<'a> Graph<'a> {
    /// Resolves every path of every module to the file that defines the item.
    pub fn new(modules: &'a [Module]) -> Self {
        let index = Index {
            modules,
            by_path: (0..)
                .zip(modules)
                .map(|(at, module)| (&module.path[..], at))
                .collect(),
        };
        let edges = (0..)
            .zip(modules)
            .map(|(at, module)| index.edges(at, module))
            .collect();
        Self { modules, edges }
    }

    /// Returns the largest groups of files below `parent` that reach each other without its file,
    /// and that are in two of its children or more.
    pub fn circles_below(&self, parent: &[String]) -> Vec<Circle> {
        let below = |at: usize| {
            let path = &self.modules[at].path;
            path.len() > parent.len() && path.starts_with(parent)
        };
        let files: Vec<usize> = (0..self.modules.len()).filter(|&at| below(at)).collect();
        let reached: BTreeMap<usize, BTreeSet<usize>> =
            files.iter().map(|&at| (at, self.reached(at, &below))).collect();
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for &at in &files {
            let group: BTreeSet<usize> = reached[&at]
                .iter()
                .copied()
                .filter(|other| reached[other].contains(&at))
                .collect();
            if !group.contains(&at) || !group.iter().all(|&other| seen.insert(other)) {
                continue;
            }
            if let Some(shortest) = self.shortest_across(&group, parent.len()) {
                circles.push(Circle { group, shortest });
            }
        }
        circles
    }

    /// Returns the files that can be reached from one through files of a set.
    fn reached(&self, start: usize, is_in_set: &impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            let next = self.edges[at].iter().copied().filter(|&to| is_in_set(to));
            open.extend(next.filter(|&to| found.insert(to)));
        }
        found
    }

    /// Returns the shortest circle of a group with an import between two children of the module
    /// whose path has `depth` segments. The first file is at both ends.
    fn shortest_across(&self, group: &BTreeSet<usize>, depth: usize) -> Option<Vec<usize>> {
        let child = |at: usize| &self.modules[at].path[depth];
        let crossings = group.iter().flat_map(|&from| {
            let targets = self.edges[from].intersection(group);
            targets
                .filter(move |&&to| child(from) != child(to))
                .map(move |&to| (from, to))
        });
        crossings
            .filter_map(|(from, to)| {
                let mut circle = vec![from];
                circle.extend(self.shortest_path(to, from, group)?);
                Some(circle)
            })
            .min_by_key(Vec::len)
    }

    /// Returns the shortest path between two files of a group, with both ends.
    fn shortest_path(&self, start: usize, end: usize, group: &BTreeSet<usize>) -> Option<Vec<usize>> {
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(at) = open.pop_front() {
            if at == end {
                let mut path = vec![end];
                while let Some(&earlier) = path.last().and_then(|last| before.get(last)) {
                    path.push(earlier);
                }
                path.reverse();
                return Some(path);
            }
            for &to in self.edges[at].intersection(group) {
                if to != start
                    && let Entry::Vacant(entry) = before.entry(to)
                {
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
