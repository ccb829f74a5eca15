//! Reads registers and memory of a frame from the core.

use crate::session::{Session, Thread};
use crate::unwind::{Memory, PhysicalFrame};
use backtrail_bundle::core::CoreThread;
use backtrail_pt::Avma;
use backtrail_symbolizer::{CallSite, FrameState, Symbolizer, Unknown};
use backtrail_values::ValueSource;

/// Entry values that depend on callers' entry values are followed this far.
const MAX_CALLERS: usize = 8;

/// A source that reads a core: memory at the crash, the registers of the innermost frame, and the
/// callers' registers by call frame information.
pub(super) struct CoreSource<'a> {
    memory: Memory<'a>,
    symbols: &'a Symbolizer,
    thread: &'a CoreThread,
    /// All frames of the thread, and which one it is; if it is none of them, why, and only memory
    /// is known.
    frames: &'a [PhysicalFrame],
    number: Result<usize, Unknown>,
}

impl<'a> CoreSource<'a> {
    /// Returns the source of a frame of a thread; `None` if the core does not have the thread.
    pub fn new(
        session: &'a Session,
        thread: &'a Thread,
        frames: &'a [PhysicalFrame],
        number: Result<usize, Unknown>,
    ) -> Option<Self> {
        let core = session.core()?;
        let process = session.process(thread)?;
        let found = core.thread(thread.tid);
        let only = || core.crashed_thread().filter(|_| session.threads().len() == 1);
        Some(Self {
            memory: Memory::new(core, &process.image),
            symbols: process.symbols_at_end(),
            thread: found.or_else(only)?,
            frames,
            number,
        })
    }

    fn frame(&self) -> Result<&PhysicalFrame, Unknown> {
        self.frames
            .get(self.number.clone()?)
            .ok_or_else(|| "the core does not have the frame".into())
    }

    /// Returns the frame that called this one, for values at the time of the call.
    fn caller(&self, number: usize) -> Option<CallerFrame<'_>> {
        let frame = self.frames.get(number.checked_add(1)?)?;
        let module = self.symbols.module_at(frame.look_up())?;
        Some(CallerFrame {
            source: self,
            number: number + 1,
            frame,
            bias: module.bias,
        })
    }

    fn entry_value_of(&self, number: usize, register: u16, depth: usize) -> Result<u64, Unknown> {
        let not_stated =
            || Unknown::Borrowed("the debug information of the caller does not describe the argument");
        let frame = self.frames.get(number).ok_or_else(not_stated)?;
        if depth > MAX_CALLERS {
            return Err("the argument was passed through too many callers".into());
        }
        // A signal handler was not called.
        if frame.signal_frame || frame.bad_pointer {
            return Err(not_stated());
        }
        let caller = self.caller(number).ok_or_else(not_stated)?;
        if caller.frame.signal_frame {
            return Err(not_stated());
        }
        let module = self.symbols.module_at(caller.frame.pc).ok_or_else(not_stated)?;
        let file = module.file.as_deref().ok_or_else(not_stated)?;
        let site = file
            .call_site(caller.frame.pc.to_svma(module.bias))
            .ok_or_else(not_stated)?;
        if !self.is_of_call(number, &site) {
            return Err("the caller may have called another function, which made a tail call".into());
        }
        let found = site.parameters.iter().find(|(passed, _)| *passed == register);
        let (_, expression) = found.ok_or_else(not_stated)?;
        let state = CallerState {
            caller: &caller,
            depth: depth + 1,
        };
        let pieces = file.evaluate_value(expression, site.frame_base.as_ref(), &state)?;
        match pieces.as_slice() {
            [piece] => match piece.location {
                backtrail_symbolizer::ValueLocation::Value(bytes) => Ok(u64::from_le_bytes(bytes)),
                backtrail_symbolizer::ValueLocation::Register(register) => state.register(register),
                _ => Err(not_stated()),
            },
            _ => Err(not_stated()),
        }
    }

    /// The call of the caller entered the function of frame `number`, and that one did not jump to
    /// it from another.
    fn is_of_call(&self, number: usize, site: &CallSite) -> bool {
        let Some(frame) = self.frames.get(number) else {
            return false;
        };
        let at = frame.look_up();
        let function = self.symbols.function_at(at);
        let named = site.target.as_deref().zip(function.as_ref());
        let same = named.is_some_and(|(target, function)| *target == *function.linkage_name);
        let module = self.symbols.module_at(at);
        let file = module.and_then(|module| Some((module.file.as_deref()?, module.bias)));
        same && file.is_some_and(|(file, bias)| file.makes_no_tail_calls(at.to_svma(bias)))
    }
}

impl ValueSource for CoreSource<'_> {
    fn register(&self, register: u16) -> Result<u64, Unknown> {
        self.frame()?
            .register(register)
            .ok_or_else(|| "the saved register was not found".into())
    }

    fn vector(&self, number: u16) -> Result<[u8; 16], Unknown> {
        // The callee preserves none of them.
        if self.number != Ok(0) {
            return Err("calls do not preserve vector registers".into());
        }
        // In the FXSAVE area, xmm0 is at byte 160 (Intel SDM, volume 1, section 10.5.1).
        let missing = || Unknown::Borrowed("the core does not have the vector registers");
        let start = usize::from(number)
            .checked_mul(16)
            .and_then(|at| at.checked_add(160));
        let bytes = [&self.thread.fpregs, &self.thread.xstate]
            .into_iter()
            .find_map(|area| area.get(start?..)?.first_chunk::<16>())
            .filter(|_| number < 16);
        bytes.copied().ok_or_else(missing)
    }

    fn special(&self, name: &str) -> Result<u64, Unknown> {
        let registers = &self.thread.registers;
        let innermost = self.number == Ok(0);
        match name {
            "fs_base" => Ok(registers.fs_base),
            "gs_base" => Ok(registers.gs_base),
            _ if !innermost => Err("calls do not preserve it".into()),
            "eflags" => Ok(registers.rflags),
            "cs" => Ok(registers.cs),
            "ss" => Ok(registers.ss),
            "ds" => Ok(registers.ds),
            "es" => Ok(registers.es),
            "fs" => Ok(registers.fs),
            "gs" => Ok(registers.gs),
            _ => Err("the core does not have it".into()),
        }
    }

    fn memory(&self, at: u64, out: &mut [u8]) -> Result<(), Unknown> {
        self.memory
            .read(Avma(at), out)
            .ok_or_else(|| format!("the core does not have the memory at {at:#x}").into())
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        let cfa = self.frame()?.cfa;
        cfa.map(|cfa| cfa.0)
            .ok_or_else(|| "the frame's address could not be found".into())
    }

    fn thread_pointer(&self) -> Result<(u64, Option<Avma>), Unknown> {
        Ok((self.thread.registers.fs_base, self.memory.program_entry()))
    }

    fn entry_value(&self, register: u16) -> Result<u64, Unknown> {
        self.entry_value_of(self.number.clone()?, register, 0)
    }
}

struct CallerFrame<'a> {
    source: &'a CoreSource<'a>,
    number: usize,
    frame: &'a PhysicalFrame,
    bias: u64,
}

/// A caller as it was at its call: of its registers, those that a callee preserves are known.
struct CallerState<'a> {
    caller: &'a CallerFrame<'a>,
    depth: usize,
}

impl FrameState for CallerState<'_> {
    fn bias(&self) -> u64 {
        self.caller.bias
    }

    fn register(&self, register: u16) -> Result<u64, Unknown> {
        self.caller
            .frame
            .register(register)
            .ok_or_else(|| "the caller's register was not saved".into())
    }

    fn memory(&self, _address: u64, _out: &mut [u8]) -> Result<(), Unknown> {
        Err("the argument came from memory, which may have changed since the call".into())
    }

    fn cfa(&self) -> Result<u64, Unknown> {
        let cfa = self.caller.frame.cfa;
        cfa.map(|cfa| cfa.0)
            .ok_or_else(|| "the caller's frame could not be found".into())
    }

    fn thread_local(&self, _offset: u64) -> Result<u64, Unknown> {
        Err("the argument is the address of thread-local data".into())
    }

    fn entry_value(&self, register: u16) -> Result<u64, Unknown> {
        self.caller
            .source
            .entry_value_of(self.caller.number, register, self.depth)
    }
}
