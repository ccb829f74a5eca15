//! BOLT's own profile (`fdata`): branches and fall-throughs by functions and offsets.
//!
//! Source: LLVM, `bolt/lib/Profile/DataAggregator.cpp` and `bolt/lib/Profile/DataReader.cpp`.

use super::binary::{Binary, LinkedFunction, Transfer};
use super::branch_profile::{BranchCount, BranchProfile, CodeRange};
use crate::Result;
use backtrail_pt::Svma;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

/// A place in a function, or outside of the binary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Location {
    function: Option<Arc<str>>,
    offset: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(name) => write!(f, "1 {} {:x}", escaped(name), self.offset),
            None => write!(f, "0 [unknown] 0"),
        }
    }
}

/// Returns a name in which spaces and backslashes do not end it.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace(' ', "\\ ")
}

/// Writes branches and fall-throughs, for `llvm-bolt -data`.
///
/// A fall-through goes from the last instruction of a basic block to the next block. Returns are
/// left out, as `perf2bolt` does. A block begins at the target of a jump, and after a jump or a
/// return. A jump directly after a conditional one belongs to its block.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &BranchProfile, binary: &impl Binary, out: &mut dyn Write) -> Result<()> {
    let mut records = Records {
        binary,
        blocks: BTreeMap::new(),
        counts: BTreeMap::new(),
    };
    records.find_blocks(profile);
    for (branch, count) in profile.branches() {
        let is_return = |from| binary.transfer(from) == Some(Transfer::Return);
        if !branch.from.is_some_and(is_return) {
            records.add(branch.from, branch.to, count);
        }
    }
    for (range, count) in profile.ranges() {
        records.add_fall_throughs(range, count);
    }
    for ((from, to), count) in &records.counts {
        writeln!(out, "{from} {to} {} {}", count.mispredicted, count.taken)?;
    }
    Ok(())
}

/// A function and the starts of its basic blocks.
struct Blocks {
    function: LinkedFunction,
    starts: BTreeSet<Svma>,
}

struct Records<'a, B> {
    binary: &'a B,
    /// The functions by their starts.
    blocks: BTreeMap<Svma, Rc<Blocks>>,
    counts: BTreeMap<(Location, Location), BranchCount>,
}

impl<B: Binary> Records<'_, B> {
    /// Finds the basic blocks of the functions with straight code. Targets of jumps through tables
    /// are known if they were executed.
    fn find_blocks(&mut self, profile: &BranchProfile) {
        let mut jumped_to: BTreeMap<Svma, BTreeSet<Svma>> = BTreeMap::new();
        let mut functions: BTreeMap<Svma, LinkedFunction> = BTreeMap::new();
        for (range, _) in profile.ranges() {
            if let Some(function) = self.binary.linked_function(range.first) {
                functions.insert(function.range.start, function);
            }
        }
        for (branch, _) in profile.branches() {
            let Some((from, to)) = branch.from.zip(branch.to) else {
                continue;
            };
            let is_indirect = self.binary.transfer(from) == Some(Transfer::Jump(None));
            let function = self.binary.linked_function(to).filter(|_| is_indirect);
            if let Some(function) = function {
                jumped_to.entry(function.range.start).or_default().insert(to);
            }
        }
        for (start, function) in functions {
            let mut starts = jumped_to.remove(&start).unwrap_or_default();
            self.add_block_starts(&function, &mut starts);
            self.blocks.insert(start, Rc::new(Blocks { function, starts }));
        }
    }

    fn add_block_starts(&self, function: &LinkedFunction, starts: &mut BTreeSet<Svma>) {
        let is_inside = |target: &Svma| function.range.contains(target);
        // The instructions after jumps and returns, each with whether a jump there belongs to the
        // block of a conditional jump.
        let mut after: Vec<(Svma, bool)> = Vec::new();
        let mut at = function.range.start;
        while let Some((here, len)) = self.binary.instruction(at).filter(|(at, _)| is_inside(at)) {
            let next = here + u64::from(len);
            match self.binary.transfer(here) {
                Some(Transfer::Conditional(target)) => {
                    starts.extend(Some(target).filter(is_inside));
                    after.push((next, is_inside(&target)));
                }
                Some(Transfer::Jump(target)) => {
                    starts.extend(target.filter(is_inside));
                    after.push((next, false));
                }
                Some(Transfer::Return) => after.push((next, false)),
                _ => {}
            }
            at = next;
        }
        for (next, may_join) in after {
            let joins = may_join
                && matches!(self.binary.transfer(next), Some(Transfer::Jump(Some(target))) if is_inside(&target));
            if !joins {
                starts.insert(next);
            }
        }
    }

    fn location(&self, at: Option<Svma>) -> Location {
        let found = at.and_then(|at| Some((at, self.binary.linked_function(at)?)));
        match found {
            Some((at, function)) => Location {
                offset: at.0.saturating_sub(function.range.start.0),
                function: Some(function.name),
            },
            None => Location {
                function: None,
                offset: 0,
            },
        }
    }

    fn add(&mut self, from: Option<Svma>, to: Option<Svma>, count: BranchCount) {
        let (from, to) = (self.location(from), self.location(to));
        if from.function.is_none() && to.function.is_none() {
            return;
        }
        let sum = self.counts.entry((from, to)).or_default();
        sum.taken = sum.taken.saturating_add(count.taken);
        sum.mispredicted = sum.mispredicted.saturating_add(count.mispredicted);
    }

    fn add_fall_throughs(&mut self, range: CodeRange, count: u64) {
        let known = self.blocks.range(..=range.first).next_back();
        let Some(blocks) = known.map(|(_, blocks)| Rc::clone(blocks)) else {
            return;
        };
        let function = &blocks.function.range;
        let is_inside = function.contains(&range.first) && function.contains(&range.last);
        if !is_inside || range.first >= range.last || self.binary.is_interrupted(range) {
            return;
        }
        let after_first = Svma(range.first.0.saturating_add(1));
        for start in blocks.starts.range(after_first..=range.last) {
            let Some(last) = self.binary.instruction_before(*start) else {
                continue;
            };
            let count = BranchCount {
                taken: count,
                mispredicted: 0,
            };
            self.add(Some(last), Some(*start), count);
        }
    }
}
