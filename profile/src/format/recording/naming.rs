//! Names of generated code: which function was at an address of a process at the time of a sample.
//!
//! A function is only named if no other one may have been there. The work is bounded, because a
//! recording may come from elsewhere.

use super::generated::GeneratedFunction;
use crate::Result;
use crate::frame::{Frame, FrameId, Function};
use crate::profile::Profile;
use crate::sample::UnixNanos;
use crate::stacks::StackId;
use backtrail_pt::Pid;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// The most functions at one address over time.
const MAX_AT_ADDRESS: usize = 256;
/// The most pairs of a function and an address in it.
const MAX_PAIRS: usize = 1 << 24;
/// The most frames that are read, for each pass.
const MAX_STEPS: usize = 1 << 26;

/// Replaces the addresses in stacks by the generated functions that were there. Returns whether
/// some are left out, because there are too many.
pub(super) fn name_samples(profile: &mut Profile, mut functions: Vec<GeneratedFunction>) -> Result<bool> {
    if functions.is_empty() {
        return Ok(false);
    }
    functions.sort_by_key(|function| (function.latest, function.order));
    let mut naming = Naming::new(functions);
    naming.find_hits(profile);
    naming.find_candidates();
    naming.find_epochs();
    let mut steps = MAX_STEPS;
    for index in 0..profile.samples.len() {
        let Some((pid, time, stack)) = sample(profile, index) else {
            continue;
        };
        let named = match naming.stack(profile, pid, time, stack, &mut steps)? {
            Some(named) => named,
            None => return Ok(true),
        };
        if let Some(sample) = profile.samples.get_mut(index) {
            sample.stack = named;
        }
    }
    Ok(naming.is_incomplete)
}

fn sample(profile: &Profile, index: usize) -> Option<(Pid, UnixNanos, StackId)> {
    let sample = profile.samples.get(index)?;
    let thread = profile.threads.get(sample.thread?)?;
    Some((thread.pid, sample.time?, sample.stack))
}

/// The functions, and the addresses in samples that they may be at.
struct Naming {
    /// In the order in which they came.
    functions: Vec<GeneratedFunction>,
    pids: HashSet<Pid>,
    /// The functions at each address in the order of `functions`. `None`: too many.
    hits: BTreeMap<(Pid, u64), Option<Vec<usize>>>,
    /// The times at which the functions of a process change.
    epochs: HashMap<Pid, Rc<[UnixNanos]>>,
    /// The named stack of a stack, in a process between two of its `epochs`.
    named: HashMap<(Pid, usize, StackId), StackId>,
    is_incomplete: bool,
}

impl Naming {
    fn new(functions: Vec<GeneratedFunction>) -> Self {
        Self {
            pids: functions.iter().map(|function| function.pid).collect(),
            functions,
            hits: BTreeMap::new(),
            epochs: HashMap::new(),
            named: HashMap::new(),
            is_incomplete: false,
        }
    }

    /// Finds the addresses in the stacks of the processes with functions.
    fn find_hits(&mut self, profile: &Profile) {
        let mut seen = HashSet::new();
        for index in 0..profile.samples.len() {
            let Some((pid, _, mut stack)) = sample(profile, index) else {
                continue;
            };
            if !self.pids.contains(&pid) {
                continue;
            }
            while let Some((caller, frame)) = profile.stacks.split(stack) {
                if seen.len() >= MAX_STEPS / 8 {
                    self.is_incomplete = true;
                    return;
                }
                if !seen.insert((pid, stack)) {
                    break;
                }
                if let Some(Frame::Address(address)) = profile.frames.get(frame) {
                    self.hits.insert((pid, *address), Some(Vec::new()));
                }
                stack = caller;
            }
        }
    }

    fn find_candidates(&mut self) {
        let mut left = MAX_PAIRS;
        for (index, function) in self.functions.iter().enumerate() {
            let pid = function.pid;
            let range = (pid, function.range.start)..(pid, function.range.end);
            for (_, candidates) in self.hits.range_mut(range) {
                left -= 1;
                if left == 0 {
                    break;
                }
                let Some(known) = candidates else { continue };
                // Most repeated functions are those of several segments.
                let last = known.last().and_then(|last| self.functions.get(*last));
                if last.is_some_and(|last| is_same(last, function)) {
                    continue;
                }
                known.push(index);
                if known.len() > MAX_AT_ADDRESS {
                    *candidates = None;
                    self.is_incomplete = true;
                }
            }
            // Later functions are not known, so that no name is sure.
            if left == 0 {
                self.hits.clear();
                self.is_incomplete = true;
                return;
            }
        }
    }

    fn find_epochs(&mut self) {
        let mut times: HashMap<Pid, Vec<UnixNanos>> = HashMap::new();
        for ((pid, _), candidates) in &self.hits {
            let functions = candidates.iter().flatten();
            for function in functions.filter_map(|index| self.functions.get(*index)) {
                let times = times.entry(*pid).or_default();
                times.extend([function.earliest, function.latest]);
            }
        }
        for (pid, mut times) in times {
            times.sort_unstable();
            times.dedup();
            self.epochs.insert(pid, times.into());
        }
    }

    /// Returns a stack with names instead of addresses. `None`: the work exceeds the bound.
    fn stack(
        &mut self,
        profile: &mut Profile,
        pid: Pid,
        time: UnixNanos,
        stack: StackId,
        steps: &mut usize,
    ) -> Result<Option<StackId>> {
        let Some(times) = self.epochs.get(&pid) else {
            return Ok(Some(stack));
        };
        let epoch = times.partition_point(|change| *change <= time);
        let mut unnamed = Vec::new();
        let mut rest = stack;
        let mut named = loop {
            if let Some(known) = self.named.get(&(pid, epoch, rest)) {
                break *known;
            }
            let Some((caller, frame)) = profile.stacks.split(rest) else {
                break rest;
            };
            let Some(left) = steps.checked_sub(1) else {
                return Ok(None);
            };
            *steps = left;
            unnamed.push((rest, frame));
            rest = caller;
        };
        for (stack, frame) in unnamed.into_iter().rev() {
            let frame = self.frame(profile, pid, time, frame)?;
            named = profile.stacks.push(named, frame)?;
            self.named.insert((pid, epoch, stack), named);
        }
        Ok(Some(named))
    }

    fn frame(&self, profile: &mut Profile, pid: Pid, time: UnixNanos, frame: FrameId) -> Result<FrameId> {
        let Some(Frame::Address(address)) = profile.frames.get(frame).copied() else {
            return Ok(frame);
        };
        let candidates = self.hits.get(&(pid, address)).and_then(Option::as_ref);
        let Some(function) = candidates.and_then(|candidates| self.function_at(candidates, time)) else {
            return Ok(frame);
        };
        let Some(name) = function.name else {
            return Ok(frame);
        };
        let offset = address.saturating_sub(function.range.start);
        let after = function.lines.partition_point(|line| line.offset <= offset);
        let at = after.checked_sub(1).and_then(|index| function.lines.get(index));
        let file = function.lines.first().map(|line| line.file);
        let function = profile.functions.intern(Function {
            name,
            linkage_name: name,
            file,
            start_line: 0,
        })?;
        // Another file is that of an inlined function, whose name is not known.
        let line = at.filter(|line| Some(line.file) == file);
        let line = line.map_or(0, |line| line.line);
        profile.frames.intern(Frame::Function { function, line })
    }

    /// Returns the function of an address at a time, or `None` if several functions with different
    /// names may have been there.
    fn function_at(&self, candidates: &[usize], time: UnixNanos) -> Option<&GeneratedFunction> {
        let get = |index: &usize| self.functions.get(*index);
        let is_there = |index: &usize| get(index).is_some_and(|function| function.latest <= time);
        let (before, later) = candidates.split_at(candidates.partition_point(is_there));
        let last = before.last().and_then(get);
        let maybe = later.iter().filter_map(get);
        let mut all = last.into_iter().chain(maybe.filter(|one| one.earliest <= time));
        let first = all.next()?;
        all.all(|other| other.name == first.name).then_some(first)
    }
}

fn is_same(one: &GeneratedFunction, other: &GeneratedFunction) -> bool {
    let key = |function: &GeneratedFunction| {
        let range = function.range.clone();
        (range, function.earliest, function.latest, function.name)
    };
    key(one) == key(other)
}

#[cfg(test)]
mod tests;
