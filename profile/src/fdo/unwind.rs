//! Finds the calls that led to each branch of last branch records (LBR), from the call chain of the
//! sample.
//!
//! Source: LLVM, `llvm/tools/llvm-profgen/PerfReader.cpp`, `VirtualUnwinder`.

use super::binary::{Binary, Transfer};
use super::branch_profile::{Branch, CodeRange};
use super::context_profile::ContextProfile;
use backtrail_pt::Svma;

/// The most frames of a call chain, the innermost ones. The kernel's default is 127.
const MAX_FRAMES: usize = 1 << 9;

/// The call chain of a sample and its branches. An address outside of the binary is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HybridSample {
    /// The address of the sample, and the return addresses of its callers, the innermost first.
    pub chain: Vec<Option<Svma>>,
    /// The branches, the newest first, each with whether it was mispredicted.
    pub branches: Vec<(Branch, bool)>,
}

impl ContextProfile {
    /// Adds a sample that was taken `count` times. The calls and returns among its branches lead
    /// from the call chain at its end to the contexts of its older branches.
    ///
    /// A sample within the first two or before the last instruction of a function is left out,
    /// because its call chain may lack the caller. Returns whether the sample was added.
    pub fn add_sample(&mut self, sample: &HybridSample, count: u64, binary: &impl Binary) -> bool {
        let Some(stack) = initial_stack(sample, binary) else {
            return false;
        };
        let mut unwinder = Unwinder {
            binary,
            stack,
            is_lost: false,
        };
        let code = |at: Option<Svma>| at.filter(|at| is_code(*at, binary));
        let branches = sample.branches.iter().map(|(branch, is_mispredicted)| {
            let branch = Branch {
                from: code(branch.from),
                to: code(branch.to),
            };
            (branch, *is_mispredicted)
        });
        let internal = branches.filter(|(branch, _)| branch.from.is_some() || branch.to.is_some());
        for (number, (branch, is_mispredicted)) in internal.enumerate() {
            if number == 0 {
                // The place of the sample within the last straight code is random.
                unwinder.set_leaf(branch.to);
            } else if let Some(range) = unwinder.straight(branch.to) {
                self.context(&unwinder.calls()).add_range(range, count);
            }
            unwinder.undo(branch);
            if branch.to.is_some() {
                let calls = match branch.from {
                    Some(_) => unwinder.calls(),
                    None => Vec::new(),
                };
                let missed = if is_mispredicted { count } else { 0 };
                self.context(&calls).add_branch(branch, count, missed);
            }
        }
        true
    }
}

/// Returns the frames of a sample, the outermost first: addresses of calls, and the innermost
/// address. `None`: the call chain cannot be trusted.
fn initial_stack(sample: &HybridSample, binary: &impl Binary) -> Option<Vec<Option<Svma>>> {
    let mut stack: Vec<Option<Svma>> = Vec::new();
    for (number, address) in sample.chain.iter().take(MAX_FRAMES).enumerate() {
        let Some(address) = address.filter(|address| is_code(*address, binary)) else {
            if stack.last() != Some(&None) {
                stack.push(None);
            }
            continue;
        };
        if number == 0 {
            stack.push(Some(address));
            continue;
        }
        match call_before(address, binary) {
            Some(call) => stack.push(Some(call)),
            None => break,
        }
    }
    if stack.len() > 1 && stack.last() == Some(&None) {
        stack.pop();
    }
    let leaf = stack.first()?;
    if leaf.is_some_and(|leaf| is_without_frame(leaf, binary)) {
        return None;
    }
    stack.reverse();
    Some(stack)
}

fn is_code(address: Svma, binary: &impl Binary) -> bool {
    binary.transfer(address).is_some()
}

/// Returns the call that returns to an address.
fn call_before(address: Svma, binary: &impl Binary) -> Option<Svma> {
    let before = binary.instruction_before(address)?;
    let is_call = binary.transfer(before) == Some(Transfer::Call);
    is_call.then_some(before)
}

/// Returns whether an address is where a function builds its frame or has removed it.
fn is_without_frame(address: Svma, binary: &impl Binary) -> bool {
    let ranges = binary.function_ranges(address);
    let is_start = ranges.iter().any(|range| {
        let second = binary
            .instruction(range.start)
            .map(|(at, len)| at + u64::from(len));
        range.start == address || second == Some(address)
    });
    let is_return = |at| binary.transfer(at) == Some(Transfer::Return);
    let next = binary.instruction(address).map(|(at, len)| at + u64::from(len));
    is_start || is_return(address) || next.is_some_and(is_return)
}

/// The state of a thread before the branches that were undone.
struct Unwinder<'a, B> {
    binary: &'a B,
    /// The outermost frame first. The last one is the current address.
    stack: Vec<Option<Svma>>,
    /// Whether branches are missing, and the call chain no longer holds.
    is_lost: bool,
}

impl<B: Binary> Unwinder<'_, B> {
    fn set_leaf(&mut self, address: Option<Svma>) {
        match self.stack.last_mut() {
            Some(leaf) => *leaf = address,
            None => self.stack.push(address),
        }
    }

    /// Returns the calls that led to the current address.
    fn calls(&self) -> Vec<Svma> {
        let callers = self.stack.split_last().map_or(&[][..], |(_, callers)| callers);
        let start = callers.iter().rposition(Option::is_none).map_or(0, |at| at + 1);
        callers.iter().skip(start).copied().flatten().collect()
    }

    /// Returns the straight code from the target of a branch to the current address.
    fn straight(&mut self, target: Option<Svma>) -> Option<CodeRange> {
        let end = self.stack.last().copied().flatten();
        let (first, last) = match (target, end) {
            // Code of another binary.
            (None, None) => return None,
            (Some(first), Some(last)) => (first, last),
            _ => {
                self.is_lost = true;
                return None;
            }
        };
        let range = CodeRange { first, last };
        if first > last || self.binary.is_interrupted(range) {
            self.is_lost = true;
            return None;
        }
        self.set_leaf(target);
        Some(range)
    }

    /// Goes back to before a branch.
    fn undo(&mut self, branch: Branch) {
        if self.is_lost {
            self.stack.clear();
            self.stack.push(branch.from);
            return;
        }
        let transfer = branch.from.and_then(|from| self.binary.transfer(from));
        let returned_to = branch.to.and_then(|to| call_before(to, self.binary));
        let is_from_outside = branch.from.is_none();
        let is_call = transfer == Some(Transfer::Call) || is_from_outside && returned_to.is_none();
        let is_return = transfer == Some(Transfer::Return) || is_from_outside && returned_to.is_some();
        if is_call {
            let caller = self.stack.len().checked_sub(2).and_then(|at| self.stack.get(at));
            match caller == Some(&branch.from) {
                true => drop(self.stack.pop()),
                false => self.set_leaf(branch.from),
            }
        } else if is_return {
            self.set_leaf(returned_to);
            if self.stack.len() < MAX_FRAMES {
                self.stack.push(branch.from);
            } else {
                self.is_lost = true;
            }
        } else {
            self.set_leaf(branch.from);
        }
    }
}
