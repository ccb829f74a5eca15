//! A single-stepped thread: its position, and the packets that each of its stops adds.

use crate::clone_flags::ClearedFlags;
use crate::code::Code;
use crate::packet_stream::{PacketStream, StepOutcome};
use crate::ptrace::{self, RawTid};
use backtrail_bundle::core::Registers;
use backtrail_process::memory;
use backtrail_pt::Avma;

/// The trap flag (TF) in RFLAGS.
const TRAP_FLAG: u64 = 1 << 8;
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
        }
    }

    /// Handles the trap of a step: the instruction has executed, or the kernel has returned to user
    /// code.
    pub(crate) fn stepped(&mut self, registers: &Registers) {
        let to = registers.pc();
        match self.position {
            StepPosition::User(at) => self.executed(at, registers),
            StepPosition::Kernel { restart: Some(at) } if to == at + SYSCALL_LEN => {
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
            (at, code) = (next, second);
        }
        match self.stream.step(&code.instruction, at, to) {
            StepOutcome::LeftUserCode => self.arrive(registers),
            StepOutcome::Followed | StepOutcome::Repeating | StepOutcome::Impossible => {
                self.position = StepPosition::User(to)
            }
        }
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
        if let StepPosition::User(ip) = self.position {
            self.stream.interrupt(ip);
        }
        if self.position != StepPosition::Closed {
            self.enter(handler);
        }
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
        }
    }

    /// Handles a breakpoint instruction of the program: its signal is delivered, and execution
    /// continues after it.
    pub(crate) fn hit_breakpoint(&mut self, next: Avma) {
        self.left_by_itself(next);
        if self.position != StepPosition::Closed {
            self.enter(next);
        }
    }

    /// Prepares to execute the next instruction, in a version of the code.
    pub(crate) fn prepare(&mut self, code_version: u32) {
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
        if let StepPosition::User(ip) = self.position {
            self.code = Code::read(self.pid, ip);
            if self.code.is_some_and(|code| code.is_syscall()) {
                self.prepare_call();
            }
            self.stream
                .before(ip, self.code.as_ref().map(|code| &code.instruction));
        }
    }

    /// Prepares a system call.
    fn prepare_call(&mut self) {
        let Ok(registers) = ptrace::registers(self.tid) else {
            return;
        };
        if !self.rseq {
            refuse_rseq(self.tid, &registers);
        }
        if self.cleared.is_none() {
            self.cleared = ClearedFlags::clear(self.tid, &registers);
        }
    }

    /// Ends the stream with the thread at `ip`, if that is known.
    pub(crate) fn close(&mut self, ip: Option<Avma>) {
        if let Some(ip) = ip {
            self.left_by_itself(ip);
        }
        if let StepPosition::User(at) = self.position {
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

/// Returns whether the kernel restarts the system call if nothing else happens (`linux/errno.h`,
/// ERESTART…).
pub(crate) fn will_restart(registers: &Registers) -> bool {
    const CODES: [i64; 4] = [-512, -513, -514, -516];
    registers.orig_rax as i64 >= 0 && CODES.contains(&(registers.rax as i64))
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
