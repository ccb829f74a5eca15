//! A thread that is stepped: where it stands, and what each of its stops adds to its stream.

use crate::clone_flags::Cleared;
use crate::code::Code;
use crate::ptrace::{self, RawTid};
use crate::stream::{Stream, Went};
use backtrail_bundle::core::Registers;
use backtrail_process::memory;
use backtrail_pt::Avma;

/// The single-step flag in RFLAGS.
const TRAP_FLAG: u64 = 1 << 8;
/// Bytes of SYSCALL and of INT 0x80: the kernel goes back by so many to restart a system call.
const SYSCALL_LEN: u64 = 2;

/// The legacy system calls (`asm/vsyscall.h`, VSYSCALL_ADDR).
const VSYSCALL_PAGE: u64 = 0xffff_ffff_ff60_0000;

/// Where a thread stands, as its stream tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In user code: the instruction at this address is next.
    User(Avma),
    /// In the kernel, tracing disabled.
    Kernel {
        /// The system call instruction there may be executed again without returning to the program.
        restart: Option<Avma>,
    },
    /// Its stream has ended; it runs freely.
    Closed,
}

/// A thread under single steps.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) tid: RawTid,
    pub(crate) pid: RawTid,
    pub(crate) stream: Stream,
    pub(crate) place: Place,
    /// The instruction at [`Place::User`] when it was resumed; `None`: there is none.
    pub(crate) code: Option<Code>,
    /// A signal was delivered on the last resume.
    pub(crate) delivered: bool,
    /// It may register restartable sequences: threads that ran before have.
    pub(crate) rseq: bool,
    /// What its system call was not to see.
    cleared: Option<Cleared>,
}

impl Stepped {
    /// A thread stopped somewhere in user code, or in a system call that can be restarted.
    pub(crate) fn found(tid: RawTid, pid: RawTid, stream: Stream, registers: &Registers) -> Self {
        let mut thread = Self::in_kernel(tid, pid, stream);
        thread.arrive(registers);
        thread
    }

    /// A thread in the kernel.
    pub(crate) fn in_kernel(tid: RawTid, pid: RawTid, stream: Stream) -> Self {
        Self {
            tid,
            pid,
            stream,
            place: Place::Kernel { restart: None },
            code: None,
            delivered: false,
            rseq: false,
            cleared: None,
        }
    }

    /// Stepped: the instruction was executed, or the kernel came back to user code.
    pub(crate) fn stepped(&mut self, registers: &Registers) {
        let to = registers.pc();
        match self.place {
            Place::User(at) => self.executed(at, registers),
            Place::Kernel { restart: Some(at) } if to == at + SYSCALL_LEN => {
                self.stream.enter(at);
                self.stream.leave(at);
                self.arrive(registers);
            }
            Place::Kernel { .. } => self.arrive(registers),
            Place::Closed => {}
        }
    }

    fn executed(&mut self, at: Avma, registers: &Registers) {
        let mut at = at;
        let to = registers.pc();
        let Some(mut code) = self.code else {
            self.stream.gap(to);
            self.place = Place::User(to);
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
            Went::Out => self.arrive(registers),
            Went::On | Went::Nowhere | Went::Astray => self.place = Place::User(to),
        }
    }

    /// Comes to user code, unless the kernel will restart the system call first.
    fn arrive(&mut self, registers: &Registers) {
        let to = registers.pc();
        if will_restart(registers) {
            self.place = Place::Kernel {
                restart: Some(Avma(to.0.wrapping_sub(SYSCALL_LEN))),
            };
        } else {
            self.enter(to);
        }
    }

    fn enter(&mut self, to: Avma) {
        self.stream.enter(to);
        self.place = Place::User(to);
    }

    /// Gives the thread back what its system call was not to see, once that has come back.
    pub(crate) fn restore_cleared(&mut self) {
        if let Place::User(_) = self.place
            && let Some(cleared) = self.cleared.take()
        {
            cleared.restore(self.tid);
        }
    }

    /// The kernel built a signal frame: the handler is next.
    pub(crate) fn entered_handler(&mut self, handler: Avma) {
        if let Some(cleared) = self.cleared.take() {
            cleared.restore_memory(self.tid);
        }
        if let Place::User(ip) = self.place {
            self.stream.interrupt(ip);
        }
        if self.place != Place::Closed {
            self.enter(handler);
        }
    }

    /// The instruction, if it leaves user code by itself, has done so when `ip` has moved on.
    pub(crate) fn left_by_itself(&mut self, ip: Avma) {
        if let (Place::User(at), Some(code)) = (self.place, &self.code)
            && code.is_far()
            && ip != at
        {
            self.stream.leave(at);
            self.place = Place::Kernel { restart: None };
        }
    }

    /// A breakpoint of the program itself was executed: its signal comes, and the program goes on
    /// behind it.
    pub(crate) fn hit_breakpoint(&mut self, next: Avma) {
        self.left_by_itself(next);
        if self.place != Place::Closed {
            self.enter(next);
        }
    }

    /// Makes ready to run the next instruction.
    pub(crate) fn prepare(&mut self) {
        if let Place::User(ip) = self.place
            && ip.0 & !(crate::PAGE - 1) == VSYSCALL_PAGE
            && let Some(to) = return_address(self.tid)
        {
            // The fetch faults, the kernel does the call itself and returns to `to`, whose instruction is
            // stepped at once. A processor would show the page fault.
            self.entered_handler(to);
        }
        if let Place::User(ip) = self.place {
            self.code = Code::read(self.pid, ip);
            if self.code.is_some_and(|code| code.is_syscall()) {
                self.prepare_call();
            }
            self.stream
                .before(ip, self.code.as_ref().map(|code| &code.instruction));
        }
    }

    /// Makes ready for a system call.
    fn prepare_call(&mut self) {
        let Ok(registers) = ptrace::registers(self.tid) else {
            return;
        };
        if !self.rseq {
            refuse_rseq(self.tid, &registers);
        }
        if self.cleared.is_none() {
            self.cleared = Cleared::clear(self.tid, &registers);
        }
    }

    /// Ends the stream with the thread at `ip`, where that is known.
    pub(crate) fn close(&mut self, ip: Option<Avma>) {
        if let Some(ip) = ip {
            self.left_by_itself(ip);
        }
        if let Place::User(at) = self.place {
            self.stream.interrupt(at);
        }
        self.place = Place::Closed;
    }
}

/// Restartable sequences are answered as an old kernel would, as engine `translate` must: so both see the
/// same program.
fn refuse_rseq(tid: RawTid, registers: &Registers) {
    if registers.rax == libc::SYS_rseq as u64 {
        // No system call has this number.
        let registers = Registers {
            rax: u64::MAX,
            ..*registers
        };
        // Failing means that the thread was killed.
        let _ = ptrace::set_registers(tid, &registers);
    }
}

/// What a return instruction would pop.
fn return_address(tid: RawTid) -> Option<Avma> {
    let stack = ptrace::registers(tid).ok()?.rsp;
    let mut word = [0; 8];
    let read = memory::read(tid, stack, &mut word);
    (read == word.len()).then_some(Avma(u64::from_le_bytes(word)))
}

/// Whether the kernel, having nothing else to do, restarts the system call (`linux/errno.h`, ERESTART…).
pub(crate) fn will_restart(registers: &Registers) -> bool {
    const CODES: [i64; 4] = [-512, -513, -514, -516];
    registers.orig_rax as i64 >= 0 && CODES.contains(&(registers.rax as i64))
}

/// The registers without the single-step flag that SYSCALL saved in R11; `None`: it is not there.
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
        let stream = Stream::new(EncoderOptions::default(), None, true, Tsc(0));
        Stepped::found(1, 1, stream, registers)
    }

    #[test]
    fn a_restarted_system_call_is_executed_once_more() {
        let waiting = Registers {
            orig_rax: 0,
            rax: -512i64 as u64,
            ..at(0x1002)
        };
        let mut thread = found(&waiting);
        assert_eq!(
            thread.place,
            Place::Kernel {
                restart: Some(Avma(0x1000))
            }
        );
        thread.stepped(&waiting);
        assert_eq!(
            thread.place,
            Place::Kernel {
                restart: Some(Avma(0x1000))
            }
        );
        thread.stepped(&Registers {
            orig_rax: 0,
            rax: 1,
            ..at(0x1002)
        });
        assert_eq!(thread.place, Place::User(Avma(0x1002)));
        assert_eq!(thread.stream.instructions, 2);
    }

    #[test]
    fn a_handler_that_interrupts_a_system_call_is_next() {
        let mut thread = found(&Registers {
            orig_rax: 0,
            rax: -512i64 as u64,
            ..at(0x1002)
        });
        thread.entered_handler(Avma(0x2000));
        assert_eq!(thread.place, Place::User(Avma(0x2000)));
        assert_eq!(thread.stream.instructions, 0);
    }

    #[test]
    fn executing_what_cannot_be_read_is_a_gap() {
        let mut thread = found(&at(0x1000));
        thread.stepped(&at(0x1234));
        assert_eq!((thread.place, thread.stream.gaps), (Place::User(Avma(0x1234)), 1));
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
        assert_eq!((thread.place, thread.stream.written()), (Place::Closed, written));
    }
}
