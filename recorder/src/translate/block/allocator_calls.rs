//! The stubs that log calls of allocator functions, and the blocks that these return.
//!
//! While a call runs, the region of its thread holds the complements of the stack pointer at its
//! entry ([`layout::ALLOCATOR_STACK`]) and of its return address. A call with a stack pointer that
//! is not above it belongs to that call, such as `malloc` in `operator new`. It is not logged. The
//! return to this address with this stack pointer ends the call, also after a
//! jump into another function.

use super::{InstructionState, SourceInstruction, SpilledRegisters, Translator};
use crate::translate::assembler::{ArgumentRegister, Scratch};
use crate::translate::event::{self, LogEvent, NO_OUTCOMES};
use crate::translate::layout;
use crate::translate::staged::Staged;
use crate::translate::watched::WatchedFunction;
use backtrail_bundle::heap::AllocatorFunction;

impl Translator<'_> {
    /// Returns whether the function at `ip` is watched, and is not the first of this block. Its
    /// block begins at its first instruction, so that nothing waits to be logged there.
    pub(super) fn begins_watched_function(&self, ip: u64) -> bool {
        self.written > 0 && self.watched.is_some_and(|watched| watched.at(ip).is_some())
    }

    /// Writes the stub at the start of a watched function.
    pub(super) fn enter_watched_function(&mut self, ip: u64) {
        match self.watched.and_then(|watched| watched.at(ip)) {
            Some(WatchedFunction::Allocator(function)) => self.enter_allocator(ip, function),
            Some(WatchedFunction::Unwinder) => {
                self.before(ip, SpilledRegisters::NONE);
                self.out.set_slot(layout::ALLOCATOR_STACK, 0);
            }
            None => {}
        }
    }

    /// Logs a call of the function at `ip`, unless another allocator function called it.
    fn enter_allocator(&mut self, ip: u64, function: AllocatorFunction) {
        let (argument, second) = arguments(function);
        self.before(ip, SpilledRegisters::NONE);
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::RCX);
        self.out.load(Scratch::Rcx, layout::ALLOCATOR_STACK);
        self.out.add_rsp_to_rcx(0);
        self.out.sign_of_rcx(layout::NUMBER);
        let nested = self.out.jump_unless_rcx_is_zero();
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        // Write the last bytes first, so that a full chunk faults before anything is written.
        let mut len = event::HEAP_CALL_LEN;
        if let Some(second) = second {
            self.out.log_argument(len + 2, second);
            self.out.log_at(len, event::HEAP_ARGUMENT, 0);
            len += event::HEAP_ARGUMENT_LEN;
        }
        self.out.log_argument(10, argument);
        self.out.log_word(2, ip);
        self.out.log_bytes(event::HEAP_CALL, function as u8);
        self.out.advance_log(len);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.before(ip, SpilledRegisters::RCX);
        self.out
            .set_slot(layout::ALLOCATOR_LOGS, u32::from(function.gives_block()));
        match function {
            AllocatorFunction::PosixMemalign => self
                .out
                .store_argument(ArgumentRegister::Rdi, layout::ALLOCATOR_OUT),
            _ => self.out.set_slot(layout::ALLOCATOR_OUT, 0),
        }
        self.out.rcx_from_stack();
        self.out.not_rcx();
        self.out.store(Scratch::Rcx, layout::ALLOCATOR_RETURN);
        self.out.rcx_from_rsp();
        self.out.not_rcx();
        self.out.store(Scratch::Rcx, layout::ALLOCATOR_STACK);
        let here = self.out.len();
        self.out.patch_rel32(nested, here);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::NONE);
    }

    /// Writes the rest of a return, whose target is in RAX. The return of an allocator function
    /// ends its call, and logs its block.
    pub(super) fn return_from_allocator(
        &mut self,
        original: &SourceInstruction<'_>,
        size: u32,
        event: impl Fn(u8) -> LogEvent,
        loaded: Option<Staged>,
    ) {
        let ip = original.ip;
        let spilled = SpilledRegisters::RAX.and(SpilledRegisters::RCX);
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, spilled);
        self.out.load(Scratch::Rcx, layout::ALLOCATOR_STACK);
        self.out.add_rsp_to_rcx(1);
        let other_stack = self.out.jump_unless_rcx_is_zero();
        self.out.load(Scratch::Rcx, layout::ALLOCATOR_RETURN);
        self.out.add_rax_to_rcx_and_one();
        let other_target = self.out.jump_unless_rcx_is_zero();
        self.out.load(Scratch::Rcx, layout::ALLOCATOR_LOGS);
        let logs = self.out.jump_unless_rcx_is_zero();
        self.out.set_slot(layout::ALLOCATOR_STACK, 0);
        for jump in [other_stack, other_target] {
            let here = self.out.len();
            self.out.patch_rel32(jump, here);
        }
        let (outcomes, packetless, staged) = (self.outcomes, self.packetless, self.staged);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::RAX);
        self.out.pop(size);
        self.go_to_rax(ip, event(outcomes), loaded);
        let here = self.out.len();
        self.out.patch_rel32(logs, here);
        (self.outcomes, self.packetless, self.staged) = (outcomes, packetless, staged);
        self.log_result(ip, spilled);
        self.out.set_slot(layout::ALLOCATOR_STACK, 0);
        self.out.load(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::RAX);
        self.out.pop(size);
        self.go_to_rax(ip, event(NO_OUTCOMES), loaded);
    }

    /// Logs the pending outcomes, and the returned block before the return at `ip`. Afterward all
    /// registers are spilled.
    fn log_result(&mut self, ip: u64, spilled: SpilledRegisters) {
        self.before(ip, spilled);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.before(ip, SpilledRegisters::ALL);
        self.out.load(Scratch::Rdx, layout::SAVED_RAX);
        self.out.replace_rdx_by_out_pointer(layout::ALLOCATOR_OUT);
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        let outcomes = self.outcomes;
        self.out.log_argument(10, ArgumentRegister::Rdx);
        self.out.log_word(2, ip);
        self.out.log_bytes(event::HEAP_RESULT, outcomes);
        self.out.advance_log(event::HEAP_CALL_LEN);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        (self.outcomes, self.packetless, self.logged_ip) = (NO_OUTCOMES, false, ip);
        self.record(ip, InstructionState::Before(SpilledRegisters::ALL));
    }
}

/// Returns the registers with the block or size that a function gets, and with its other factor or
/// its new size.
fn arguments(function: AllocatorFunction) -> (ArgumentRegister, Option<ArgumentRegister>) {
    match function {
        AllocatorFunction::Calloc | AllocatorFunction::Realloc => {
            (ArgumentRegister::Rdi, Some(ArgumentRegister::Rsi))
        }
        AllocatorFunction::AlignedAlloc | AllocatorFunction::Memalign => (ArgumentRegister::Rsi, None),
        AllocatorFunction::PosixMemalign => (ArgumentRegister::Rdx, None),
        _ => (ArgumentRegister::Rdi, None),
    }
}
