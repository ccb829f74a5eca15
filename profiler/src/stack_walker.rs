//! Turns a sample of the kernel into frames.

use crate::address::CodeFrame;
use crate::modules::{ModuleKind, Modules};
use crate::tasks::Tasks;
use crate::unwind::{CodeAddress, CodeAt, Registers, StackBytes, StackEnd, unwind};
use backtrail_perf::sample::{Sample, UserState};
use backtrail_pt::Pid;

/// Buffers of walks, and how many stacks of programs were complete.
#[derive(Debug, Default)]
pub(crate) struct StackWalker {
    addresses: Vec<CodeAddress>,
    /// The number of stacks of programs.
    pub stacks: u64,
    /// The number of those that do not reach the start of the thread.
    pub incomplete: u64,
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
