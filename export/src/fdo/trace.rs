//! Branches of a binary in a trace.

use super::FdoBinary;
use crate::Result;
use backtrail_debugger::{
    Session,
    session::{Process, Thread},
};
use backtrail_decoder::{Instruction, MarkKind, Resumed, Stage, Version, Watch};
use backtrail_profile::fdo::{Branch, BranchProfile, CodeRange};
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
            ThreadBranches::new(thread, process, binary)
                .count(watch)?
                .add_to(&mut profile);
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
    branches: FxHashMap<(Option<Svma>, Option<Svma>), u64>,
    ranges: FxHashMap<(Svma, Svma), u64>,
}

impl<'a> ThreadBranches<'a> {
    fn new(thread: &'a Thread, process: &'a Process, binary: &'a FdoBinary) -> Self {
        Self {
            thread,
            process,
            binary,
            version: None,
            mapped: Vec::new(),
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
            while let Some(mark) = marks.next_if(|mark| mark.index <= index) {
                if std::mem::take(&mut is_first) {
                    arrival = arrival_by(&mark.kind, instruction.pc);
                }
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
        if let Some(range) = first.zip(from) {
            *self.ranges.entry(range).or_default() += 1;
        }
        if let Some(target) = arrival.filter(|target| is_taken_to(last, *target)) {
            let to = self.stated(target);
            if from.is_some() || to.is_some() {
                *self.branches.entry((from, to)).or_default() += 1;
            }
        }
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
        for ((from, to), count) in self.branches {
            profile.add_branch(Branch { from, to }, count, 0);
        }
        for ((first, last), count) in self.ranges {
            profile.add_range(CodeRange { first, last }, count);
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
