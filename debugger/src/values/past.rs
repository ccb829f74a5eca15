//! Values before the crash: registers that the code which ran gives away, each with where it is known from.
//!
//! A register is known when the last instruction that wrote it, before the position, took its value from the code alone (a
//! constant, an address, another register that is known, or a sum of these); and when, unchanged since the position, an
//! indirect branch went where it pointed. Whatever the kernel or a signal may have changed in between is not known.

use super::source::{BEFORE, ValueSource};
use crate::session::{Process, Thread};
use backtrail_decoder::{Mark, MarkKind, Resumed};
use backtrail_pt::{Avma, Cofi};
use backtrail_symbolizer::Unknown;
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::cell::RefCell;

/// Instructions to look at, back from the position and ahead.
const BACK: u64 = 4096;
const AHEAD: u64 = 256;
/// A value is followed through so many others.
const MAX_DEPTH: u32 = 16;

/// General registers by their DWARF numbers (System V ABI AMD64, section 3.6.2).
const REGISTERS: [Register; 16] = [
    Register::RAX,
    Register::RDX,
    Register::RCX,
    Register::RBX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// What is meant of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// Before this instruction: where the frame stands, or its call. `None`: history does not have it.
    pub at: Option<u64>,
    /// It has called: what calls do not preserve is not as it was.
    pub has_called: bool,
    /// The first instruction of its function's call, if history has that.
    pub entry: Option<u64>,
}

impl Moment {
    /// No instruction further back is looked at.
    pub const REACH: u64 = BACK * MAX_DEPTH as u64;
}

/// Knows what the code gives away.
pub(super) struct PastSource<'a> {
    process: &'a Process,
    thread: &'a Thread,
    moment: Moment,
    origins: RefCell<Vec<String>>,
}

impl<'a> PastSource<'a> {
    pub fn new(process: &'a Process, thread: &'a Thread, moment: Moment) -> Self {
        Self {
            process,
            thread,
            moment,
            origins: RefCell::default(),
        }
    }

    /// What a register held before an instruction; `when` comes before what that is known from.
    fn known_at(&self, register: Register, index: u64, when: &str) -> Option<u64> {
        let name = format!("{register:?}").to_lowercase();
        let position = |index| self.thread.position(index);
        let (value, origin) = match self.before(register, index, 0) {
            Some((value, by)) => (value, format!("by the code at {}", position(by))),
            None => {
                let (value, by) = self.ahead(register, index, 0)?;
                (value, format!("the branch at {} went there", position(by)))
            }
        };
        let origin = format!("{name} is {value:#x}: {when}{origin}");
        let mut origins = self.origins.borrow_mut();
        if !origins.contains(&origin) {
            origins.push(origin);
        }
        Some(value)
    }

    /// An executed instruction.
    fn decoded(&self, index: u64, pc: Avma, len: u8) -> Option<Instruction> {
        let mut code = [0; 15];
        let code = code.get_mut(..usize::from(len))?;
        let version = self.thread.history.version(index);
        if self.process.read(version, pc, code) < code.len() {
            return None;
        }
        let instruction = Decoder::with_ip(64, code, pc.0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// What the code before an instruction left in a register, and which instruction did.
    fn before(&self, register: Register, index: u64, depth: u32) -> Option<(u64, u64)> {
        let history = &self.thread.history;
        let first = index.saturating_sub(BACK);
        let marks = history.marks_in(first..index.saturating_add(1));
        let mut marks = marks.iter().rev().peekable();
        let mut info = InstructionInfoFactory::new();
        let mut walker = history.walk(index);
        while walker.index() > first && depth < MAX_DEPTH {
            let after = walker.index();
            let executed = walker.prev()?;
            while let Some(mark) = marks.next_if(|mark| mark.index == after) {
                if !self.keeps(mark, executed.cofi, register) {
                    return None;
                }
            }
            let at = walker.index();
            let instruction = self.decoded(at, executed.pc, executed.len)?;
            if writes(&mut info, &instruction, register) {
                let value = self.produced(&instruction, register, at, depth)?;
                return Some((value, at));
            }
        }
        None
    }

    /// A register is behind a mark what it was before it.
    fn keeps(&self, mark: &Mark, before: Cofi, register: Register) -> bool {
        match &mark.kind {
            MarkKind::Descheduled { .. } | MarkKind::Ptwrite(_) => true,
            // An interrupt, and no signal.
            MarkKind::Interrupted { from, .. } => self.thread.history.pc(mark.index) == Some(*from),
            // The kernel gives back all registers but these (System V ABI AMD64, section A.2.1).
            MarkKind::LeftUser { resumed, .. } => {
                *resumed == Resumed::After
                    && before == Cofi::FarTransfer
                    && !matches!(register, Register::RAX | Register::RCX | Register::R11)
            }
            MarkKind::Gap(_) => false,
        }
    }

    /// What an instruction wrote to a register, if the code tells.
    fn produced(&self, instruction: &Instruction, register: Register, index: u64, depth: u32) -> Option<u64> {
        let written = instruction.op0_register();
        if instruction.op0_kind() != OpKind::Register || written.full_register() != register {
            return None;
        }
        let mask = match written.size() {
            8 => u64::MAX,
            4 => u64::from(u32::MAX),
            _ => return None,
        };
        let of = |source: Register| {
            let known = source
                .is_gpr()
                .then(|| self.before(source.full_register(), index, depth + 1));
            Some(known??.0)
        };
        let is_register = instruction.op1_kind() == OpKind::Register;
        let same = is_register && instruction.op1_register() == written;
        let immediate = || instruction.try_immediate(1).ok();
        let value = match instruction.mnemonic() {
            Mnemonic::Mov if is_register => of(instruction.op1_register())?,
            Mnemonic::Mov => immediate()?,
            Mnemonic::Lea => self.address(instruction, of)?,
            Mnemonic::Xor | Mnemonic::Sub if same => 0,
            Mnemonic::Add => of(written)?.wrapping_add(immediate()?),
            Mnemonic::Sub => of(written)?.wrapping_sub(immediate()?),
            _ => return None,
        };
        Some(value & mask)
    }

    /// The address that LEA computes.
    fn address(&self, instruction: &Instruction, of: impl Fn(Register) -> Option<u64>) -> Option<u64> {
        if instruction.is_ip_rel_memory_operand() {
            return Some(instruction.ip_rel_memory_address());
        }
        let part = |register: Register| match register {
            Register::None => Some(0),
            register => of(register),
        };
        let index = part(instruction.memory_index())?.wrapping_mul(instruction.memory_index_scale().into());
        Some(
            part(instruction.memory_base())?
                .wrapping_add(index)
                .wrapping_add(instruction.memory_displacement64()),
        )
    }

    /// Where an indirect branch went through a register that nothing had changed since an instruction, or through a copy of
    /// it; and which branch.
    fn ahead(&self, register: Register, index: u64, depth: u32) -> Option<(u64, u64)> {
        let history = &self.thread.history;
        let end = index.saturating_add(AHEAD).min(history.len());
        let mut marks = history.marks_in(index.saturating_add(1)..end).iter().peekable();
        let mut info = InstructionInfoFactory::new();
        let mut walker = history.walk(index);
        let mut before = None;
        while walker.index() < end && depth < MAX_DEPTH {
            let at = walker.index();
            while let Some(mark) = marks.next_if(|mark| mark.index == at) {
                if !self.keeps(mark, before?, register) {
                    return None;
                }
            }
            let executed = walker.next()?;
            let instruction = self.decoded(at, executed.pc, executed.len)?;
            let branches = matches!(executed.cofi, Cofi::IndirectCall | Cofi::IndirectJump);
            if branches
                && instruction.op0_kind() == OpKind::Register
                && instruction.op0_register() == register
            {
                // A mark behind it may be of a signal, before which it went elsewhere.
                let undisturbed = history.marks_in(at + 1..at + 2).is_empty();
                return Some((history.pc(at + 1).filter(|_| undisturbed)?.0, at));
            }
            let copies = instruction.mnemonic() == Mnemonic::Mov
                && instruction.op1_kind() == OpKind::Register
                && instruction.op1_register() == register
                && instruction.op0_kind() == OpKind::Register;
            if copies && let Some(found) = self.ahead(instruction.op0_register(), at + 1, depth + 1) {
                return Some(found);
            }
            if writes(&mut info, &instruction, register) {
                return None;
            }
            before = Some(executed.cofi);
        }
        None
    }
}

/// An instruction may change a register, or a part of it.
fn writes(info: &mut InstructionInfoFactory, instruction: &Instruction, register: Register) -> bool {
    let used = info.info(instruction).used_registers().iter();
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        )
    };
    let mut used = used.filter(|used| writes(used.access()));
    used.any(|used| used.register().full_register() == register)
}

impl ValueSource for PastSource<'_> {
    fn register(&self, register: u16) -> Result<u64, Unknown> {
        const PRESERVED: [Register; 6] = [
            Register::RBX,
            Register::RBP,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        let register = *REGISTERS.get(usize::from(register)).ok_or(BEFORE)?;
        let at = self.moment.at.ok_or(BEFORE)?;
        if self.moment.has_called && !PRESERVED.contains(&register) {
            return Err(BEFORE);
        }
        self.known_at(register, at, "").ok_or(BEFORE)
    }

    fn vector(&self, _number: u16) -> Result<[u8; 16], Unknown> {
        Err(BEFORE)
    }

    fn special(&self, _name: &str) -> Result<u64, Unknown> {
        Err(BEFORE)
    }

    fn memory(&self, _at: u64, _out: &mut [u8]) -> Result<(), Unknown> {
        Err(BEFORE)
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        Err(BEFORE)
    }

    fn thread_pointer(&self) -> Result<(u64, Option<Avma>), Unknown> {
        Err(BEFORE)
    }

    fn entry_value(&self, register: u16) -> Result<u64, Unknown> {
        let register = *REGISTERS.get(usize::from(register)).ok_or(BEFORE)?;
        let entry = self.moment.entry.ok_or(BEFORE)?;
        self.known_at(register, entry, "when the function was called, ")
            .ok_or(BEFORE)
    }

    fn origins(&self) -> Vec<String> {
        self.origins.take()
    }
}
