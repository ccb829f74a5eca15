//! The cause of a crash: what the signal and the last message say, as the head of a signature.

mod message;

use super::printable::{printable, shortened};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Addresses below this one are never mapped: it is the kernel's default of `vm.mmap_min_addr`.
const NULL_AREA: u64 = 0x1_0000;
/// Members before the start of an object at address zero are in the last page.
const BELOW_NULL: u64 = u64::MAX - 0xfff;
/// A frame that crosses the guard page touches memory at most so far below the stack pointer.
const BELOW_STACK: u64 = 0x1_0000;
/// A push or a call touches memory just below the old stack pointer.
const ABOVE_STACK: u64 = 0x1000;
/// `si_code` of a fault whose address the processor does not report.
const SI_KERNEL: i32 = 128;
/// `si_code` of `SIGSEGV` in a mapping that forbids the access.
const SEGV_ACCERR: i32 = 2;
/// The lowest bit of an x86-64 address that all higher bits must equal.
const SIGN_BIT: u32 = 47;
/// The longest message that a cause keeps, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The longest message within a signature, in bytes.
const MAX_HEAD_MESSAGE: usize = 80;

/// The kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

/// The kind of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CauseKind {
    /// An access near address zero.
    NullPointer,
    /// An access to an address without a mapping.
    InvalidAddress,
    /// An access that the mapping forbids.
    ProtectedAddress,
    /// A fault without an address, as of a pointer that is no canonical address.
    GeneralProtection,
    /// A pointer that is no canonical address, and differs in one bit from a mapped address.
    BadHardware,
    /// A failed assertion.
    Assertion,
    /// A Rust or Go panic.
    Panic,
    /// An exception that no function caught.
    UncaughtException,
    /// A call of a pure virtual function.
    PureVirtualCall,
    /// The allocator or a sanitizer found damaged memory.
    HeapCorruption,
    /// A function's return found its stack frame damaged.
    StackCorruption,
    /// The stack is full.
    StackOverflow,
    /// The process had no more memory.
    OutOfMemory,
    /// Only the signal is known.
    Unknown,
}

/// The facts of a crash, as a report or a core has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrashFacts<'a> {
    /// `si_signo`.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// The address of the access: `si_addr`, or the operand of the faulting instruction.
    pub fault_address: Option<u64>,
    /// The stack pointer of the crashed thread.
    pub stack_pointer: Option<u64>,
    /// The kind of the access, if the faulting instruction is known.
    pub access: Option<Access>,
    /// The last message of the process, such as the text of a panic.
    pub message: Option<&'a str>,
    /// The mapped address ranges. Empty: unknown.
    pub mapped: &'a [Range<u64>],
}

/// The cause of a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashCause {
    /// `si_signo`.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// The address of the access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_address: Option<u64>,
    /// The kind of the access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The last message of the process, printable, in at most 1 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The kind of the crash.
    pub kind: CauseKind,
}

impl CrashCause {
    /// Determines the cause from the facts. A fact that is missing makes the cause less precise.
    #[must_use]
    pub fn of(facts: &CrashFacts<'_>) -> Self {
        let message = facts.message.map(str::trim).filter(|text| !text.is_empty());
        let message = message.map(|text| shortened(&message::printable_lines(text), MAX_MESSAGE));
        Self {
            signal: facts.signal,
            code: facts.code,
            fault_address: facts.fault_address,
            access: facts.access.filter(|_| is_memory_fault(facts.signal)),
            kind: message
                .as_deref()
                .and_then(message::kind)
                .unwrap_or_else(|| fault_kind(facts)),
            message,
        }
    }

    /// Returns the cause with the kind that a function of the stack shows, if only the signal is
    /// known otherwise.
    #[must_use]
    pub fn with_kind_of_function(mut self, kind: Option<CauseKind>) -> Self {
        // A fault of the processor has a cause of its own, whatever is further out on the stack.
        if self.kind == CauseKind::Unknown && !(is_memory_fault(self.signal) && self.code > 0) {
            self.kind = kind.unwrap_or(CauseKind::Unknown);
        }
        self
    }

    /// Returns whether the process raised the signal itself, so that the innermost frames are not
    /// those of the defect.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        const ILLEGAL_INSTRUCTION: i32 = Signal::SIGILL as i32;
        const TRAP: i32 = Signal::SIGTRAP as i32;
        const ABORT: i32 = Signal::SIGABRT as i32;
        // Compilers implement aborting by an illegal instruction or a breakpoint.
        self.code <= 0 || matches!(self.signal, ILLEGAL_INSTRUCTION | TRAP | ABORT)
    }

    /// Returns the cause in a few words, such as `SIGSEGV null read`. No number is part of them
    /// that differs between crashes of one defect.
    #[must_use]
    pub fn words(&self) -> String {
        let signal = signal_name(self.signal);
        let access = match self.access {
            Some(Access::Read) => "read",
            Some(Access::Write) => "write",
            Some(Access::Execute) => "execute",
            None => "access",
        };
        match self.kind {
            CauseKind::NullPointer => format!("{signal} null {access}"),
            CauseKind::InvalidAddress => format!("{signal} invalid {access}"),
            CauseKind::ProtectedAddress => format!("{signal} protected {access}"),
            CauseKind::GeneralProtection => format!("{signal} general protection"),
            CauseKind::BadHardware => format!("{signal} bad hardware"),
            CauseKind::Assertion => format!("{signal} assert"),
            CauseKind::Panic => self.panic_words(&signal),
            CauseKind::UncaughtException => format!("{signal} uncaught exception"),
            CauseKind::PureVirtualCall => format!("{signal} pure virtual call"),
            CauseKind::HeapCorruption => format!("{signal} heap corruption"),
            CauseKind::StackCorruption => format!("{signal} stack corruption"),
            CauseKind::StackOverflow => "stack overflow".to_owned(),
            CauseKind::OutOfMemory => "out of memory".to_owned(),
            CauseKind::Unknown => signal,
        }
    }

    fn panic_words(&self, signal: &str) -> String {
        let text = self.message.as_deref().and_then(message::panic_text);
        match text.map(message::masked).filter(|text| !text.is_empty()) {
            Some(text) => format!(
                "{signal} panic: {}",
                shortened(&printable(&text), MAX_HEAD_MESSAGE)
            ),
            None => format!("{signal} panic"),
        }
    }
}

/// Returns the name of a signal, such as `SIGSEGV`.
fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(
        |_| format!("signal {signal}"),
        |signal| signal.as_str().to_owned(),
    )
}

fn is_memory_fault(signal: i32) -> bool {
    signal == Signal::SIGSEGV as i32 || signal == Signal::SIGBUS as i32
}

/// Returns the kind that the fault itself shows.
fn fault_kind(facts: &CrashFacts<'_>) -> CauseKind {
    if !is_memory_fault(facts.signal) || facts.code <= 0 {
        return CauseKind::Unknown;
    }
    let Some(address) = facts.fault_address.filter(|_| has_address(facts)) else {
        return match facts.code == SI_KERNEL {
            true => CauseKind::GeneralProtection,
            false => CauseKind::Unknown,
        };
    };
    if !(NULL_AREA..BELOW_NULL).contains(&address) {
        return CauseKind::NullPointer;
    }
    if !is_canonical(address) {
        return match is_one_bit_from_mapped(address, facts.mapped) {
            true => CauseKind::BadHardware,
            false => CauseKind::InvalidAddress,
        };
    }
    if facts.stack_pointer.is_some_and(|top| is_at_stack(address, top)) {
        return CauseKind::StackOverflow;
    }
    match facts.signal == Signal::SIGSEGV as i32 && facts.code == SEGV_ACCERR {
        true => CauseKind::ProtectedAddress,
        false => CauseKind::InvalidAddress,
    }
}

/// Returns whether the fault address is a fact. The kernel reports zero for a general protection
/// fault, whatever the address was.
fn has_address(facts: &CrashFacts<'_>) -> bool {
    facts.code != SI_KERNEL || facts.fault_address.is_some_and(|address| address != 0)
}

fn is_at_stack(address: u64, stack_pointer: u64) -> bool {
    (stack_pointer.saturating_sub(BELOW_STACK)..stack_pointer.saturating_add(ABOVE_STACK)).contains(&address)
}

fn is_canonical(address: u64) -> bool {
    let high = address >> SIGN_BIT;
    high == 0 || high == u64::MAX >> SIGN_BIT
}

fn is_one_bit_from_mapped(address: u64, mapped: &[Range<u64>]) -> bool {
    (SIGN_BIT..u64::BITS)
        .map(|bit| address ^ (1 << bit))
        .any(|flipped| mapped.iter().any(|range| range.contains(&flipped)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: u64 = 0x7ffd_1234_5000;

    fn fault(code: i32, address: u64, access: Option<Access>) -> String {
        let facts = CrashFacts {
            signal: 11,
            code,
            fault_address: Some(address),
            stack_pointer: Some(STACK),
            access,
            message: None,
            mapped: std::slice::from_ref(&(0x5555_0000_0000..0x5555_0000_9000)),
        };
        CrashCause::of(&facts).words()
    }

    fn abort(message: &str) -> String {
        let facts = CrashFacts {
            signal: 6,
            code: -6,
            message: Some(message),
            ..CrashFacts::default()
        };
        CrashCause::of(&facts).words()
    }

    #[test]
    fn faults_are_described_by_address_and_access() {
        assert_eq!(fault(1, 0x28, Some(Access::Read)), "SIGSEGV null read");
        assert_eq!(fault(1, 0, Some(Access::Execute)), "SIGSEGV null execute");
        assert_eq!(
            fault(1, 0_u64.wrapping_sub(16), Some(Access::Write)),
            "SIGSEGV null write"
        );
        assert_eq!(fault(1, 0x1234_5678, None), "SIGSEGV invalid access");
        assert_eq!(
            fault(2, 0x5555_0000_1000, Some(Access::Write)),
            "SIGSEGV protected write"
        );
    }

    #[test]
    fn address_beside_the_stack_pointer_is_an_overflow() {
        assert_eq!(fault(1, STACK - 8, Some(Access::Write)), "stack overflow");
        assert_eq!(fault(2, STACK - 0x8000, Some(Access::Write)), "stack overflow");
        assert_eq!(
            fault(1, STACK - 0x20_0000, Some(Access::Write)),
            "SIGSEGV invalid write"
        );
    }

    #[test]
    fn zero_of_a_general_protection_fault_is_no_null() {
        assert_eq!(
            fault(SI_KERNEL, 0, Some(Access::Read)),
            "SIGSEGV general protection"
        );
    }

    #[test]
    fn one_flipped_bit_is_bad_hardware() {
        let flipped = 0x5555_0000_1000 | 1 << 60;
        assert_eq!(fault(SI_KERNEL, flipped, None), "SIGSEGV bad hardware");
        // Text in a pointer is no flipped bit.
        assert_eq!(
            fault(SI_KERNEL, 0x6c6c_6568_2064_6c72, None),
            "SIGSEGV invalid access"
        );
        assert_eq!(
            fault(SI_KERNEL, flipped | 1 << 61, None),
            "SIGSEGV invalid access"
        );
    }

    #[test]
    fn aborts_are_described_by_their_message() {
        for (message, words) in [
            (
                "ledger: ledger.c:42: post: Assertion `amount > 0' failed.",
                "SIGABRT assert",
            ),
            (
                "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3 but the index is 7",
                "SIGABRT panic: index out of bounds: the len is <n> but the index is <n>",
            ),
            (
                "thread 'w-3' panicked at 'no account \"bob\"', src/a.rs:1:2",
                "SIGABRT panic: no account <s>",
            ),
            (
                "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\nmain.main()",
                "SIGABRT panic: runtime error: index out of range [<n>] with length <n>",
            ),
            (
                "free(): double free detected in tcache 2",
                "SIGABRT heap corruption",
            ),
            (
                "*** stack smashing detected ***: terminated",
                "SIGABRT stack corruption",
            ),
            (
                "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
                "out of memory",
            ),
            (
                "terminate called after throwing an instance of 'std::out_of_range'",
                "SIGABRT uncaught exception",
            ),
            ("thread 'main' has overflowed its stack", "stack overflow"),
            ("memory allocation of 1099511627776 bytes failed", "out of memory"),
            ("good bye", "SIGABRT"),
            ("", "SIGABRT"),
        ] {
            assert_eq!(abort(message), words, "{message}");
        }
    }

    #[test]
    fn cause_survives_json_and_hostile_messages() {
        let facts = CrashFacts {
            signal: 99,
            code: 0,
            message: Some(&"panic: '\u{202e}<script>\u{0} ".repeat(100_000)),
            ..CrashFacts::default()
        };
        let cause = CrashCause::of(&facts);
        assert!(cause.message.as_ref().unwrap().len() <= MAX_MESSAGE);
        assert!(cause.words().len() < 120, "{}", cause.words());
        let text = serde_json::to_string(&cause).unwrap();
        assert_eq!(serde_json::from_str::<CrashCause>(&text).unwrap(), cause);
    }

    #[test]
    fn function_refines_aborts_and_not_faults() {
        let words = |signal, code| {
            let facts = CrashFacts {
                signal,
                code,
                ..CrashFacts::default()
            };
            CrashCause::of(&facts)
                .with_kind_of_function(Some(CauseKind::Assertion))
                .words()
        };
        assert_eq!(words(6, -6), "SIGABRT assert");
        assert_eq!(words(11, 1), "SIGSEGV");
    }
}
