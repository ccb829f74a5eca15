//! A single-stepped thread: its position, and the packets that each of its stops adds.

use crate::attributes::AttributeCall;
use crate::clone_flags::ClearedFlags;
use crate::code::Code;
use crate::error::Result;
use crate::packet_stream::{PacketStream, StepOutcome};
use crate::ptrace::{self, RawTid};
use crate::signal_state::{self, SignalCall, TRAP_FLAG};
use crate::values::ValueRecorder;
use backtrail_bundle::core::Registers;
use backtrail_process::memory;
use backtrail_pt::Avma;

/// The length of SYSCALL and INT 0x80. The kernel subtracts it from RIP to restart a system call.
const SYSCALL_LEN: u64 = 2;

/// The page of the legacy vsyscalls (`asm/vsyscall.h`, VSYSCALL_ADDR).
const VSYSCALL_PAGE: u64 = 0xffff_ffff_ff60_0000;

/// The position of a thread, as its packet stream describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepPosition {
    /// In user code: the instruction at this address executes next.
    User(Avma),
    /// In the kernel, with tracing disabled.
    Kernel {
        /// The address of a system call instruction that the kernel may restart without a return to
        /// user code.
        restart: Option<Avma>,
    },
    /// The stream has ended, and the thread runs freely.
    Closed,
}

/// A single-stepped thread.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) tid: RawTid,
    pub(crate) pid: RawTid,
    pub(crate) stream: PacketStream,
    pub(crate) position: StepPosition,
    /// The instruction at [`StepPosition::User`] when the thread was resumed, if there was one.
    pub(crate) code: Option<Code>,
    /// Whether a signal was delivered when the thread was last resumed.
    pub(crate) delivered: bool,
    /// Whether the thread may register restartable sequences. Threads that ran before attaching
    /// have already done so.
    pub(crate) rseq: bool,
    /// The version of the code that its packets are in.
    code_version: u32,
    /// The flags that were hidden from its system call.
    cleared: Option<ClearedFlags>,
    /// Whether the process is kept dumpable.
    pub(crate) keeps_dumpable: bool,
    /// Whether the program has set the trap flag.
    pub(crate) has_trap_flag: bool,
    /// The log of its values, if they are recorded.
    pub(crate) values: Option<ValueRecorder>,
    calls: TrackedCalls,
}

/// The effects of the current system call that the recorder tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackedCalls {
    pub(crate) signal: Option<SignalCall>,
    /// Whether the call is `rt_sigreturn`, which has no result.
    pub(crate) is_return: bool,
    pub(crate) attribute: Option<AttributeCall>,
    /// The original second argument, if it was changed.
    second: Option<u64>,
    /// The result, if the recorder has handled the call.
    result: Option<i64>,
    /// Whether the call restores a context with the trap flag.
    restores_trap_flag: bool,
}

impl Stepped {
    /// Builds a thread that is stopped in user code, or in a system call that can be restarted.
    pub(crate) fn found(tid: RawTid, pid: RawTid, stream: PacketStream, registers: &Registers) -> Self {
        let mut thread = Self::in_kernel(tid, pid, stream);
        thread.arrive(registers);
        thread
    }

    /// Builds a thread that is in the kernel.
    pub(crate) fn in_kernel(tid: RawTid, pid: RawTid, stream: PacketStream) -> Self {
        Self {
            tid,
            pid,
            stream,
            position: StepPosition::Kernel { restart: None },
            code: None,
            delivered: false,
            rseq: false,
            code_version: 0,
            cleared: None,
            keeps_dumpable: false,
            has_trap_flag: false,
            values: None,
            calls: TrackedCalls::default(),
        }
    }

    /// Handles the trap of a step: the instruction has executed, or the kernel has returned to user
    /// code.
    pub(crate) fn stepped(&mut self, registers: &Registers) {
        let to = registers.pc();
        match self.position {
            StepPosition::User(at) => self.executed(at, registers),
            StepPosition::Kernel { restart: Some(at) } if to == at + SYSCALL_LEN => {
                self.lose_values();
                self.stream.enter(at);
                self.stream.leave(at);
                self.arrive(registers);
            }
            StepPosition::Kernel { .. } => self.arrive(registers),
            StepPosition::Closed => {}
        }
    }

    fn executed(&mut self, at: Avma, registers: &Registers) {
        let mut at = at;
        let to = registers.pc();
        let Some(mut code) = self.code else {
            self.lose_values();
            self.stream.gap(to);
            self.position = StepPosition::User(to);
            return;
        };
        let next = at + u64::from(code.instruction.len);
        if code.delays_trap()
            && to != next
            && let Some(second) = Code::read(self.pid, next)
        {
            self.stream.step(&code.instruction, at, next);
            self.lose_values();
            (at, code) = (next, second);
        }
        let outcome = self.stream.step(&code.instruction, at, to);
        match outcome {
            StepOutcome::Followed | StepOutcome::LeftUserCode => {
                self.values.iter_mut().for_each(ValueRecorder::executed);
            }
            StepOutcome::Impossible => self.lose_values(),
            StepOutcome::Repeating => {}
        }
        match outcome {
            StepOutcome::LeftUserCode => self.arrive(registers),
            StepOutcome::Followed | StepOutcome::Repeating | StepOutcome::Impossible => {
                self.position = StepPosition::User(to)
            }
        }
    }

    /// Notes that the next registers do not follow from the last ones.
    fn lose_values(&mut self) {
        self.values.iter_mut().for_each(ValueRecorder::interrupted);
    }

    /// Enters user code, unless the kernel restarts the system call first.
    fn arrive(&mut self, registers: &Registers) {
        let to = registers.pc();
        if will_restart(registers) {
            self.position = StepPosition::Kernel {
                restart: Some(Avma(to.0.wrapping_sub(SYSCALL_LEN))),
            };
        } else {
            self.enter(to);
        }
    }

    fn enter(&mut self, to: Avma) {
        self.stream.enter(to);
        self.position = StepPosition::User(to);
    }

    /// Restores the flags that were hidden from a system call, after its return.
    pub(crate) fn restore_cleared(&mut self) {
        if let StepPosition::User(_) = self.position
            && let Some(cleared) = self.cleared.take()
        {
            cleared.restore(self.tid);
        }
    }

    /// Handles the delivery of a signal: the handler executes next.
    pub(crate) fn entered_handler(&mut self, handler: Avma) {
        if let Some(cleared) = self.cleared.take() {
            cleared.restore_memory(self.tid);
        }
        self.lose_values();
        if let StepPosition::User(ip) = self.position {
            self.stream.interrupt(ip);
        }
        if self.position != StepPosition::Closed {
            self.enter(handler);
        }
        // Handlers begin without the flag.
        self.has_trap_flag = false;
    }

    /// Records the exit from user code if the current instruction is a far transfer and `ip` has
    /// moved on.
    pub(crate) fn left_by_itself(&mut self, ip: Avma) {
        if let (StepPosition::User(at), Some(code)) = (self.position, &self.code)
            && code.is_far()
            && ip != at
        {
            self.stream.leave(at);
            self.position = StepPosition::Kernel { restart: None };
            self.values.iter_mut().for_each(ValueRecorder::executed);
        }
    }

    /// Returns to the system call instruction before the current position, because the call must
    /// wait again for a signal.
    pub(crate) fn repeat_call(&mut self) {
        if let (StepPosition::User(_), Ok(registers)) = (self.position, ptrace::registers(self.tid))
            && let Some(again) = repeated(&registers)
            && ptrace::set_registers(self.tid, &again).is_ok()
        {
            self.entered_handler(again.pc());
        }
    }

    /// Handles a breakpoint instruction of the program: its signal is delivered, and execution
    /// continues after it.
    pub(crate) fn hit_breakpoint(&mut self, next: Avma) {
        self.left_by_itself(next);
        self.lose_values();
        if self.position != StepPosition::Closed {
            self.enter(next);
        }
    }

    /// Prepares to execute the next instruction in a version of the code, unless a handler is next.
    /// Returns whether it is a ptrace or wait4 call.
    pub(crate) fn prepare(&mut self, is_handler_next: bool, code_version: u32) -> bool {
        if let (StepPosition::User(ip), Some(values)) = (self.position, &mut self.values) {
            values.confirm(self.tid, self.pid, ip);
        }
        if let StepPosition::User(ip) = self.position
            && self.code_version != code_version
        {
            self.code_version = code_version;
            self.stream.change_code(ip, code_version);
        }
        if let StepPosition::User(ip) = self.position
            && ip.0 & !(crate::PAGE - 1) == VSYSCALL_PAGE
            && let Some(to) = return_address(self.tid)
        {
            // The instruction fetch faults. The kernel emulates the call and returns to `to`, whose
            // instruction is stepped at once. Hardware would show the page fault.
            self.entered_handler(to);
        }
        while !is_handler_next && self.pop_flags() {}
        if let StepPosition::User(ip) = self.position {
            self.code = Code::read(self.pid, ip);
            let mut is_ptrace_call = false;
            if !is_handler_next && self.code.is_some_and(|code| code.is_syscall()) {
                is_ptrace_call = self.prepare_call();
            }
            if let (Some(values), Some(code), false) = (&mut self.values, &self.code, is_handler_next) {
                values.before((self.tid, self.pid), ip, code.bytes(), &mut self.stream);
            }
            self.stream
                .before(ip, self.code.as_ref().map(|code| &code.instruction));
            return is_ptrace_call;
        }
        false
    }

    /// Returns whether the thread has not executed the instruction at `ip` yet.
    pub(crate) fn is_about_to_execute(&self, ip: Avma) -> bool {
        let is_call = self.code.is_some_and(|code| code.is_syscall());
        self.position == StepPosition::User(ip) && !is_call
    }

    /// Executes the next instruction if it is a POPF, and returns whether it is one.
    ///
    /// After a step over POPF, the kernel takes the flag of the step for the program's own.
    fn pop_flags(&mut self) -> bool {
        let StepPosition::User(ip) = self.position else {
            return false;
        };
        let code = Code::read(self.pid, ip).filter(|code| code.pops_flags());
        let (Some(code), false) = (code, self.has_trap_flag) else {
            return false;
        };
        let before = ptrace::registers(self.tid).ok();
        let Some(after) = before.and_then(|registers| code.popped(self.pid, &registers)) else {
            return false;
        };
        if ptrace::set_registers(self.tid, &after).is_err() {
            return false;
        }
        self.lose_values();
        self.stream.before(ip, Some(&code.instruction));
        self.stream.step(&code.instruction, ip, after.pc());
        self.position = StepPosition::User(after.pc());
        self.has_trap_flag = after.rflags & TRAP_FLAG != 0;
        true
    }

    /// Returns whether the next instruction is SYSCALL.
    pub(crate) fn is_at_syscall(&self) -> bool {
        let StepPosition::User(ip) = self.position else {
            return false;
        };
        Code::read(self.pid, ip).is_some_and(|code| code.is_syscall())
    }

    /// Prepares a system call. Returns whether it is a ptrace or wait4 call.
    fn prepare_call(&mut self) -> bool {
        let Ok(registers) = ptrace::registers(self.tid) else {
            return false;
        };
        if !self.rseq {
            refuse_rseq(self.tid, &registers);
        }
        if self.cleared.is_none() {
            self.cleared = ClearedFlags::clear(self.tid, &registers);
        }
        self.calls = TrackedCalls {
            signal: SignalCall::read(self.pid, &registers),
            is_return: registers.rax == libc::SYS_rt_sigreturn as u64,
            restores_trap_flag: signal_state::restores_trap_flag(self.pid, &registers),
            ..TrackedCalls::default()
        };
        if self.keeps_dumpable {
            self.calls.attribute = AttributeCall::read(&registers);
            let mut changed = registers;
            AttributeCall::keep_dumpable(&mut changed);
            if changed != registers {
                self.calls.second = Some(registers.rsi);
                // A failure means that the thread was killed.
                let _ = ptrace::set_registers(self.tid, &changed);
            }
        }
        [libc::SYS_ptrace, libc::SYS_wait4].contains(&(registers.rax as libc::c_long))
    }

    /// Replaces the system call that is about to be made by one that fails, and its result.
    pub(crate) fn replace_result(&mut self, result: i64) -> Result<()> {
        let registers = ptrace::registers(self.tid)?;
        self.calls.result = Some(result);
        // No system call has this number.
        let rax = u64::MAX;
        ptrace::set_registers(self.tid, &Registers { rax, ..registers })
    }

    /// Returns and clears the effects of the system call that has returned, and restores its
    /// arguments.
    pub(crate) fn take_calls(&mut self) -> TrackedCalls {
        let calls = std::mem::take(&mut self.calls);
        let is_changed = calls.second.is_some() || calls.result.is_some() || calls.restores_trap_flag;
        if let (true, Ok(mut registers)) = (is_changed, ptrace::registers(self.tid)) {
            registers.rsi = calls.second.unwrap_or(registers.rsi);
            registers.rax = calls.result.map_or(registers.rax, |result| result as u64);
            if calls.restores_trap_flag {
                // The kernel takes the restored flag for that of the step, and hides it.
                registers.rflags |= TRAP_FLAG;
                self.has_trap_flag = true;
            }
            let _ = ptrace::set_registers(self.tid, &registers);
        }
        calls
    }

    /// Ends the stream with the thread at `ip`, if that is known.
    pub(crate) fn close(&mut self, ip: Option<Avma>) {
        if let Some(ip) = ip {
            self.left_by_itself(ip);
        }
        if let StepPosition::User(at) = self.position {
            if let Some(values) = &mut self.values {
                values.confirm(self.tid, self.pid, at);
            }
            self.stream.interrupt(at);
        }
        self.position = StepPosition::Closed;
    }
}

/// Makes rseq(2) fail as on an old kernel. Engine `translate` needs this, and both engines must
/// show the program the same behavior.
fn refuse_rseq(tid: RawTid, registers: &Registers) {
    if registers.rax == libc::SYS_rseq as u64 {
        // No system call has this number.
        let registers = Registers {
            rax: u64::MAX,
            ..*registers
        };
        // A failure means that the thread was killed.
        let _ = ptrace::set_registers(tid, &registers);
    }
}

/// Returns the address that a return instruction would pop.
fn return_address(tid: RawTid) -> Option<Avma> {
    let stack = ptrace::registers(tid).ok()?.rsp;
    let mut word = [0; 8];
    let read = memory::read(tid, stack, &mut word);
    (read == word.len()).then_some(Avma(u64::from_le_bytes(word)))
}

/// `ERESTART_RESTARTBLOCK`: restart by `restart_syscall(2)`.
const RESTART_BLOCK: i64 = -516;

/// Returns whether the kernel restarts the system call if nothing else happens (`linux/errno.h`,
/// ERESTART…).
pub(crate) fn will_restart(registers: &Registers) -> bool {
    const CODES: [i64; 4] = [-512, -513, -514, RESTART_BLOCK];
    registers.orig_rax as i64 >= 0 && CODES.contains(&(registers.rax as i64))
}

/// Returns the registers for a thread that has made another system call since its last stop. The
/// kernel then no longer restarts the interrupted one, so it is restarted here.
pub(crate) fn restarted(registers: &Registers) -> Registers {
    if !will_restart(registers) {
        return *registers;
    }
    Registers {
        rip: registers.rip.wrapping_sub(SYSCALL_LEN),
        rax: if registers.rax as i64 == RESTART_BLOCK {
            libc::SYS_restart_syscall as u64
        } else {
            registers.orig_rax
        },
        orig_rax: u64::MAX,
        ..*registers
    }
}

/// Returns the registers to repeat a system call that a signal has interrupted.
fn repeated(registers: &Registers) -> Option<Registers> {
    let is_interrupted = registers.rax as i64 == -i64::from(libc::EINTR) && registers.orig_rax as i64 >= 0;
    is_interrupted.then_some(Registers {
        rip: registers.rip.wrapping_sub(SYSCALL_LEN),
        rax: registers.orig_rax,
        orig_rax: u64::MAX,
        ..*registers
    })
}

/// Returns the registers without the trap flag that SYSCALL saved in R11, or `None` if it is not
/// set there.
pub(crate) fn without_trap_flag(registers: &Registers) -> Option<Registers> {
    let saved = registers.rcx == registers.rip && registers.r11 & TRAP_FLAG != 0 && !will_restart(registers);
    saved.then_some(Registers {
        r11: registers.r11 & !TRAP_FLAG,
        ..*registers
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::{EncoderOptions, Tsc};

    fn at(rip: u64) -> Registers {
        Registers {
            rip,
            orig_rax: u64::MAX,
            ..Registers::default()
        }
    }

    fn found(registers: &Registers) -> Stepped {
        let stream = PacketStream::new(EncoderOptions::default(), None, true, Tsc(0));
        Stepped::found(1, 1, stream, registers)
    }

    #[test]
    fn restarted_syscall_executes_again() {
        let waiting = Registers {
            orig_rax: 0,
            rax: -512i64 as u64,
            ..at(0x1002)
        };
        let mut thread = found(&waiting);
        assert_eq!(
            thread.position,
            StepPosition::Kernel {
                restart: Some(Avma(0x1000))
            }
        );
        thread.stepped(&waiting);
        assert_eq!(
            thread.position,
            StepPosition::Kernel {
                restart: Some(Avma(0x1000))
            }
        );
        thread.stepped(&Registers {
            orig_rax: 0,
            rax: 1,
            ..at(0x1002)
        });
        assert_eq!(thread.position, StepPosition::User(Avma(0x1002)));
        assert_eq!(thread.stream.instructions, 2);
    }

    #[test]
    fn handler_interrupting_syscall_executes_next() {
        let mut thread = found(&Registers {
            orig_rax: 0,
            rax: -512i64 as u64,
            ..at(0x1002)
        });
        thread.entered_handler(Avma(0x2000));
        assert_eq!(thread.position, StepPosition::User(Avma(0x2000)));
        assert_eq!(thread.stream.instructions, 0);
    }

    #[test]
    fn executing_unreadable_code_is_a_gap() {
        let mut thread = found(&at(0x1000));
        thread.stepped(&at(0x1234));
        assert_eq!(
            (thread.position, thread.stream.gaps),
            (StepPosition::User(Avma(0x1234)), 1)
        );
    }

    #[test]
    fn only_a_trap_flag_left_by_syscall_is_hidden() {
        let after = Registers {
            rcx: 0x1002,
            r11: 0x346,
            ..at(0x1002)
        };
        assert_eq!(
            without_trap_flag(&after).map(|registers| registers.r11),
            Some(0x246)
        );
        assert_eq!(without_trap_flag(&Registers { rcx: 0, ..after }), None);
        assert_eq!(without_trap_flag(&Registers { r11: 0x246, ..after }), None);
    }

    #[test]
    fn interrupted_calls_are_restarted_at_their_instruction() {
        let interrupted = |rax: i64, orig_rax: u64| Registers {
            rax: rax as u64,
            orig_rax,
            ..at(0x1002)
        };
        let again = |registers: &Registers| (restarted(registers).rip, restarted(registers).rax);
        assert_eq!(again(&interrupted(-512, 7)), (0x1000, 7));
        let sleep = libc::SYS_restart_syscall as u64;
        assert_eq!(again(&interrupted(-516, 35)), (0x1000, sleep));
        assert_eq!(again(&interrupted(-4, 7)).0, 0x1002);
        assert_eq!(again(&interrupted(-512, u64::MAX)).0, 0x1002);
    }

    #[test]
    fn closing_ends_the_stream_once() {
        let mut thread = found(&at(0x1000));
        thread.close(Some(Avma(0x1000)));
        let written = thread.stream.written();
        thread.close(Some(Avma(0x1000)));
        thread.stepped(&at(0x1001));
        assert_eq!(
            (thread.position, thread.stream.written()),
            (StepPosition::Closed, written)
        );
    }
}
