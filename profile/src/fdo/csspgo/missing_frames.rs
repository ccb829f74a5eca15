//! Finds the functions that a call chain lacks because they called the next one by a jump.
//!
//! Source: LLVM, `llvm/tools/llvm-profgen/MissingFrameInferrer.cpp`.

use crate::fdo::binary::{Binary, Transfer};
use crate::fdo::branch_profile::BranchProfile;
use backtrail_pt::Svma;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The most tail calls between two frames.
const MAX_TAIL_CALLS: usize = 256;

/// The calls and tail calls that were executed.
pub(super) struct TailCalls<'a, B> {
    binary: &'a B,
    /// The functions that a call went to, by their starts.
    calls: HashMap<Svma, BTreeSet<Svma>>,
    /// The functions that a jump to another function went to.
    jumps: HashMap<Svma, BTreeSet<Svma>>,
    /// The jumps to other functions in each function.
    jumps_of: BTreeMap<Svma, Vec<Svma>>,
    /// The functions that jumps go to.
    targets: HashSet<Svma>,
    /// The tail calls from one function to another, if there is one way.
    paths: HashMap<(Svma, Svma), Option<Vec<Svma>>>,
}

impl<'a, B: Binary> TailCalls<'a, B> {
    pub(super) fn new<'p>(profiles: impl Iterator<Item = &'p BranchProfile>, binary: &'a B) -> Self {
        let mut found = Self {
            binary,
            calls: HashMap::new(),
            jumps: HashMap::new(),
            jumps_of: BTreeMap::new(),
            targets: HashSet::new(),
            paths: HashMap::new(),
        };
        let mut seen = BTreeSet::new();
        for profile in profiles {
            let ends = profile
                .branches()
                .filter_map(|(branch, _)| branch.from.zip(branch.to));
            seen.extend(ends);
        }
        for (from, to) in seen {
            found.add(from, to);
        }
        found
    }

    fn add(&mut self, from: Svma, to: Svma) {
        let (Some(caller), Some(callee)) = (self.function(from), self.function(to)) else {
            return;
        };
        match self.binary.transfer(from) {
            Some(Transfer::Call) => {
                self.calls.entry(from).or_default().insert(callee);
            }
            Some(Transfer::Jump(target)) => {
                let is_inside = target.is_some_and(|target| self.function(target) == Some(caller));
                if is_inside || callee == caller {
                    return;
                }
                let is_new = !self.jumps.contains_key(&from);
                self.jumps.entry(from).or_default().insert(callee);
                self.targets.insert(callee);
                if is_new {
                    self.jumps_of.entry(caller).or_default().push(from);
                }
            }
            _ => {}
        }
    }

    /// Returns the start of the function at an address.
    fn function(&self, at: Svma) -> Option<Svma> {
        self.binary.function_ranges(at).first().map(|range| range.start)
    }

    /// Returns calls with the tail calls between them, up to an address in the innermost function.
    pub(super) fn complete(&mut self, calls: &[Svma], leaf: Svma) -> Vec<Svma> {
        let mut complete = Vec::with_capacity(calls.len());
        let next = calls.iter().skip(1).chain(std::iter::once(&leaf));
        for (call, next) in calls.iter().zip(next) {
            complete.push(*call);
            if let Some(path) = self.between(*call, *next) {
                complete.extend(path);
            }
        }
        complete
    }

    /// Returns the tail calls between a call and code that it led to, if there is one way only.
    fn between(&mut self, call: Svma, to: Svma) -> Option<Vec<Svma>> {
        let to = self.function(to)?;
        let callees = self.calls.get(&call)?.clone();
        if callees.contains(&to) || !self.targets.contains(&to) {
            return None;
        }
        let mut ways = Ways::default();
        for callee in callees {
            self.add_ways(callee, to, &mut ways, &mut Vec::new());
            if ways.count > 1 {
                return None;
            }
        }
        Some(ways.path).filter(|_| ways.count == 1)
    }

    /// Adds the ways by tail calls from one function to another. Those through a function that is
    /// being visited are left out.
    fn add_ways(&mut self, from: Svma, to: Svma, ways: &mut Ways, visiting: &mut Vec<Svma>) {
        if from == to {
            ways.count += 1;
            return;
        }
        if visiting.contains(&from) || visiting.len() >= MAX_TAIL_CALLS {
            return;
        }
        if let Some(known) = self.paths.get(&(from, to)) {
            if let Some(path) = known {
                ways.path.extend(path);
                ways.count += 1;
            }
            return;
        }
        let start = ways.path.len();
        let mut count = 0;
        visiting.push(from);
        for jump in self.jumps_of.get(&from).cloned().unwrap_or_default() {
            let before = ways.path.len();
            let mut here = Ways {
                count: 0,
                path: std::mem::take(&mut ways.path),
            };
            here.path.push(jump);
            for callee in self.jumps.get(&jump).cloned().unwrap_or_default() {
                self.add_ways(callee, to, &mut here, visiting);
                if here.count > 1 {
                    break;
                }
            }
            if here.count != 1 {
                here.path.truncate(before);
            }
            ways.path = here.path;
            count += here.count;
            if count > 1 {
                break;
            }
        }
        visiting.pop();
        if count != 1 {
            ways.path.truncate(start);
        }
        let path = ways.path.get(start..).unwrap_or_default().to_vec();
        self.paths.insert((from, to), Some(path).filter(|_| count == 1));
        ways.count += count;
    }
}

/// The ways that were found, and the tail calls of the only one.
#[derive(Default)]
struct Ways {
    count: usize,
    path: Vec<Svma>,
}
