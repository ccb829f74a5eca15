//! Reads registers and memory of a frame at a past position, as they were recorded.

use super::recovery::{FramePosition, RecoveredSource};
use super::shared_memory::SharedMemory;
use super::thread_path::ThreadPath;
use crate::replay::ThreadReplay;
use crate::session::{Process, Session, Thread};
use crate::unwind::Memory;
use backtrail_decoder::Watch;
use backtrail_pt::Avma;
use backtrail_semantics::{State, flag};
use backtrail_symbolizer::{CfaRule, Unknown};
use backtrail_values::ValueSource;

/// The numbers of registers in instructions, by their DWARF numbers (System V ABI AMD64, section
/// 3.6.2).
const BY_DWARF: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// Returns the number in instructions of a general register by its DWARF number.
pub(super) fn by_dwarf(number: u16) -> Option<u8> {
    let number = BY_DWARF.get(usize::from(number))?;
    u8::try_from(*number).ok()
}

/// A source of recorded values. Where none were recorded, values are recovered from the code.
pub(super) struct ExactSource<'a> {
    session: &'a Session,
    process: &'a Process,
    thread: &'a Thread,
    replay: &'a ThreadReplay,
    recovered: RecoveredSource<'a>,
    moment: FramePosition,
    /// The selected position, at which memory is read.
    now: u64,
    watch: &'a Watch<'a>,
}

impl<'a> ExactSource<'a> {
    /// Returns the source of a frame of a thread.
    pub fn new(
        session: &'a Session,
        (process, thread): (&'a Process, &'a Thread),
        replay: &'a ThreadReplay,
        recovered: RecoveredSource<'a>,
        moment: FramePosition,
        now: u64,
        watch: &'a Watch<'a>,
    ) -> Self {
        Self {
            session,
            process,
            thread,
            replay,
            recovered,
            moment,
            now,
            watch,
        }
    }

    fn path(&self) -> ThreadPath<'a> {
        ThreadPath::new(self.process, self.thread)
    }

    /// Returns the registers of the frame.
    fn state(&self, index: Option<u64>) -> Result<State, Unknown> {
        let index = index.ok_or("the history does not have the frame")?;
        self.replay
            .state_at(&self.path(), index, self.watch)
            .map_err(|gap| gap.reason(&self.path()))
    }

    fn core(&self) -> Option<Memory<'a>> {
        let core = self.session.core()?;
        Some(Memory::new(core, &self.process.image))
    }
}

impl ValueSource for ExactSource<'_> {
    fn register(&self, register: u16) -> Result<u64, Unknown> {
        self.low(register, 8)
    }

    fn low(&self, register: u16, size: usize) -> Result<u64, Unknown> {
        let number = BY_DWARF.get(usize::from(register));
        match (number, self.state(self.moment.at)) {
            (Some(&number), Ok(state)) => Ok(state.general[number]),
            (Some(_), Err(why)) => self.recovered.low(register, size).map_err(|_| why),
            (None, _) => self.recovered.low(register, size),
        }
    }

    fn vector(&self, number: u16) -> Result<[u8; 16], Unknown> {
        let state = self.state(self.moment.at)?;
        let vector = state
            .vectors
            .get(usize::from(number))
            .ok_or("there is no such register")?;
        vector
            .first_chunk()
            .copied()
            .ok_or_else(|| "there is no such register".into())
    }

    fn special(&self, name: &str) -> Result<u64, Unknown> {
        let state = self.state(self.moment.at)?;
        match name {
            "fs_base" => Ok(state.bases[0]),
            "gs_base" => Ok(state.bases[1]),
            // Interrupts are enabled, and one bit is always one.
            "eflags" if state.undefined & flag::STATUS == 0 => Ok(state.flags | 0x202),
            "eflags" => Err("a flag is one that the manual leaves undefined".into()),
            _ => Err("it was not recorded".into()),
        }
    }

    fn memory(&self, at: u64, out: &mut [u8]) -> Result<(), Unknown> {
        if self.recovered.memory(at, out).is_ok() {
            return Ok(());
        }
        let memory = SharedMemory {
            session: self.session,
            process: self.process,
            thread: self.thread,
            index: self.now,
            watch: self.watch,
        };
        memory.read(at, out)
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        let state = self.state(self.moment.at)?;
        let index = self.moment.at.unwrap_or_default();
        let pc = self.thread.history.pc(index).ok_or("the position is unknown")?;
        let version = self.thread.history.version(index);
        let symbols = self.process.symbols_at(version);
        let function = symbols.function_at(pc);
        let is_early = |function| (Avma(0)..symbols.after_prologue(function)).contains(&pc);
        if function.as_ref().is_some_and(is_early) {
            return Err("the function has not set up its frame yet".into());
        }
        let row = symbols.unwind_row(pc);
        let row = row.ok_or("there is no call frame information here")?;
        match row.cfa {
            CfaRule::Register { register, offset } => {
                let number = BY_DWARF
                    .get(usize::from(register))
                    .ok_or("the rule is malformed")?;
                Ok(state.general[*number].wrapping_add_signed(offset))
            }
            CfaRule::Expression(_) => Err("the frame's address is an expression".into()),
        }
    }

    fn thread_pointer(&self) -> Result<(u64, Option<Avma>), Unknown> {
        let entry = self.core().and_then(|core| core.program_entry());
        Ok((self.state(self.moment.at)?.bases[0], entry))
    }

    fn entry_value(&self, register: u16) -> Result<u64, Unknown> {
        let number = BY_DWARF.get(usize::from(register));
        match (number, self.state(self.moment.entry)) {
            (Some(&number), Ok(state)) => Ok(state.general[number]),
            _ => self.recovered.entry_value(register),
        }
    }

    fn origins(&self) -> Vec<String> {
        self.recovered.origins()
    }
}
