//! Executed instructions, decoded once each.

use super::part::RegisterPart;
use crate::session::{Process, Thread};
use backtrail_decoder::Version;
use backtrail_pt::Avma;
use iced_x86::{Instruction, InstructionInfoFactory, OpAccess};
use rustc_hash::FxHashMap;

/// No more are kept.
const MAX_KEPT: usize = 1 << 16;

/// The code that a thread executed.
pub(super) struct ExecutedCode<'a> {
    process: &'a Process,
    thread: &'a Thread,
    info: InstructionInfoFactory,
    kept: FxHashMap<(Avma, Version), Option<ExecutedInstruction>>,
}

/// An instruction and which registers it may change.
#[derive(Clone, Copy)]
pub(super) struct ExecutedInstruction {
    pub instruction: Instruction,
    writes: u16,
}

impl ExecutedInstruction {
    /// Returns whether an instruction may change a register or a part of it.
    pub fn writes(&self, part: RegisterPart) -> bool {
        self.writes & part.bit() != 0
    }
}

impl<'a> ExecutedCode<'a> {
    pub fn new(process: &'a Process, thread: &'a Thread) -> Self {
        Self {
            process,
            thread,
            info: InstructionInfoFactory::new(),
            kept: FxHashMap::default(),
        }
    }

    /// The instruction that was executed as number `index`; `None`: its bytes are not known.
    pub fn at(&mut self, index: u64, pc: Avma, len: u8) -> Option<ExecutedInstruction> {
        let version = self.thread.history.version(index);
        if let Some(step) = self.kept.get(&(pc, version)) {
            return *step;
        }
        let step = self.decode(version, pc, len);
        if self.kept.len() >= MAX_KEPT {
            self.kept.clear();
        }
        self.kept.insert((pc, version), step);
        step
    }

    fn decode(&mut self, version: Version, pc: Avma, len: u8) -> Option<ExecutedInstruction> {
        let instruction = self.process.decoded_at(version, pc, len)?;
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            )
        };
        let used = self.info.info(&instruction).used_registers().iter();
        let written = used.filter(|used| writes(used.access()));
        let bits = written.map(|used| {
            let register = used.register().full_register();
            RegisterPart::named(register).map_or(0, RegisterPart::bit)
        });
        Some(ExecutedInstruction {
            instruction,
            writes: bits.fold(0, |all, bit| all | bit),
        })
    }
}
