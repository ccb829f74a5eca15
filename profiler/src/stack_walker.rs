//! Turns a sample of the kernel into frames.

use crate::address::{CodeBranch, CodeFrame};
use crate::kernel_walker::WalkerTables;
use crate::modules::{ModuleKind, Modules};
use crate::python::PythonCode;
use crate::tasks::Tasks;
use crate::unwind::{CodeAddress, CodeAt, Registers, StackBytes, StackEnd, unwind};
use crate::walked_sample::WalkedSample;
use backtrail_bpf::{MODULE_SHIFT, PYTHON_MODULE, sample_end};
use backtrail_perf::sample::{CONTEXT_MAX, Sample, UserState};
use backtrail_pt::Pid;

/// Buffers of walks, and how many stacks of programs were complete.
#[derive(Debug, Default)]
pub(crate) struct StackWalker {
    addresses: Vec<CodeAddress>,
    /// The number of stacks of programs.
    pub stacks: u64,
    /// The number of those that do not reach the start of the thread.
    pub incomplete: u64,
    /// The number of those that were walked when the sample was taken.
    pub walked: u64,
}

impl StackWalker {
    /// Returns the frames of a sample, the innermost first. A stack that is not complete ends with
    /// [`CodeFrame::Lost`].
    pub fn walk(&mut self, sample: &Sample, tasks: &Tasks, modules: &mut Modules) -> Vec<CodeFrame> {
        let mut frames = Vec::new();
        let kernel = sample.chain.iter().filter(|entry| entry.is_kernel);
        for (depth, entry) in kernel.enumerate() {
            let address = CodeAddress {
                pc: entry.address,
                is_return: depth > 0,
            };
            frames.push(frame(tasks, modules, None, address));
        }
        let Some((pid, user)) = sample.pid.zip(sample.user.as_ref()) else {
            if let (true, Some(ip)) = (frames.is_empty(), sample.ip) {
                let is_kernel = ip.cast_signed() < 0;
                let pid = sample.pid.filter(|_| !is_kernel);
                let address = CodeAddress {
                    pc: ip,
                    is_return: false,
                };
                frames.push(frame(tasks, modules, pid, address));
            }
            return frames;
        };
        self.addresses.clear();
        let end = self.walk_user(pid, user, tasks, modules);
        for address in &self.addresses {
            frames.push(frame(tasks, modules, Some(pid), *address));
        }
        self.stacks += 1;
        if end != StackEnd::Complete {
            self.incomplete += 1;
            frames.push(CodeFrame::Lost);
        }
        frames
    }

    /// Returns the last branches of a sample, the newest first.
    pub fn branches(sample: &Sample, tasks: &Tasks, modules: &Modules) -> Vec<CodeBranch> {
        let code = |pc: u64| {
            let pid = sample.pid.filter(|_| pc.cast_signed() >= 0);
            let is_return = false;
            frame(tasks, modules, pid, CodeAddress { pc, is_return })
        };
        let branches = sample.branches.iter().map(|branch| CodeBranch {
            from: code(branch.from),
            to: code(branch.to),
            is_mispredicted: branch.is_mispredicted,
        });
        branches.collect()
    }

    /// Returns the frames of a sample whose stack an eBPF program has walked.
    pub fn frames(
        &mut self,
        walked: &WalkedSample,
        tasks: &Tasks,
        modules: &Modules,
        python: &mut PythonCode,
    ) -> Vec<CodeFrame> {
        let mut frames = Vec::new();
        let stack = &walked.stack;
        // Some kernels write marks between addresses, as in call chains.
        let kernel = stack.kernel.iter().filter(|address| **address < CONTEXT_MAX);
        for (depth, address) in kernel.enumerate() {
            let address = CodeAddress {
                pc: *address,
                is_return: depth > 0,
            };
            frames.push(frame(tasks, modules, None, address));
        }
        let Some(pid) = walked
            .sample
            .pid
            .filter(|_| stack.head.end != sample_end::NO_USER)
        else {
            return frames;
        };
        let mut is_complete = stack.head.end == sample_end::COMPLETE;
        let mut words = stack.user.iter();
        while let Some(word) = words.next() {
            let (module, pc) = (word >> MODULE_SHIFT, word & ((1 << MODULE_SHIFT) - 1));
            if module == PYTHON_MODULE {
                let state = words.next().copied().unwrap_or(0);
                frames.push(CodeFrame::Python(python.frame(pid, pc, state)));
                continue;
            }
            let found = tasks.find(Some(pid), pc);
            let number = found.map(|found| WalkerTables::number(found.module, modules.kind(found.module)));
            // The mappings have changed since the program got them, so that the rest may be wrong.
            if number.map(u64::from) != Some(module) {
                is_complete = false;
                break;
            }
            let is_return = false;
            frames.push(frame(tasks, modules, Some(pid), CodeAddress { pc, is_return }));
        }
        self.stacks += 1;
        self.walked += 1;
        if !is_complete {
            self.incomplete += 1;
            frames.push(CodeFrame::Lost);
        }
        frames
    }

    fn walk_user(&mut self, pid: Pid, user: &UserState, tasks: &Tasks, modules: &mut Modules) -> StackEnd {
        let [bp, sp, pc] = *user.registers else {
            return StackEnd::Invalid;
        };
        if user.is_32_bit {
            self.addresses.push(CodeAddress { pc, is_return: false });
            return StackEnd::NoTable;
        }
        let stack = StackBytes {
            start: sp,
            bytes: &user.stack,
        };
        let code_at = |address| {
            let Some(found) = tasks.find(Some(pid), address) else {
                return CodeAt::Unmapped;
            };
            match modules.table(found.module) {
                Some(table) => CodeAt::Rule(table.rule(found.offset.0)),
                None => CodeAt::NoTable,
            }
        };
        unwind(Registers { pc, sp, bp }, stack, code_at, &mut self.addresses)
    }
}

fn frame(tasks: &Tasks, modules: &Modules, pid: Option<Pid>, address: CodeAddress) -> CodeFrame {
    let at = address.inside();
    match tasks.find(pid, at) {
        Some(found) if modules.kind(found.module) != Some(ModuleKind::Anonymous) => {
            CodeFrame::Module(found.module, found.offset)
        }
        _ => CodeFrame::Address(at),
    }
}
