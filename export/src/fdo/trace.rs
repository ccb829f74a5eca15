//! Branches of a binary in a trace.

use super::FdoBinary;
use super::call_stack::{CallStack, ContextIdx};
use crate::Result;
use backtrail_debugger::{
    Session,
    session::{Process, Thread},
};
use backtrail_decoder::{Instruction, MarkKind, Resumed, Stage, Version, Watch};
use backtrail_profile::fdo::{Binary, Branch, BranchProfile, CodeRange, ContextProfile};
use backtrail_pt::{Avma, Cofi, Svma};
use backtrail_symbolizer::Module;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::path::Path;

/// The number of instructions between two progress reports.
const REPORT_EVERY: u64 = 1 << 20;

/// Counts the branches of a binary in all threads of a trace. The binary is the module with its
/// build id. Without a build id, the name of the module decides.
///
/// A trace has every branch, so the counts are exact. It does not say which branches were
/// mispredicted.
///
/// # Errors
///
/// If it is canceled.
pub fn branches_of_session(
    session: &Session,
    binary: &FdoBinary,
    watch: &Watch<'_>,
) -> Result<BranchProfile> {
    let mut profile = BranchProfile::default();
    for thread in session.threads() {
        if let Some(process) = session.process(thread) {
            ThreadBranches::new(thread, process, binary, None)
                .count(watch)?
                .add_to(&mut profile);
        }
    }
    Ok(profile)
}

/// Counts the branches of a binary in all threads of a trace, for each calling context. The
/// contexts are exact from where the trace saw the calls.
///
/// # Errors
///
/// If it is canceled.
pub fn contexts_of_session(
    session: &Session,
    binary: &FdoBinary,
    watch: &Watch<'_>,
) -> Result<ContextProfile> {
    let mut profile = ContextProfile::default();
    for thread in session.threads() {
        if let Some(process) = session.process(thread) {
            ThreadBranches::new(thread, process, binary, Some(CallStack::default()))
                .count(watch)?
                .add_contexts_to(&mut profile);
        }
    }
    Ok(profile)
}

/// The branches of one thread.
struct ThreadBranches<'a> {
    thread: &'a Thread,
    process: &'a Process,
    binary: &'a FdoBinary,
    /// The version of the code for which `mapped` holds.
    version: Option<Version>,
    /// The mappings of the binary.
    mapped: Vec<(Range<Avma>, u64)>,
    /// The calls that led to the current instruction, if contexts are asked for.
    stack: Option<CallStack>,
    branches: FxHashMap<(ContextIdx, Option<Svma>, Option<Svma>), u64>,
    ranges: FxHashMap<(ContextIdx, Svma, Svma), u64>,
}

impl<'a> ThreadBranches<'a> {
    fn new(
        thread: &'a Thread,
        process: &'a Process,
        binary: &'a FdoBinary,
        stack: Option<CallStack>,
    ) -> Self {
        Self {
            thread,
            process,
            binary,
            version: None,
            mapped: Vec::new(),
            stack,
            branches: FxHashMap::default(),
            ranges: FxHashMap::default(),
        }
    }

    fn count(mut self, watch: &Watch<'_>) -> Result<Self> {
        let history = &self.thread.history;
        let total = history.len();
        let mut marks = history.marks().iter().peekable();
        // The instruction before, and where its straight code began.
        let mut before: Option<(Instruction, Avma)> = None;
        for (index, instruction) in (0..).zip(history.walk(0)) {
            if index % REPORT_EVERY == 0 {
                watch.report(Stage::Branches, index, total)?;
            }
            let mut arrival = Some(instruction.pc);
            let mut is_first = true;
            let mut has_gap = false;
            while let Some(mark) = marks.next_if(|mark| mark.index <= index) {
                if std::mem::take(&mut is_first) {
                    arrival = arrival_by(&mark.kind, instruction.pc);
                }
                has_gap |= matches!(mark.kind, MarkKind::Gap(_));
            }
            let start = match before {
                None => instruction.pc,
                Some((last, start)) => {
                    let goes_on = arrival == Some(instruction.pc) && instruction.pc == last.next();
                    match goes_on && !is_taken_to(&last, last.next()) {
                        true => start,
                        false => {
                            self.use_version(history.version(index));
                            self.close(start, &last, arrival);
                            self.follow(&last, arrival, instruction.pc, has_gap);
                            instruction.pc
                        }
                    }
                }
            };
            before = Some((instruction, start));
        }
        if let Some((last, start)) = before {
            self.use_version(history.version(total));
            self.close(start, &last, None);
        }
        Ok(self)
    }

    /// Ends straight code, by a branch if the instruction is one and its target is known.
    fn close(&mut self, start: Avma, last: &Instruction, arrival: Option<Avma>) {
        let (first, from) = (self.stated(start), self.stated(last.pc));
        let context = self.stack.as_ref().map(CallStack::current).unwrap_or_default();
        if let Some((first, last)) = first.zip(from) {
            *self.ranges.entry((context, first, last)).or_default() += 1;
        }
        if let Some(target) = arrival.filter(|target| is_taken_to(last, *target)) {
            let to = self.stated(target);
            if from.is_some() || to.is_some() {
                *self.branches.entry((context, from, to)).or_default() += 1;
            }
        }
    }

    /// Follows the call stack from an instruction to where it arrived, and on to the next one.
    fn follow(&mut self, last: &Instruction, arrival: Option<Avma>, next: Avma, has_gap: bool) {
        let Some(mut stack) = self.stack.take() else {
            return;
        };
        // An instruction of a stub of the PLT is none of the compiler's.
        let code = |at: Avma| self.stated(at).filter(|at| self.binary.transfer(*at).is_some());
        if let Some(target) = arrival.filter(|target| is_taken_to(last, *target)) {
            let (from, to) = (code(last.pc), code(target));
            match last.cofi {
                Cofi::Call { .. } | Cofi::IndirectCall => stack.call(from, last.next()),
                Cofi::Return => stack.return_to(target, to, self.binary),
                Cofi::IndirectJump if from.is_none() && self.is_within_function(to) => {
                    stack.unwind_to(to, self.binary);
                }
                _ => {}
            }
        }
        if has_gap {
            stack.clear();
        } else if arrival != Some(next) && next != last.pc && next != last.next() {
            stack.divert(arrival.unwrap_or(last.next()), next);
        }
        self.stack = Some(stack);
    }

    fn is_within_function(&self, at: Option<Svma>) -> bool {
        let start = at.and_then(|at| self.binary.function_ranges(at).first().map(|range| range.start));
        start.is_some() && start != at
    }

    /// Finds the mappings of the binary in a version of the code.
    fn use_version(&mut self, version: Version) {
        if self.version == Some(version) {
            return;
        }
        self.version = Some(version);
        let modules = self.process.symbols_at(version).modules().iter();
        let ours = modules.filter(|module| is_of(module, self.binary));
        self.mapped = ours.map(|module| (module.range.clone(), module.bias)).collect();
    }

    /// Returns the address in the binary, if it is there.
    fn stated(&self, at: Avma) -> Option<Svma> {
        let mut mapped = self.mapped.iter();
        let (_, bias) = mapped.find(|(range, _)| range.contains(&at))?;
        Some(at.to_svma(*bias))
    }

    fn add_to(self, profile: &mut BranchProfile) {
        for ((_, from, to), count) in self.branches {
            profile.add_branch(Branch { from, to }, count, 0);
        }
        for ((_, first, last), count) in self.ranges {
            profile.add_range(CodeRange { first, last }, count);
        }
    }

    fn add_contexts_to(self, profile: &mut ContextProfile) {
        let stack = self.stack.unwrap_or_default();
        let code = |at: &Svma| self.binary.transfer(*at).is_some();
        for ((context, from, to), count) in self.branches {
            let (from, to) = (from.filter(code), to.filter(code));
            if to.is_some() {
                let calls = from.map_or_else(Vec::new, |_| stack.calls(context));
                profile.context(&calls).add_branch(Branch { from, to }, count, 0);
            }
        }
        for ((context, first, last), count) in self.ranges {
            if code(&first) && code(&last) {
                let range = CodeRange { first, last };
                profile.context(&stack.calls(context)).add_range(range, count);
            }
        }
    }
}

/// Returns where the flow went before it was diverted. `None`: unknown.
fn arrival_by(mark: &MarkKind, next: Avma) -> Option<Avma> {
    match mark {
        MarkKind::Interrupted { from, .. } => Some(*from),
        MarkKind::Descheduled { .. } | MarkKind::Ptwrite(_) => Some(next),
        MarkKind::LeftUser {
            resumed: Resumed::After,
            ..
        } => Some(next),
        _ => None,
    }
}

/// Returns whether the instruction branches when it goes to this address.
fn is_taken_to(instruction: &Instruction, target: Avma) -> bool {
    match instruction.cofi {
        Cofi::Conditional { target: taken } => target == taken && target != instruction.next(),
        Cofi::Jump { target: direct } | Cofi::Call { target: direct } => target == direct,
        Cofi::IndirectJump | Cofi::IndirectCall | Cofi::Return => true,
        _ => false,
    }
}

/// Returns whether a module is the binary.
fn is_of(module: &Module, binary: &FdoBinary) -> bool {
    let found = module.file.as_ref().and_then(|file| file.build_id());
    match (binary.build_id(), found) {
        (Some(wanted), Some(found)) => wanted == found,
        (Some(_), None) => false,
        (None, _) => Path::new(&*module.name).file_name() == Some(binary.name().as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_taken_branches_are_branches() {
        let at = |cofi| Instruction {
            pc: Avma(0x10),
            len: 2,
            cofi,
        };
        let conditional = at(Cofi::Conditional { target: Avma(0x40) });
        assert!(is_taken_to(&conditional, Avma(0x40)));
        assert!(!is_taken_to(&conditional, Avma(0x12)));
        // A signal after the branch did not go on.
        assert!(!is_taken_to(&conditional, Avma(0x99)));
        assert!(is_taken_to(&at(Cofi::Return), Avma(0x99)));
        assert!(!is_taken_to(&at(Cofi::Sequential), Avma(0x12)));
        // A call of the next instruction is taken.
        assert!(is_taken_to(&at(Cofi::Call { target: Avma(0x12) }), Avma(0x12)));
    }
}
