//! A thread in the code cache: entering the cache, and reconstructing the program state at every
//! stop.

mod claims;
mod clone_calls;
mod code_writes;
mod ending;
mod masked_loads;
mod operands;
mod outside_cache;
mod promotion;
mod recorder_calls;
mod signals;
mod trap_flag;
mod value_log;
mod x87;

use super::address_space::{AddressSpace, MemoryId, TranslateOptions};
use super::assembler::Scratch;
use super::block::{BlockOptions, InstructionState, NextIp, SpilledRegisters, TranslationEntry};
use super::cache_item::TrapCause;
use super::encoder::{EncoderPool, PacketStorage, StreamId};
use super::event::{LogEvent, NO_OUTCOMES};
use super::layout;
use super::region::{LogCursor, Region};
use super::stored::store::CodeStore;
use super::tracee::{Gadget, Tracee};
use crate::clock;
use crate::code::Code;
use crate::error::Result;
use crate::ptrace::{self, RawTid};
use crate::signal_state::{SignalCall, TRAP_FLAG};
use crate::stepped::restarted;
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_pt::Avma;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use value_log::TranslatedValues;

/// The length of SYSCALL.
const SYSCALL_LEN: u64 = 2;
/// An address space that several threads share.
pub(crate) type SharedAddressSpace = Rc<RefCell<AddressSpace>>;

/// The state of a translated thread.
#[derive(Clone, Debug)]
pub(crate) enum ThreadState {
    /// In the cache, running or stopped.
    InCache,
    /// Stopped with the program's registers.
    ProgramState,
    /// Executing a system call for the program, which continues at `next`.
    InSyscall {
        number: u64,
        next: u64,
        registers: Box<Registers>,
    },
    /// Executing one instruction natively, at its original address `ip`.
    Native {
        ip: u64,
        code: Option<Code>,
        /// The program has set the trap flag.
        has_trap_flag: bool,
    },
    /// The log has ended.
    Closed,
}

/// How to resume a thread after a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrapAction {
    /// Resume it in the cache.
    Continue,
    /// Single-step it: it is at a system call or at an instruction outside the cache.
    Step,
    /// Re-enter the cache: the thread has the program's registers.
    InProgramState,
    /// The thread has the program's registers, at a system call that concerns the recorder. It
    /// continues with [`Translated::begin_syscall`].
    AtCall,
}

/// The state that a new thread inherits from its parent.
#[derive(Clone, Debug)]
pub(crate) struct ParentState {
    /// The process of the parent.
    pub(crate) pid: RawTid,
    space: SharedAddressSpace,
    next: u64,
    gs_base: u64,
    /// The original first two arguments of the clone call.
    arguments: [u64; 2],
    /// Identifies the memory of the new thread. A copy has another identifier.
    memory: MemoryId,
}

impl ParentState {
    /// Returns the start and size of added memory in the memory of the new thread.
    pub(crate) fn areas(&self) -> Vec<(u64, u64)> {
        self.space.borrow().areas()
    }
}

/// A translated thread.
#[derive(Debug)]
pub(crate) struct Translated {
    tid: RawTid,
    pid: RawTid,
    pub(crate) space: SharedAddressSpace,
    /// Identifies the memory of the thread among the copies in forked processes.
    pub(crate) memory: MemoryId,
    region: Arc<Region>,
    cursor: LogCursor,
    stream: StreamId,
    pub(crate) state: ThreadState,
    /// The program's own GS base.
    gs_base: u64,
    /// Signals that arrived during work on behalf of the recorder.
    pub(crate) held: Vec<SigInfo>,
    /// Held signals that were sent again but have not arrived.
    sent: Vec<SigInfo>,
    /// The program's registers that a thread that was killed has not got. It ends there, although
    /// its last registers say otherwise.
    unset: Option<Registers>,
    /// The code version that the thread has logged.
    version: u32,
    /// The effect of the current system call on the signal state, if it succeeds.
    signal_call: Option<SignalCall>,
    /// The current system call is an `rt_sigreturn` that sets the trap flag.
    restores_trap_flag: bool,
    /// The trap of the last step is the program's own, because of its trap flag.
    has_own_trap: bool,
    /// The value log, if values are recorded.
    values: Option<TranslatedValues>,
}

impl Translated {
    /// Prepares the memory of a process for its first translated thread. The thread must be stopped
    /// in user code with the program's registers.
    pub(crate) fn first(
        tid: RawTid,
        pid: RawTid,
        registers: &Registers,
        options: TranslateOptions,
        store: Option<&Arc<CodeStore>>,
        encoders: &mut EncoderPool,
        storage: PacketStorage,
    ) -> Result<Self> {
        let gadget = Gadget::find(pid).ok_or_else(|| no_vdso(tid))?;
        let mut held = Vec::new();
        let mut tracee = Tracee {
            tid,
            gadget,
            registers: *registers,
            held: &mut held,
        };
        let block_options = BlockOptions {
            calls: options.calls,
            superblock: options.superblock,
            values: options.values.is_some(),
            ..BlockOptions::default()
        };
        let (space, region) = AddressSpace::prepare(&mut tracee, block_options, options, store)?;
        ptrace::set_registers(tid, registers)?;
        let stream = encoders.begin(Arc::clone(&region), storage);
        Ok(Self {
            tid,
            pid,
            space: Rc::new(RefCell::new(space)),
            memory: MemoryId(pid),
            region,
            cursor: LogCursor::default(),
            stream,
            state: ThreadState::ProgramState,
            gs_base: registers.gs_base,
            held,
            sent: Vec::new(),
            unset: None,
            version: 0,
            signal_call: None,
            restores_trap_flag: false,
            has_own_trap: false,
            values: options.values.map(TranslatedValues::new),
        })
    }

    /// Adds a new thread at its first stop.
    pub(crate) fn started(
        tid: RawTid,
        pid: RawTid,
        parent: ParentState,
        registers: &Registers,
        encoders: &mut EncoderPool,
        storage: PacketStorage,
    ) -> Result<Self> {
        let registers = Registers {
            orig_rax: u64::MAX,
            ..Self::child_registers(&parent, registers)
        };
        Self::join(
            tid,
            pid,
            parent.space,
            parent.memory,
            &registers,
            encoders,
            storage,
        )
    }

    /// Adds a thread to an existing address space. It must have the program's registers.
    pub(crate) fn join(
        tid: RawTid,
        pid: RawTid,
        space: SharedAddressSpace,
        memory: MemoryId,
        registers: &Registers,
        encoders: &mut EncoderPool,
        storage: PacketStorage,
    ) -> Result<Self> {
        let mut held = Vec::new();
        let gadget = space.borrow().gadget;
        let mut tracee = Tracee {
            tid,
            gadget,
            registers: *registers,
            held: &mut held,
        };
        let region = space.borrow_mut().region(&mut tracee, memory)?;
        ptrace::set_registers(tid, registers)?;
        region.reset();
        let values = space.borrow().values.map(TranslatedValues::new);
        let stream = encoders.begin(Arc::clone(&region), storage);
        Ok(Self {
            tid,
            pid,
            space,
            memory,
            region,
            cursor: LogCursor::default(),
            stream,
            state: ThreadState::ProgramState,
            gs_base: registers.gs_base,
            held,
            sent: Vec::new(),
            unset: None,
            version: 0,
            signal_call: None,
            restores_trap_flag: false,
            has_own_trap: false,
            values,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, ThreadState::Closed)
    }

    fn log(&mut self, event: LogEvent, encoders: &EncoderPool) {
        if !self.cursor.write(&self.region, event) {
            self.next_chunk(None, encoders);
            self.cursor.write(&self.region, event);
        }
    }

    /// Continues the log in the next chunk.
    fn next_chunk(&mut self, ip: Option<u64>, encoders: &EncoderPool) {
        encoders.chunk_full(self.stream, self.cursor.written(&self.region), ip);
        let next = (self.cursor.chunk + 1) % layout::CHUNK_COUNT;
        self.region.acquire_chunk(next);
        self.cursor.chunk = next;
        self.region.set_pointer(self.region.chunk(next));
    }

    /// Logs the current code version, before the thread continues at `ip`.
    ///
    /// Blocks of changed code trap in threads that have not logged the version
    /// ([`BlockOptions::min_version`]). The event therefore precedes their execution.
    fn log_version(&mut self, ip: u64, encoders: &EncoderPool) {
        let version = self.space.borrow().cache.version();
        if self.version != version {
            self.version = version;
            let time = clock::now().0;
            self.log(LogEvent::Interrupt { ip, time }, encoders);
            self.log(LogEvent::Version(u64::from(version)), encoders);
            self.log(LogEvent::Enter { ip, time }, encoders);
            self.region.set_version(version);
        }
    }

    /// Handles a fault because of a full chunk. Returns `false` for other faults.
    pub(crate) fn on_fault(
        &mut self,
        address: Option<u64>,
        registers: &Registers,
        encoders: &EncoderPool,
    ) -> Result<bool> {
        let chunk = address
            .and_then(|address| address.checked_sub(self.region.base()))
            .and_then(layout::full_chunk);
        if chunk != Some(self.cursor.chunk) || !matches!(self.state, ThreadState::InCache) {
            return Ok(false);
        }
        // The stub must be in the cache: a program could access the guard page itself.
        let entry = self.space.borrow().cache.translation_at(registers.rip);
        let Some(entry) = entry else { return Ok(false) };
        // The log is complete up to `logged_ip`. In a system call the log only contains its start.
        let in_user_code = !matches!(entry.state, InstructionState::Returned { .. });
        self.promote(&entry, registers)?;
        self.next_chunk(in_user_code.then_some(entry.logged_ip), encoders);
        let registers = Registers {
            rcx: self.region.pointer(),
            orig_rax: u64::MAX,
            ..*registers
        };
        ptrace::set_registers(self.tid, &registers)?;
        Ok(true)
    }

    /// Handles an `int3` in the cache. Returns `None` for other traps.
    pub(crate) fn on_trap(
        &mut self,
        registers: &Registers,
        encoders: &EncoderPool,
    ) -> Result<Option<TrapAction>> {
        if !matches!(self.state, ThreadState::InCache) {
            return Ok(None);
        }
        let cause = self.space.borrow().cache.cause(registers.rip.wrapping_sub(1));
        let Some(cause) = cause else { return Ok(None) };
        let mut registers = *registers;
        match cause {
            TrapCause::Exit { site, target } => {
                self.log_version(target, encoders);
                registers.rip = target;
                if !self.set_cache_ip(&registers)? {
                    return self.execute_outside(&mut registers, encoders).map(Some);
                }
                self.space.borrow_mut().cache.link(site, target);
                Ok(Some(TrapAction::Continue))
            }
            TrapCause::Miss => {
                let target = registers.rax;
                self.log_version(target, encoders);
                self.restore(SpilledRegisters::ALL, &mut registers);
                registers.rip = target;
                if !is_user(target) {
                    return self.step_natively(target, &mut registers).map(Some);
                }
                if !self.set_cache_ip(&registers)? {
                    return self.execute_outside(&mut registers, encoders).map(Some);
                }
                self.space.borrow_mut().cache.add_indirect_entry(target);
                Ok(Some(TrapAction::Continue))
            }
            TrapCause::StaleVersion { ip } => {
                self.restore_rcx(&mut registers);
                self.log_version(ip, encoders);
                registers.rip = ip;
                if !self.set_cache_ip(&registers)? {
                    return self.execute_outside(&mut registers, encoders).map(Some);
                }
                Ok(Some(TrapAction::Continue))
            }
            TrapCause::Native { ip, outcomes } => {
                self.log_outcomes(outcomes, encoders);
                registers.rip = ip;
                self.step_natively(ip, &mut registers).map(Some)
            }
            TrapCause::Predicted { ip } => {
                self.log_predicted(ip, &registers, encoders);
                Ok(Some(TrapAction::Continue))
            }
            TrapCause::Masked { ip, slot } => {
                self.stage_masked(ip, slot, &registers, encoders);
                Ok(Some(TrapAction::Continue))
            }
            TrapCause::StoredX87Pointer { ip } => {
                self.restore_rcx(&mut registers);
                self.correct_stored_x87_pointer(ip, &registers);
                Ok(Some(TrapAction::Continue))
            }
            TrapCause::SetsTrapFlag { ip, outcomes } => {
                self.restore_rcx(&mut registers);
                self.log_outcomes(outcomes, encoders);
                registers.rip = ip;
                self.pop_flags(&mut registers).map(Some)
            }
            TrapCause::InterceptedSyscall { ip, next } => {
                self.restore_rcx(&mut registers);
                registers.rip = ip;
                self.begin_or_report_syscall(&mut registers, next, encoders)
                    .map(Some)
            }
        }
    }

    /// Gives the thread the program's registers, to step one instruction natively.
    fn step_natively(&mut self, ip: u64, registers: &mut Registers) -> Result<TrapAction> {
        self.leave(registers)?;
        self.correct_x87_pointer_before(ip);
        self.begin_step(ip, registers);
        self.state = ThreadState::Native {
            ip,
            code: Code::read(self.pid, Avma(ip)),
            has_trap_flag: registers.rflags & TRAP_FLAG != 0,
        };
        Ok(TrapAction::Step)
    }

    /// Restores the program's registers in a stopped thread, and returns them.
    pub(crate) fn restore_program_state(
        &mut self,
        registers: &Registers,
        encoders: &EncoderPool,
    ) -> Result<Registers> {
        let mut now = *registers;
        match &self.state {
            ThreadState::ProgramState | ThreadState::Closed => return Ok(now),
            ThreadState::Native { ip, .. } => {
                if now.rip == *ip {
                    self.cancel_step(registers);
                } else {
                    self.on_stepped(registers, false, encoders);
                }
            }
            ThreadState::InSyscall {
                number,
                next,
                registers: before,
            } => {
                let next = *next;
                clone_calls::restore_arguments(*number, before, &mut now);
                if now.rip == next {
                    now.rcx = next;
                    now.r11 &= !TRAP_FLAG | before.rflags;
                    self.log_call(&now);
                } else if now.rip == next - SYSCALL_LEN {
                    self.log(LogEvent::NoSyscall, encoders);
                }
            }
            ThreadState::InCache => {
                if let Some(entry) = self.program_registers(&mut now, encoders) {
                    self.log_staged(&entry, &now, encoders);
                }
            }
        }
        self.correct_x87_pointer();
        now.gs_base = self.gs_base;
        if ptrace::set_registers(self.tid, &now).is_err() {
            self.unset = Some(now);
        }
        self.state = ThreadState::ProgramState;
        Ok(now)
    }

    /// Converts registers in the cache to the program's registers, and logs events that are not
    /// logged yet. Returns what was known about the address in the cache.
    fn program_registers(
        &mut self,
        registers: &mut Registers,
        encoders: &EncoderPool,
    ) -> Option<TranslationEntry> {
        let entry = self.space.borrow().cache.translation_at(registers.rip)?;
        let TranslationEntry {
            ip, state, outcomes, ..
        } = entry;
        self.log_outcomes(outcomes, encoders);
        match state {
            InstructionState::Before(spilled) => {
                self.restore(spilled, registers);
                registers.rip = ip;
            }
            InstructionState::Done { spilled, event, next } => {
                let next = match next {
                    NextIp::At(next) => next,
                    NextIp::InRax => registers.rax,
                };
                if let Some(event) = event {
                    self.log(event.completed(next), encoders);
                }
                self.restore(spilled, registers);
                registers.rip = next;
            }
            InstructionState::Logged(spilled) => {
                self.log(LogEvent::NoSyscall, encoders);
                self.restore(spilled, registers);
                registers.rip = ip;
            }
            InstructionState::Returned { spilled, next } => {
                self.restore(spilled, registers);
                (registers.rip, registers.rcx) = (next, next);
            }
        }
        registers.gs_base = self.gs_base;
        Some(entry)
    }

    fn log_outcomes(&mut self, outcomes: u8, encoders: &EncoderPool) {
        if outcomes != NO_OUTCOMES {
            self.log(LogEvent::Outcomes(outcomes), encoders);
        }
    }

    fn restore_rcx(&self, registers: &mut Registers) {
        registers.rcx = self.region.slot(layout::SAVED_RCX);
    }

    fn restore(&self, spilled: SpilledRegisters, registers: &mut Registers) {
        let all = [
            (Scratch::Rax, &mut registers.rax),
            (Scratch::Rcx, &mut registers.rcx),
            (Scratch::Rdx, &mut registers.rdx),
        ];
        for (register, value) in all {
            if spilled.holds(register) {
                *value = self.region.slot(register.slot());
            }
        }
    }

    /// Sets the program's registers in the thread.
    fn leave(&mut self, registers: &mut Registers) -> Result<()> {
        registers.gs_base = self.gs_base;
        registers.orig_rax = u64::MAX;
        ptrace::set_registers(self.tid, registers).inspect_err(|_| self.unset = Some(*registers))
    }

    /// Enters the cache from the program's registers.
    pub(crate) fn enter(&mut self, registers: &Registers, encoders: &EncoderPool) -> Result<TrapAction> {
        let mut registers = *registers;
        if !is_user(registers.rip) {
            let ip = registers.rip;
            self.end_values(encoders);
            return self.step_natively(ip, &mut registers);
        }
        registers = restarted(&registers);
        let (ip, time) = (registers.rip, clock::now().0);
        self.log_version(ip, encoders);
        self.log(LogEvent::Enter { ip, time }, encoders);
        self.begin_values(&registers, encoders);
        if registers.rflags & TRAP_FLAG != 0 {
            return self.execute_outside(&mut registers, encoders);
        }
        if !self.set_cache_ip(&registers)? {
            return self.execute_outside(&mut registers, encoders);
        }
        self.state = ThreadState::InCache;
        Ok(TrapAction::Continue)
    }

    /// Moves the thread to the translation of its address. Returns `false` if the code cannot be
    /// translated, because no address in reach is free.
    fn set_cache_ip(&mut self, registers: &Registers) -> Result<bool> {
        self.move_to_cache(registers)
            .inspect_err(|_| self.unset = Some(*registers))
    }

    fn move_to_cache(&mut self, registers: &Registers) -> Result<bool> {
        let ip = registers.rip;
        let mut space = self.space.borrow_mut();
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers: *registers,
            held: &mut self.held,
        };
        if !space.has_room(ip) && !space.extend(&mut tracee, ip)? {
            return Ok(false);
        }
        let Some(address) = space.lookup_or_translate(&mut tracee, self.pid, ip)? else {
            return Err(out_of_reach(self.tid));
        };
        self.region.set_bases([registers.fs_base, self.gs_base]);
        let registers = Registers {
            rip: address,
            gs_base: self.region.base(),
            orig_rax: u64::MAX,
            ..*registers
        };
        ptrace::set_registers(self.tid, &registers)?;
        Ok(true)
    }

    /// Prepares the delivery of a signal to a handler.
    pub(crate) fn deliver(&mut self, registers: &Registers, encoders: &EncoderPool) {
        let (ip, time) = (registers.rip, clock::now().0);
        self.end_values(encoders);
        self.log(LogEvent::Interrupt { ip, time }, encoders);
        self.state = ThreadState::Native {
            ip,
            code: Code::read(self.pid, Avma(ip)),
            has_trap_flag: registers.rflags & TRAP_FLAG != 0,
        };
    }

    /// Gives the process its own copy of the cache, before its code diverges from that of others.
    pub(crate) fn unshare(&mut self, registers: &Registers, regions: &[u64]) -> Result<SharedAddressSpace> {
        let gadget = self.space.borrow().gadget;
        let mut tracee = Tracee {
            tid: self.tid,
            gadget,
            registers: *registers,
            held: &mut self.held,
        };
        let space = self.space.borrow().unshare(&mut tracee, self.memory, regions)?;
        ptrace::set_registers(self.tid, registers)?;
        Ok(Rc::new(RefCell::new(space)))
    }

    /// Removes added memory from the process. All its threads must have the program's registers.
    pub(crate) fn remove_additions(&mut self) -> Result<()> {
        let registers = ptrace::registers(self.tid)?;
        let mut space = self.space.borrow_mut();
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers,
            held: &mut self.held,
        };
        let cleared = space.remove_additions(&mut tracee);
        for info in self.held.drain(..) {
            ptrace::send(self.pid, self.tid, info.signal());
        }
        ptrace::set_registers(self.tid, &restarted(&registers))?;
        cleared
    }

    /// Returns the address of the region.
    pub(crate) fn region(&self) -> u64 {
        self.region.base()
    }

    /// Returns whether continuing at `ip` requires another slab.
    pub(crate) fn needs_slab(&self, ip: u64) -> bool {
        is_user(ip) && !self.space.borrow().has_room(ip)
    }

    /// Returns the address where a trapped thread continues, if it is not translated and no slab
    /// has room.
    pub(crate) fn target_without_room(&self, registers: &Registers) -> Option<u64> {
        if !matches!(self.state, ThreadState::InCache) {
            return None;
        }
        let cause = self.space.borrow().cache.cause(registers.rip.wrapping_sub(1));
        let next = match cause {
            Some(TrapCause::Exit { target, .. }) => Some(target),
            Some(TrapCause::Miss) => Some(registers.rax),
            _ => None,
        };
        next.filter(|next| self.needs_slab(*next))
    }

    /// Returns whether a flush would make room for the code at `ip`.
    pub(crate) fn is_full(&self, ip: u64) -> bool {
        self.space.borrow().cache.is_full(ip)
    }

    /// Returns whether the thread has the program's registers or is not recorded.
    pub(crate) fn is_outside_cache(&self) -> bool {
        matches!(self.state, ThreadState::ProgramState | ThreadState::Closed)
    }
}

fn no_vdso(tid: RawTid) -> crate::Error {
    crate::Error::Ptrace {
        action: "find the vdso of",
        tid: tid as u32,
        source: std::io::Error::from_raw_os_error(libc::ENOENT),
    }
}

/// Returns whether an address is in the lower half of the canonical addresses (SDM volume 1,
/// "Canonical Addressing"), where user code can be. Other addresses are left to the processor, or
/// to the vsyscall page of the kernel.
fn is_user(ip: u64) -> bool {
    ip >> 47 == 0
}

fn out_of_reach(tid: RawTid) -> crate::Error {
    crate::Error::Ptrace {
        action: "translate the code of",
        tid: tid as u32,
        source: std::io::Error::from_raw_os_error(libc::ENOMEM),
    }
}
