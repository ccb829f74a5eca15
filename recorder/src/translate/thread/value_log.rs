//! The values of a translated thread.
//!
//! A segment goes on while all that the thread executes is logged: by translated code, or here for
//! what runs outside the cache. Elsewhere another segment begins when the thread enters the cache.

use super::operands;
use super::{ThreadState, Translated};
use crate::ValueOptions;
use crate::ptrace;
use crate::segment_log::SegmentLog;
use crate::translate::block::TranslationEntry;
use crate::translate::encoder::EncoderPool;
use crate::translate::event::LogEvent;
use crate::translate::layout;
use crate::translate::staged::Unstaged;
use crate::values::reader;
use crate::xstate::XState;
use backtrail_bundle::core::Registers;
use backtrail_bundle::value_log;
use backtrail_semantics::{ENCODED, Effect, LogWriter, Prediction, State};
use iced_x86::{Code, Instruction, Register};

/// The full chunks of control flow after which another segment begins. A loop without loads needs
/// no values.
const CHUNKS: u32 = 1;

/// The value log of a thread.
#[derive(Debug)]
pub(super) struct TranslatedValues {
    xstate: XState,
    log: SegmentLog,
    open: Option<OpenSegment>,
    /// The instruction that is stepped natively.
    step: Option<NativeStep>,
}

/// A segment that goes on.
#[derive(Debug)]
struct OpenSegment {
    /// The registers at its start, and the values but those in the buffer.
    content: Vec<u8>,
    /// The registers with which the thread must continue. `None`: its code or a step goes on.
    expected: Option<Registers>,
    /// The number of chunks of control flow that were filled.
    chunks: u32,
}

/// An instruction that runs outside the cache.
#[derive(Debug)]
struct NativeStep {
    effect: Effect,
    prediction: Prediction,
    before: State,
}

impl TranslatedValues {
    pub(super) fn new(options: ValueOptions) -> Self {
        Self {
            xstate: XState::of_this_processor(),
            log: SegmentLog::new(options.limit),
            open: None,
            step: None,
        }
    }

    fn state(&self, tid: ptrace::RawTid, registers: &Registers) -> Option<State> {
        self.xstate
            .state(registers, &ptrace::register_set(tid, XState::NOTE))
    }

    /// Returns the file of the log.
    pub(super) fn finish(self) -> Vec<u8> {
        self.log.finish()
    }
}

impl Translated {
    /// Continues the segment, or begins another one. The thread is about to enter the cache with
    /// these registers.
    pub(super) fn begin_values(&mut self, registers: &Registers, encoders: &EncoderPool) {
        let Some(values) = &mut self.values else { return };
        values.step = None;
        if let Some(open) = &mut values.open
            && open.chunks < CHUNKS
            && (open.content.len() as u64) < self.region.values_size() + ENCODED as u64
            && open
                .expected
                .take()
                .is_some_and(|expected| is_same(&expected, registers))
        {
            return;
        }
        self.end_values(encoders);
        let Some(values) = &mut self.values else { return };
        let program = Registers {
            gs_base: self.gs_base,
            ..*registers
        };
        let Some(state) = values.state(self.tid, &program) else {
            return;
        };
        let mut content = Vec::new();
        state.encode(&mut content);
        values.open = Some(OpenSegment {
            content,
            expected: None,
            chunks: 0,
        });
        let (ip, value) = (registers.rip, value_log::mark(values.log.number()));
        self.log(LogEvent::Mark { ip, value }, encoders);
    }

    /// Ends the segment, if one is open.
    pub(super) fn end_values(&mut self, encoders: &EncoderPool) {
        let Some(values) = &mut self.values else { return };
        values.step = None;
        let Some(OpenSegment { mut content, .. }) = values.open.take() else {
            return self.region.reset_values();
        };
        self.region.take_values(&mut content);
        match encoders.compressor() {
            Some(compressor) => values.log.push_to(compressor, content),
            None => values.log.push(&content),
        }
    }

    /// Logs the values of a thread that has stopped in the cache, where `entry` is. The thread has
    /// the program's registers from now on.
    pub(super) fn log_staged(
        &mut self,
        entry: &TranslationEntry,
        registers: &Registers,
        encoders: &EncoderPool,
    ) {
        let Some(values) = &mut self.values else { return };
        let Some(open) = &mut values.open else { return };
        self.region.take_values(&mut open.content);
        self.region.read_stage(entry.staged, &mut open.content);
        let is_known = match entry.unstaged {
            Unstaged::Nothing => true,
            Unstaged::SystemCall => {
                push_call_results(&mut open.content, registers, self.gs_base);
                true
            }
            Unstaged::Registers {
                registers: named,
                size,
            } => {
                let state = values
                    .xstate
                    .state(registers, &ptrace::register_set(self.tid, XState::NOTE));
                state.is_some_and(|state| {
                    let mut named = named.iter().filter(|register| **register != Register::None);
                    named.all(|register| push_register(&mut open.content, *register, size, &state))
                })
            }
            Unstaged::Lost => false,
        };
        match is_known {
            true => open.expected = Some(*registers),
            false => self.end_values(encoders),
        }
    }

    /// Returns what the instruction at `ip` is about to load. `None`: its model has no result.
    pub(super) fn predict(&self, ip: u64, registers: &Registers) -> Option<Vec<u8>> {
        let values = self.values.as_ref()?;
        let registers = Registers {
            gs_base: self.gs_base,
            ..*registers
        };
        let state = values.state(self.tid, &registers)?;
        let effect = Effect::of(&operands::decode(self.pid, ip));
        effect.predict(&state, &mut reader(self.pid)).loaded()
    }

    /// Logs what the instruction at `ip` is about to load.
    pub(super) fn log_predicted(&mut self, ip: u64, registers: &Registers, encoders: &EncoderPool) {
        let loaded = self.predict(ip, registers);
        let Some(values) = &mut self.values else { return };
        match (loaded, &mut values.open) {
            (Some(loaded), Some(open)) => {
                self.region.take_values(&mut open.content);
                open.content.extend(loaded);
            }
            _ => self.end_values(encoders),
        }
    }

    /// Prepares for an instruction that runs outside the cache. The thread has the program's
    /// registers.
    pub(super) fn begin_step(&mut self, ip: u64, registers: &Registers) {
        let Some(values) = &mut self.values else { return };
        values.step = None;
        let Some(open) = &mut values.open else { return };
        open.expected = None;
        let Some(before) = values.state(self.tid, registers) else {
            return;
        };
        let effect = Effect::of(&operands::decode(self.pid, ip));
        let prediction = effect.predict(&before, &mut reader(self.pid));
        values.step = Some(NativeStep {
            effect,
            prediction,
            before,
        });
    }

    /// Logs the values of an instruction that has run outside the cache.
    pub(super) fn end_step(&mut self, registers: &Registers, encoders: &EncoderPool) {
        let Some(values) = &mut self.values else { return };
        let step = values.step.take();
        let after = values.state(self.tid, registers);
        let confirmed = step.zip(after).and_then(|(step, after)| {
            let NativeStep {
                effect,
                prediction,
                mut before,
            } = step;
            let mut log = LogWriter::default();
            let read = &mut reader(self.pid);
            let next = effect.confirm(prediction, &mut before, &after, read, &mut log);
            (next == Ok(registers.rip)).then(|| log.take())
        });
        match (confirmed, &mut values.open) {
            (Some(logged), Some(open)) => {
                self.region.take_values(&mut open.content);
                open.content.extend(logged);
                open.expected = Some(*registers);
            }
            _ => self.end_values(encoders),
        }
    }

    /// Logs the results of a system call that the recorder has made for the thread. It continues
    /// with these registers.
    pub(super) fn log_call(&mut self, registers: &Registers) {
        let gs_base = self.gs_base;
        let Some(open) = self.values.as_mut().and_then(|values| values.open.as_mut()) else {
            return;
        };
        self.region.take_values(&mut open.content);
        push_call_results(&mut open.content, registers, gs_base);
        open.expected = Some(*registers);
    }

    /// Gives up a step of an instruction that has not run. The thread has these registers.
    pub(super) fn cancel_step(&mut self, registers: &Registers) {
        let Some(values) = &mut self.values else { return };
        if let (Some(_), Some(open)) = (values.step.take(), &mut values.open) {
            open.expected = Some(*registers);
        }
    }

    /// Notes that a chunk of control flow is full. Returns whether another segment should begin.
    pub(crate) fn ends_values_of_chunk(&mut self) -> bool {
        let Some(open) = self.values.as_mut().and_then(|values| values.open.as_mut()) else {
            return false;
        };
        open.chunks += 1;
        open.chunks >= CHUNKS
    }

    /// Returns whether a fault at `address` means that the buffer of values is full.
    pub(crate) fn is_full_of_values(&self, address: Option<u64>) -> bool {
        self.values.is_some()
            && matches!(self.state, ThreadState::InCache)
            && address
                .and_then(|address| address.checked_sub(self.region.base()))
                .is_some_and(layout::is_after_values)
    }
}

/// Returns whether a thread continues with the registers that it had.
fn is_same(one: &Registers, other: &Registers) -> bool {
    let general = |registers: &Registers| {
        let Registers {
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            ..
        } = *registers;
        let Registers {
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            ..
        } = *registers;
        (
            [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp],
            [r8, r9, r10, r11, r12, r13, r14, r15],
        )
    };
    one.rip == other.rip
        && general(one) == general(other)
        && one.rflags == other.rflags
        && one.fs_base == other.fs_base
}

/// Appends the results of a system call, as `backtrail-semantics` reads them.
fn push_call_results(out: &mut Vec<u8>, registers: &Registers, gs_base: u64) {
    for register in [registers.rax, registers.rcx, registers.r11] {
        out.extend(register.to_le_bytes());
    }
    let written = backtrail_semantics::Registers::of(&Instruction::with(Code::Syscall)).written;
    if written.flags != 0 {
        out.extend((registers.r11 as u16).to_le_bytes());
    }
    for base in [registers.fs_base, gs_base] {
        out.extend(base.to_le_bytes());
    }
}

/// Appends the low `size` bytes of a register. Returns whether it is known.
fn push_register(out: &mut Vec<u8>, register: Register, size: u32, state: &State) -> bool {
    let full = register.full_register();
    let general;
    let bytes: &[u8] = if full.is_gpr() {
        let value = state.general.get(full.number()).copied().unwrap_or_default();
        let is_high = matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        );
        general = (value >> if is_high { 8 } else { 0 }).to_le_bytes();
        &general
    } else {
        state.vectors.get(full.number()).map_or(&[], |vector| vector)
    };
    bytes
        .get(..size as usize)
        .map(|bytes| out.extend_from_slice(bytes))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_registers_are_their_low_bytes() {
        let mut state = State::default();
        state.general[0] = 0x1122_3344_5566_7788;
        state.vectors[17][15] = 9;
        let mut out = Vec::new();
        assert!(push_register(&mut out, Register::AH, 1, &state));
        assert!(push_register(&mut out, Register::EAX, 4, &state));
        assert_eq!(out, [0x77, 0x88, 0x77, 0x66, 0x55]);
        out.clear();
        assert!(push_register(&mut out, Register::XMM17, 16, &state));
        assert_eq!((out.len(), out.last()), (16, Some(&9)));
        assert!(!push_register(&mut out, Register::EAX, 16, &state));
    }

    #[test]
    fn a_thread_continues_with_the_same_registers() {
        let registers = Registers {
            rip: 5,
            r15: 7,
            ..Registers::default()
        };
        assert!(is_same(&registers, &registers.clone()));
        assert!(!is_same(&registers, &Registers { r15: 8, ..registers }));
        assert!(!is_same(&registers, &Registers { rip: 6, ..registers }));
    }
}
