//! The program's signal mask and dispositions, which the recorder's traps can reset.
//!
//! The kernel forces the signal of a trap. If the program blocks or ignores this signal, the kernel
//! unblocks it and resets its disposition (`force_sig_info_to_task`). The recorder therefore tracks
//! both, and restores them before the thread continues.

use crate::ptrace::{self, RawTid};
use crate::remote::words;
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_process::status::{self, Disposition};

/// The signals of the recorder's traps and faults.
pub(crate) const FORCED: [i32; 2] = [libc::SIGTRAP, libc::SIGSEGV];
/// Bits of [`FORCED`] in a signal set.
const FORCED_SET: u64 = bit(libc::SIGTRAP) | bit(libc::SIGSEGV);
/// The size of a signal set in the kernel.
pub(crate) const SIGNAL_SET_SIZE: u64 = 8;
/// The offset of `uc_sigmask` from the stack pointer at `rt_sigreturn` (`asm/ucontext.h`).
const SIGRETURN_MASK: u64 = 296;

/// The number of `io_pgetevents(2)` (`asm/unistd_64.h`).
const SYS_IO_PGETEVENTS: libc::c_long = 333;

/// `si_code` of the stop before the first instruction of a handler: ptrace stores the signal number
/// there.
pub(crate) const HANDLER_ENTRY: i32 = libc::SIGTRAP;
/// `si_code` of a breakpoint instruction.
pub(crate) const SI_KERNEL: i32 = 0x80;

/// Returns whether a process has sent the signal.
pub(crate) fn is_sent(info: &SigInfo) -> bool {
    info.code() <= 0
}

/// The trap flag (TF) in RFLAGS.
pub(crate) const TRAP_FLAG: u64 = 1 << 8;

/// Returns the bit of a signal in a signal set.
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Returns whether a trap or fault that the recorder may have caused is pending in a stopped
/// thread. The kernel unblocks such signals, so a blocked one is the program's own.
pub(crate) fn has_forced_pending(tid: RawTid) -> bool {
    let mask = ptrace::signal_mask(tid).unwrap_or(0);
    FORCED
        .into_iter()
        .any(|signal| mask & bit(signal) == 0 && status::is_pending(tid, signal))
}

/// Returns whether a stopped thread has the mask of a wait. The kernel restores its own mask after
/// the delivery of a signal. Another system call would end the wait's.
pub(crate) fn has_mask_of_wait(tid: RawTid) -> bool {
    let own = ptrace::signal_mask(tid).ok();
    own.is_some() && status::blocked_signals(tid) != own
}

/// The disposition of a signal, as `rt_sigaction(2)` reads it (`struct sigaction` of the kernel):
/// handler, flags, restorer and mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalAction(pub(crate) [u64; 4]);

impl SignalAction {
    const IGNORED: Self = Self([libc::SIG_IGN as u64, 0, 0, 0]);

    /// Returns the disposition as the kernel stores it.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn handler(self) -> u64 {
        let [handler, ..] = self.0;
        handler
    }

    /// Returns whether the default action is taken.
    pub(crate) fn is_default(self) -> bool {
        self.handler() == libc::SIG_DFL as u64
    }

    /// Returns whether the signal is ignored.
    pub(crate) fn is_ignored(self) -> bool {
        self.handler() == libc::SIG_IGN as u64
    }

    /// Returns whether a delivery resets the disposition.
    fn is_for_one_delivery(self) -> bool {
        let [_, flags, ..] = self.0;
        flags & libc::SA_RESETHAND as u64 != 0
    }
}

/// The dispositions of [`FORCED`] in a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SignalActions([SignalAction; 2]);

impl SignalActions {
    /// Reads the dispositions of a process. Handlers are not known.
    pub(crate) fn of(tid: RawTid) -> Self {
        Self(
            status::dispositions(tid, FORCED).map(|disposition| match disposition {
                Disposition::Ignored => SignalAction::IGNORED,
                Disposition::Default | Disposition::Handled => SignalAction::default(),
            }),
        )
    }

    /// Returns the disposition of a signal in [`FORCED`], or the default one of others.
    pub(crate) fn of_signal(&self, signal: i32) -> SignalAction {
        let index = FORCED.iter().position(|forced| *forced == signal);
        index
            .and_then(|index| self.0.get(index))
            .copied()
            .unwrap_or_default()
    }

    /// Sets the disposition of a signal. Signals outside [`FORCED`] have no effect.
    pub(crate) fn set(&mut self, signal: i32, action: SignalAction) {
        let index = FORCED.iter().position(|forced| *forced == signal);
        if let Some(place) = index.and_then(|index| self.0.get_mut(index)) {
            *place = action;
        }
    }

    /// Handles the delivery of a signal to its handler.
    pub(crate) fn delivered(&mut self, signal: i32) {
        if self.of_signal(signal).is_for_one_delivery() {
            self.set(signal, SignalAction::default());
        }
    }
}

/// A system call that changes the mask or the dispositions, as read before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalCall {
    Block(u64),
    Unblock(u64),
    SetMask(u64),
    /// A call that waits with another mask (sigsuspend(2), ppoll(2)).
    WaitWithMask(u64),
    SetAction(i32, SignalAction),
}

impl SignalCall {
    /// Returns whether the mask changes only during the call, whatever its result.
    pub(crate) fn is_wait(self) -> bool {
        matches!(self, Self::WaitWithMask(_))
    }

    /// Reads the arguments of the call that a thread is about to make. Returns `None` for other
    /// calls.
    pub(crate) fn read(pid: RawTid, registers: &Registers) -> Option<Self> {
        let number = registers.rax as libc::c_long;
        match number {
            libc::SYS_rt_sigprocmask if registers.rsi != 0 => {
                let [set] = words(pid, registers.rsi)?;
                match registers.rdi as i32 {
                    libc::SIG_BLOCK => Some(Self::Block(set)),
                    libc::SIG_UNBLOCK => Some(Self::Unblock(set)),
                    libc::SIG_SETMASK => Some(Self::SetMask(set)),
                    _ => None,
                }
            }
            libc::SYS_rt_sigreturn => {
                let [set] = words(pid, registers.rsp.wrapping_add(SIGRETURN_MASK))?;
                Some(Self::SetMask(set))
            }
            libc::SYS_rt_sigsuspend => words(pid, registers.rdi).map(|[set]| Self::WaitWithMask(set)),
            libc::SYS_ppoll if registers.r10 != 0 => {
                words(pid, registers.r10).map(|[set]| Self::WaitWithMask(set))
            }
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 if registers.r8 != 0 => {
                words(pid, registers.r8).map(|[set]| Self::WaitWithMask(set))
            }
            libc::SYS_pselect6 | SYS_IO_PGETEVENTS if registers.r9 != 0 => {
                let [set] = words(pid, registers.r9)?;
                words(pid, set).map(|[set]| Self::WaitWithMask(set))
            }
            libc::SYS_rt_sigaction if registers.rsi != 0 => {
                let signal = registers.rdi as i32;
                FORCED.contains(&signal).then_some(())?;
                Some(Self::SetAction(signal, SignalAction(words(pid, registers.rsi)?)))
            }
            _ => None,
        }
    }
}

/// Returns whether the call that a thread is about to make is an `rt_sigreturn` to a context with
/// the trap flag.
pub(crate) fn restores_trap_flag(pid: RawTid, registers: &Registers) -> bool {
    /// The offset of `uc_mcontext.eflags` from the stack pointer.
    const FLAGS: u64 = 176;
    registers.rax == libc::SYS_rt_sigreturn as u64
        && words(pid, registers.rsp.wrapping_add(FLAGS)).is_some_and(|[flags]| flags & TRAP_FLAG != 0)
}

/// The signal state of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalState {
    /// The signals that the program blocks.
    pub(crate) mask: u64,
    /// The signals that the recorder has caused since the thread was last resumed.
    pub(crate) forced: u64,
    /// The signal that is being delivered to a handler.
    pub(crate) delivered: i32,
    /// The mask during a system call that waits with another one. A trap in it may have reset
    /// dispositions.
    pub(crate) mask_of_wait: u64,
    /// A pending signal of the program that such a signal has replaced.
    pub(crate) replaced: Option<SigInfo>,
}

impl SignalState {
    /// Reads the state of a thread that is stopped, and not because of a forced signal.
    pub(crate) fn of(tid: RawTid) -> Self {
        Self {
            // A thread that was killed in the meantime needs no mask.
            mask: ptrace::signal_mask(tid).unwrap_or(0),
            ..Self::default()
        }
    }

    /// Returns whether the program blocks a signal.
    pub(crate) fn blocks(&self, signal: i32) -> bool {
        self.mask & bit(signal) != 0
    }

    /// Returns whether the program blocks a signal that the recorder may cause.
    pub(crate) fn blocks_forced(&self) -> bool {
        self.mask & FORCED_SET != 0
    }

    /// Changes the mask as a successful system call has done.
    pub(crate) fn apply(&mut self, call: SignalCall) {
        match call {
            SignalCall::Block(set) => self.mask |= set,
            SignalCall::Unblock(set) => self.mask &= !set,
            SignalCall::SetMask(set) => self.mask = set,
            SignalCall::WaitWithMask(set) => self.mask_of_wait = set,
            SignalCall::SetAction(..) => {}
        }
        self.mask &= !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    }

    /// Returns the signals whose disposition the recorder's traps have reset.
    pub(crate) fn lost_actions(&self, actions: &SignalActions) -> Vec<(i32, SignalAction)> {
        let forced = FORCED
            .into_iter()
            .filter(|signal| self.forced & bit(*signal) != 0);
        let all = forced.map(|signal| (signal, actions.of_signal(signal)));
        let blocked = self.mask | self.mask_of_wait;
        all.filter(|(signal, action)| {
            action.is_ignored() || (!action.is_default() && blocked & bit(*signal) != 0)
        })
        .collect()
    }

    /// Handles the restoration of all that the recorder's signals have changed.
    pub(crate) fn restored(&mut self) {
        self.forced = 0;
        self.mask_of_wait = 0;
        self.replaced = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLED: SignalAction = SignalAction([0x1000, 0, 0, 0]);

    #[test]
    fn calls_change_the_mask_as_the_kernel_does() {
        let mut state = SignalState::default();
        state.apply(SignalCall::SetMask(u64::MAX));
        assert!(state.blocks(libc::SIGTRAP) && !state.blocks(libc::SIGKILL) && !state.blocks(libc::SIGSTOP));
        state.apply(SignalCall::Unblock(bit(libc::SIGTRAP)));
        assert!(!state.blocks(libc::SIGTRAP) && state.blocks_forced());
        state.apply(SignalCall::SetMask(0));
        state.apply(SignalCall::Block(bit(libc::SIGUSR1)));
        assert_eq!((state.mask, state.blocks_forced()), (bit(libc::SIGUSR1), false));
    }

    #[test]
    fn only_blocked_handlers_and_ignored_signals_are_lost() {
        let mut actions = SignalActions::default();
        let mut state = SignalState {
            forced: FORCED_SET,
            ..SignalState::default()
        };
        actions.set(libc::SIGSEGV, HANDLED);
        assert_eq!(state.lost_actions(&actions), []);
        actions.set(libc::SIGTRAP, SignalAction::IGNORED);
        assert_eq!(
            state.lost_actions(&actions),
            [(libc::SIGTRAP, SignalAction::IGNORED)]
        );
        state.mask = bit(libc::SIGSEGV);
        state.forced = bit(libc::SIGSEGV);
        assert_eq!(state.lost_actions(&actions), [(libc::SIGSEGV, HANDLED)]);
    }

    #[test]
    fn mask_of_a_wait_counts_until_the_restoration() {
        let mut actions = SignalActions::default();
        actions.set(libc::SIGTRAP, HANDLED);
        let mut state = SignalState {
            forced: FORCED_SET,
            ..SignalState::default()
        };
        state.apply(SignalCall::WaitWithMask(bit(libc::SIGTRAP)));
        assert!(!state.blocks(libc::SIGTRAP));
        assert_eq!(state.lost_actions(&actions), [(libc::SIGTRAP, HANDLED)]);
        state.restored();
        assert_eq!((state.forced, state.lost_actions(&actions)), (0, Vec::new()));
    }

    #[test]
    fn one_shot_handler_is_gone_after_its_delivery() {
        let mut actions = SignalActions::default();
        actions.set(
            libc::SIGTRAP,
            SignalAction([0x1000, libc::SA_RESETHAND as u64, 0, 0]),
        );
        actions.set(libc::SIGSEGV, HANDLED);
        actions.delivered(libc::SIGTRAP);
        actions.delivered(libc::SIGSEGV);
        assert!(actions.of_signal(libc::SIGTRAP).is_default());
        assert_eq!(actions.of_signal(libc::SIGSEGV), HANDLED);
    }

    #[test]
    fn arguments_are_read_from_memory_before_the_call() {
        let pid = std::process::id() as RawTid;
        let (set, action) = (bit(libc::SIGTRAP), [0x1000u64, 4, 0x2000, 0]);
        let call = |number: libc::c_long, rdi: i32, rsi: u64| {
            let registers = Registers {
                rax: number as u64,
                rdi: rdi as u64,
                rsi,
                ..Registers::default()
            };
            SignalCall::read(pid, &registers)
        };
        let (set_at, action_at) = (&raw const set as u64, action.as_ptr() as u64);
        let masked = call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set_at);
        assert_eq!(masked, Some(SignalCall::SetMask(set)));
        assert_eq!(call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, 0), None);
        assert_eq!(call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, 8), None);
        let handled = call(libc::SYS_rt_sigaction, libc::SIGTRAP, action_at);
        assert_eq!(
            handled,
            Some(SignalCall::SetAction(libc::SIGTRAP, SignalAction(action)))
        );
        assert_eq!(call(libc::SYS_rt_sigaction, libc::SIGUSR1, action_at), None);
        let waits = Registers {
            rax: libc::SYS_pselect6 as u64,
            r9: (&raw const set_at) as u64,
            ..Registers::default()
        };
        assert_eq!(SignalCall::read(pid, &waits), Some(SignalCall::WaitWithMask(set)));
    }
}
