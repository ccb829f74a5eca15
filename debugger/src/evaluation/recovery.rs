//! Recovers values before the crash from the executed code, each with its origin.
//!
//! A register is known in three cases. The last instruction that wrote it computed it from the code
//! alone: a constant, an address, read-only memory, or known registers. Or a conditional branch
//! after a comparison, an indirect branch, `PTWRITE` or a heap event reveals it. Or nothing changed
//! it until the crash. Calls that preserve a register are passed over. A register that the kernel
//! or a signal may have changed is unknown. Of memory, only memory that the program cannot write is
//! known.

mod calls;
mod code;
mod constants;
mod epilogue;
mod operation;
mod part;
mod registers;

use crate::heap;
use crate::session::{Process, Session, Thread};
use crate::stack::unwound;
use crate::unwind::by_number;
use backtrail_decoder::Forest;
use backtrail_pt::Avma;
use backtrail_symbolizer::Unknown;
use backtrail_values::ValueSource;
use calls::PreservingCalls;
use constants::Constants;
use part::RegisterPart;
use registers::Registers;
use std::cell::RefCell;

/// The reason why a value before the crash is unknown.
const BEFORE: Unknown = Unknown::Borrowed(super::BEFORE);

/// The position of a frame in the history.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FramePosition {
    /// The next instruction of the frame, or its call; `None` if the history does not have it.
    pub at: Option<u64>,
    /// Whether the frame has called another function, so that registers that calls do not preserve
    /// have changed.
    pub has_called: bool,
    /// The first instruction of its function's call, if history has that.
    pub entry: Option<u64>,
}

impl FramePosition {
    /// The limit of instructions that are searched backward.
    pub const REACH: u64 = registers::BACK * registers::MAX_DEPTH as u64;
}

/// A source that recovers values from the executed code.
pub(super) struct RecoveredSource<'a> {
    registers: RefCell<Registers<'a>>,
    moment: FramePosition,
    origins: RefCell<Vec<String>>,
}

impl<'a> RecoveredSource<'a> {
    /// Returns the source of a frame of a thread.
    pub fn new(
        session: &'a Session,
        process: &'a Process,
        thread: &'a Thread,
        forest: &'a Forest,
        moment: FramePosition,
    ) -> Self {
        let constants = Constants::new(session, process);
        let at_end = at_end(session, thread);
        let unwound = at_end.and_then(|_| unwound(session, thread));
        let frames = unwound.map_or(&[][..], |unwound| &unwound.frames);
        let registers = Registers::new(
            process,
            thread,
            PreservingCalls::new(process, thread, forest, frames),
            constants,
            at_end,
            heap::has_events(session),
        );
        Self {
            registers: RefCell::new(registers),
            moment,
            origins: RefCell::default(),
        }
    }

    fn known_at(&self, part: RegisterPart, index: u64, when: &str) -> Option<u64> {
        let (value, by) = self.registers.borrow_mut().known(part, index)?;
        self.originates(format!("{part} is {value:#x}: {when}{by}"));
        Some(value)
    }

    fn originates(&self, origin: String) {
        let mut origins = self.origins.borrow_mut();
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
}

/// Fills `out` with memory that the program cannot write. `None`: it is not all of that kind.
pub(super) fn read_constant(session: &Session, process: &Process, at: Avma, out: &mut [u8]) -> Option<()> {
    Constants::new(session, process).read(at, out).map(|_| ())
}

/// Returns the registers of a thread in the core, if it is at the end of its history.
fn at_end(session: &Session, thread: &Thread) -> Option<[u64; 16]> {
    let registers = session.end_registers(thread.tid)?;
    let end = thread.history.pc(thread.history.len())?;
    (registers.pc() == end).then(|| by_number(registers))
}

impl ValueSource for RecoveredSource<'_> {
    fn register(&self, register: u16) -> Result<u64, Unknown> {
        self.low(register, 8)
    }

    fn low(&self, register: u16, size: usize) -> Result<u64, Unknown> {
        let whole = RegisterPart::of_dwarf(register).ok_or(BEFORE)?;
        let at = self.moment.at.ok_or(BEFORE)?;
        if self.moment.has_called && !whole.is_preserved() {
            return Err(BEFORE);
        }
        let bits = match size {
            1 => 8,
            2 => 16,
            3 | 4 => 32,
            _ => 64,
        };
        self.known_at(RegisterPart { bits, ..whole }, at, "")
            .ok_or(BEFORE)
    }

    fn vector(&self, _number: u16) -> Result<[u8; 16], Unknown> {
        Err(BEFORE)
    }

    fn special(&self, _name: &str) -> Result<u64, Unknown> {
        Err(BEFORE)
    }

    fn memory(&self, at: u64, out: &mut [u8]) -> Result<(), Unknown> {
        let registers = self.registers.borrow();
        let module = registers.constants().read(Avma(at), out).ok_or(BEFORE)?;
        self.originates(format!("it points to read-only memory of {module}"));
        Ok(())
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        Err(BEFORE)
    }

    fn thread_pointer(&self) -> Result<(u64, Option<Avma>), Unknown> {
        Err(BEFORE)
    }

    fn entry_value(&self, register: u16) -> Result<u64, Unknown> {
        let part = RegisterPart::of_dwarf(register).ok_or(BEFORE)?;
        let entry = self.moment.entry.ok_or(BEFORE)?;
        self.known_at(part, entry, "when the function was called, ")
            .ok_or(BEFORE)
    }

    fn origins(&self) -> Vec<String> {
        self.origins.take()
    }
}
