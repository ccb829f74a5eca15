//! A thread in the code cache: its true state at every stop, and its way back in.

mod births;
mod hot;
mod outside;
mod writes;

use super::assembler::Scratch;
use super::block::{Next, Place, Saved, State as Doing, Style};
use super::cache::Cause;
use super::event::{Event, NO_OUTCOMES};
use super::layout;
use super::region::{Cursor, Region};
use super::scribe::{Keep, Scribe, StreamId};
use super::space::Space;
use super::tracee::{Gadget, Tracee};
use crate::clock;
use crate::code::Code;
use crate::error::Result;
use crate::ptrace::{self, RawTid};
use crate::stepped::will_restart;
use crate::thread::Finished;
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_pt::Avma;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of SYSCALL.
const SYSCALL_LEN: u64 = 2;
/// `restart_syscall(2)` answers this when it is to go on with a call of its own (`linux/errno.h`).
const ERESTART_RESTARTBLOCK: i64 = -516;

/// An address space, as the threads in it share it.
pub(crate) type SharedSpace = Rc<RefCell<Space>>;

/// How a program is translated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    /// Calls are logged, so that returns can be compressed.
    pub(crate) calls: bool,
    /// Threads may register restartable sequences: those that ran before have.
    pub(crate) rseq: bool,
    /// Every block is wide, not only those executed often.
    pub(crate) wide: bool,
    /// Bytes of code near each part of the program; when they are full, it is translated anew.
    pub(crate) room: u64,
}

/// Where a thread is.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// In the cache, running or stopped.
    Cached,
    /// Stopped, its registers being those of the program.
    True,
    /// Making a system call for the program, which stands before `next`.
    Special {
        number: u64,
        next: u64,
        registers: Box<Registers>,
    },
    /// Executing the one instruction at `ip` where the program has it.
    Native { ip: u64, code: Option<Code> },
    /// Its log has ended.
    Closed,
}

/// Why the recorder got control, from a thread in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trapped {
    /// It can go on at once.
    GoOn,
    /// It must be stepped: a system call, or an instruction where it stands.
    Step,
    /// It stands in its true state.
    True,
}

/// What a thread about to start another knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Kin {
    space: SharedSpace,
    next: u64,
    gs_base: u64,
    /// The first two arguments of the call, as the program gave them.
    arguments: [u64; 2],
    /// Names the memory: a copy is another.
    memory: u64,
}

impl Kin {
    /// What the recorder has added to the memory that the new thread is in, start and size of each.
    pub(crate) fn areas(&self) -> Vec<(u64, u64)> {
        self.space.borrow().areas()
    }
}

/// A thread in the cache.
#[derive(Debug)]
pub(crate) struct Translated {
    tid: RawTid,
    pid: RawTid,
    pub(crate) space: SharedSpace,
    /// Names the memory that the thread is in, where several have copies of one.
    pub(crate) memory: u64,
    region: Arc<Region>,
    cursor: Cursor,
    stream: StreamId,
    pub(crate) state: State,
    /// The program's own GS base.
    gs_base: u64,
    /// Signals that came while the thread worked for us.
    pub(crate) held: Vec<SigInfo>,
    /// Those of them that were sent anew and have not come.
    sent: Vec<SigInfo>,
    /// Changes of code that its log tells of.
    version: u32,
}

impl Translated {
    /// Prepares the memory of a process whose only translated thread this is. It must be stopped in user
    /// code, with true registers.
    pub(crate) fn first(
        tid: RawTid,
        pid: RawTid,
        registers: &Registers,
        making: Making,
        scribe: &mut Scribe,
        keep: Keep,
    ) -> Result<Self> {
        let gadget = Gadget::find(pid).ok_or_else(|| no_vdso(tid))?;
        let mut held = Vec::new();
        let mut tracee = Tracee {
            tid,
            gadget,
            registers: *registers,
            held: &mut held,
        };
        let style = Style {
            calls: making.calls,
            wide: making.wide,
            ..Style::default()
        };
        let (space, region) = Space::prepare(&mut tracee, style, making.room, making.rseq)?;
        ptrace::set_registers(tid, registers)?;
        let stream = scribe.begin(Arc::clone(&region), keep);
        Ok(Self {
            tid,
            pid,
            space: Rc::new(RefCell::new(space)),
            memory: pid as u64,
            region,
            cursor: Cursor::default(),
            stream,
            state: State::True,
            gs_base: registers.gs_base,
            held,
            sent: Vec::new(),
            version: 0,
        })
    }

    /// A thread that another has started, at its first stop.
    pub(crate) fn started(
        tid: RawTid,
        pid: RawTid,
        kin: Kin,
        registers: &Registers,
        scribe: &mut Scribe,
        keep: Keep,
    ) -> Result<Self> {
        let registers = Registers {
            orig_rax: u64::MAX,
            ..Self::born(&kin, registers)
        };
        Self::join(tid, pid, kin.space, kin.memory, &registers, scribe, keep)
    }

    /// A thread found in an address space that is prepared, its registers being true.
    pub(crate) fn join(
        tid: RawTid,
        pid: RawTid,
        space: SharedSpace,
        memory: u64,
        registers: &Registers,
        scribe: &mut Scribe,
        keep: Keep,
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
        let stream = scribe.begin(Arc::clone(&region), keep);
        Ok(Self {
            tid,
            pid,
            space,
            memory,
            region,
            cursor: Cursor::default(),
            stream,
            state: State::True,
            gs_base: registers.gs_base,
            held,
            sent: Vec::new(),
            version: 0,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    fn log(&mut self, event: Event, scribe: &Scribe) {
        if !self.cursor.write(&self.region, event) {
            self.turn_over(None, scribe);
            self.cursor.write(&self.region, event);
        }
    }

    /// Goes on in the next chunk of the log.
    fn turn_over(&mut self, told: Option<u64>, scribe: &Scribe) {
        scribe.full(self.stream, self.cursor.written(&self.region), told);
        let next = (self.cursor.chunk + 1) % layout::CHUNK_COUNT;
        self.region.take(next);
        self.cursor.chunk = next;
        self.region.set_pointer(self.region.chunk(next));
    }

    /// Tells the log, the thread being about to go on at `ip`, that code has changed.
    ///
    /// Blocks of changed code trap where the thread was not told ([`Style::since`]): so this comes in time, by
    /// whichever way it gets there.
    fn tell_version(&mut self, ip: u64, scribe: &Scribe) {
        let version = self.space.borrow().cache.version();
        if self.version != version {
            self.version = version;
            let time = clock::now().0;
            self.log(Event::Interrupt { ip, time }, scribe);
            self.log(Event::Version(u64::from(version)), scribe);
            self.log(Event::Enter { ip, time }, scribe);
            self.region.set_version(version);
        }
    }

    /// Handles a fault of the stub that found its chunk full; `false`: it was no such fault.
    pub(crate) fn on_fault(
        &mut self,
        address: Option<u64>,
        registers: &Registers,
        scribe: &Scribe,
    ) -> Result<bool> {
        let chunk = address
            .and_then(|address| address.checked_sub(self.region.base))
            .and_then(layout::full_chunk);
        if chunk != Some(self.cursor.chunk) || !matches!(self.state, State::Cached) {
            return Ok(false);
        }
        // A fault that has only our own address would be the program's, had it guessed it.
        let place = self.space.borrow().cache.place(registers.rip);
        let Some(place) = place else { return Ok(false) };
        // The log tells of everything up to where `told` says; of a system call, only that it was made.
        let in_user_code = !matches!(place.state, Doing::Returned { .. });
        self.widen(&place, registers)?;
        self.turn_over(in_user_code.then_some(place.told), scribe);
        let registers = Registers {
            rcx: self.region.pointer(),
            orig_rax: u64::MAX,
            ..*registers
        };
        ptrace::set_registers(self.tid, &registers)?;
        Ok(true)
    }

    /// Handles an `int3` of the cache; `None`: it is none of ours.
    pub(crate) fn on_trap(&mut self, registers: &Registers, scribe: &Scribe) -> Result<Option<Trapped>> {
        if !matches!(self.state, State::Cached) {
            return Ok(None);
        }
        let cause = self.space.borrow().cache.cause(registers.rip.wrapping_sub(1));
        let Some(cause) = cause else { return Ok(None) };
        let mut registers = *registers;
        match cause {
            Cause::Exit { site, target } => {
                self.tell_version(target, scribe);
                registers.rip = target;
                self.go_in(&registers)?;
                self.space.borrow_mut().cache.link(site, target);
                Ok(Some(Trapped::GoOn))
            }
            Cause::Miss => {
                let target = registers.rax;
                self.tell_version(target, scribe);
                self.restore(Saved::ALL, &mut registers);
                registers.rip = target;
                if !is_user(target) {
                    return self.stand_at(target, &mut registers).map(Some);
                }
                self.go_in(&registers)?;
                self.space.borrow_mut().cache.land(target);
                Ok(Some(Trapped::GoOn))
            }
            Cause::Untold { ip } => {
                self.restore_rcx(&mut registers);
                self.tell_version(ip, scribe);
                registers.rip = ip;
                self.go_in(&registers)?;
                Ok(Some(Trapped::GoOn))
            }
            Cause::Native { ip, outcomes } => {
                self.log_outcomes(outcomes, scribe);
                registers.rip = ip;
                self.stand_at(ip, &mut registers).map(Some)
            }
            Cause::Special { next, .. } => {
                self.restore_rcx(&mut registers);
                self.begin_call(&registers, next, scribe).map(Some)
            }
        }
    }

    /// Gives the thread the registers of the program, to be stepped where it stands.
    fn stand_at(&mut self, ip: u64, registers: &mut Registers) -> Result<Trapped> {
        self.leave(registers)?;
        self.state = State::Native {
            ip,
            code: Code::read(self.pid, Avma(ip)),
        };
        Ok(Trapped::Step)
    }

    /// Brings a stopped thread into its true state; gives its registers.
    pub(crate) fn settle(&mut self, registers: &Registers, scribe: &Scribe) -> Result<Registers> {
        let mut now = *registers;
        match &self.state {
            State::True | State::Closed => return Ok(now),
            State::Native { ip, .. } => {
                if now.rip != *ip {
                    self.on_stepped(registers, false, scribe);
                }
            }
            State::Special {
                number,
                next,
                registers: before,
            } => {
                let (next, gadget) = (*next, self.space.borrow().gadget);
                births::restore_arguments(*number, before, &mut now);
                if now.rip == gadget.behind() {
                    (now.rip, now.rcx) = (next, next);
                } else if now.rip == gadget.syscall {
                    self.log(Event::NoSyscall, scribe);
                    now.rip = next - SYSCALL_LEN;
                }
            }
            State::Cached => self.true_registers(&mut now, scribe),
        }
        now.gs_base = self.gs_base;
        // A thread that was killed meanwhile has no use for registers.
        let _ = ptrace::set_registers(self.tid, &now);
        self.state = State::True;
        Ok(now)
    }

    /// From registers in the cache to those of the program, telling the log what it does not know yet.
    fn true_registers(&mut self, registers: &mut Registers, scribe: &Scribe) {
        let place = self.space.borrow().cache.place(registers.rip);
        let Some(Place {
            ip, state, outcomes, ..
        }) = place
        else {
            return;
        };
        self.log_outcomes(outcomes, scribe);
        match state {
            Doing::Before(saved) => {
                self.restore(saved, registers);
                registers.rip = ip;
            }
            Doing::Done { saved, event, next } => {
                let next = match next {
                    Next::At(next) => next,
                    Next::InRax => registers.rax,
                };
                if let Some(event) = event {
                    self.log(event.completed(next), scribe);
                }
                self.restore(saved, registers);
                registers.rip = next;
            }
            Doing::Told(saved) => {
                self.log(Event::NoSyscall, scribe);
                self.restore(saved, registers);
                registers.rip = ip;
            }
            Doing::Returned { saved, next } => {
                self.restore(saved, registers);
                (registers.rip, registers.rcx) = (next, next);
            }
        }
    }

    fn log_outcomes(&mut self, outcomes: u8, scribe: &Scribe) {
        if outcomes != NO_OUTCOMES {
            self.log(Event::Outcomes(outcomes), scribe);
        }
    }

    fn restore_rcx(&self, registers: &mut Registers) {
        registers.rcx = self.region.slot(layout::SAVED_RCX);
    }

    fn restore(&self, saved: Saved, registers: &mut Registers) {
        let all = [
            (Scratch::Rax, &mut registers.rax),
            (Scratch::Rcx, &mut registers.rcx),
            (Scratch::Rdx, &mut registers.rdx),
        ];
        for (register, value) in all {
            if saved.holds(register) {
                *value = self.region.slot(register.slot());
            }
        }
    }

    /// Gives the thread the registers of the program.
    fn leave(&self, registers: &mut Registers) -> Result<()> {
        registers.gs_base = self.gs_base;
        registers.orig_rax = u64::MAX;
        ptrace::set_registers(self.tid, registers)
    }

    /// From its true state into the cache.
    pub(crate) fn enter(&mut self, registers: &Registers, scribe: &Scribe) -> Result<Trapped> {
        let mut registers = *registers;
        if !is_user(registers.rip) {
            let ip = registers.rip;
            return self.stand_at(ip, &mut registers);
        }
        if will_restart(&registers) {
            // As the kernel would: the system call is executed once more.
            registers.rip -= SYSCALL_LEN;
            registers.rax = if registers.rax as i64 == ERESTART_RESTARTBLOCK {
                libc::SYS_restart_syscall as u64
            } else {
                registers.orig_rax
            };
        }
        let (ip, time) = (registers.rip, clock::now().0);
        self.tell_version(ip, scribe);
        self.log(Event::Enter { ip, time }, scribe);
        self.go_in(&registers)?;
        self.state = State::Cached;
        Ok(Trapped::GoOn)
    }

    /// Puts the thread at the translation of its address.
    fn go_in(&mut self, registers: &Registers) -> Result<()> {
        let ip = registers.rip;
        let mut space = self.space.borrow_mut();
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers: *registers,
            held: &mut self.held,
        };
        if !space.has_room(ip) {
            space.extend(&mut tracee, ip)?;
        }
        let Some(address) = space.look_up(&mut tracee, self.pid, ip)? else {
            return Err(out_of_reach(self.tid));
        };
        let registers = Registers {
            rip: address,
            gs_base: self.region.base,
            orig_rax: u64::MAX,
            ..*registers
        };
        ptrace::set_registers(self.tid, &registers)
    }

    /// A signal is about to be delivered to a handler, from the true state.
    pub(crate) fn deliver(&mut self, registers: &Registers, scribe: &Scribe) {
        let (ip, time) = (registers.rip, clock::now().0);
        self.log(Event::Interrupt { ip, time }, scribe);
        self.state = State::Native {
            ip,
            code: Code::read(self.pid, Avma(ip)),
        };
    }

    /// Gives the process a copy of its address space's cache, for its code is about to differ from others'.
    pub(crate) fn split(&mut self, registers: &Registers, regions: &[u64]) -> Result<SharedSpace> {
        let gadget = self.space.borrow().gadget;
        let mut tracee = Tracee {
            tid: self.tid,
            gadget,
            registers: *registers,
            held: &mut self.held,
        };
        let space = self.space.borrow().split(&mut tracee, self.memory, regions)?;
        ptrace::set_registers(self.tid, registers)?;
        Ok(Rc::new(RefCell::new(space)))
    }

    /// Gives the process its memory back as it was; its threads must be in their true states.
    pub(crate) fn clear(&mut self) -> Result<()> {
        let registers = ptrace::registers(self.tid)?;
        let mut space = self.space.borrow_mut();
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers,
            held: &mut self.held,
        };
        let cleared = space.clear(&mut tracee);
        for info in self.held.drain(..) {
            ptrace::send(self.pid, self.tid, info.signal());
        }
        ptrace::set_registers(self.tid, &registers)?;
        cleared
    }

    /// Where its region is.
    pub(crate) fn region(&self) -> u64 {
        self.region.base
    }

    /// Whether going on at `ip` needs memory added to the program.
    pub(crate) fn must_extend(&self, ip: u64) -> bool {
        is_user(ip) && !self.space.borrow().has_room(ip)
    }

    /// Where a thread that has trapped goes on, when that is not translated and there is no room to.
    pub(crate) fn wants_room(&self, registers: &Registers) -> Option<u64> {
        if !matches!(self.state, State::Cached) {
            return None;
        }
        let cause = self.space.borrow().cache.cause(registers.rip.wrapping_sub(1));
        let next = match cause {
            Some(Cause::Exit { target, .. }) => Some(target),
            Some(Cause::Miss) => Some(registers.rax),
            _ => None,
        };
        next.filter(|next| self.must_extend(*next))
    }

    /// Whether emptying the cache would make room for the code at `ip`.
    pub(crate) fn is_full(&self, ip: u64) -> bool {
        self.space.borrow().cache.is_full(ip)
    }

    /// Not in the cache, nor at work for us.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state, State::True | State::Closed)
    }

    /// Has the signals that came while the thread worked for us come anew, before it executes anything else.
    pub(crate) fn send_held(&mut self) {
        for info in self.held.drain(..) {
            ptrace::send(self.pid, self.tid, info.signal());
            self.sent.push(info);
        }
    }

    /// A signal has come: what it said when it came first, if it was held.
    pub(crate) fn as_it_came(&mut self, info: SigInfo) -> SigInfo {
        let Some(first) = self.sent.iter().position(|sent| sent.signal() == info.signal()) else {
            return info;
        };
        let came = self.sent.remove(first);
        // Another one of its kind was there before ours, and stands for both.
        if info.code() != libc::SI_TKILL || ptrace::set_siginfo(self.tid, &came).is_err() {
            return info;
        }
        came
    }

    /// Ends the log with the thread at `ip`.
    pub(crate) fn close(&mut self, ip: u64, scribe: &Scribe) {
        if !self.is_closed() {
            let time = clock::now().0;
            self.log(Event::Interrupt { ip, time }, scribe);
            self.state = State::Closed;
        }
    }

    /// Ends a dying thread's log, out of the registers that it stopped with.
    pub(crate) fn close_dying(&mut self, registers: &Registers, scribe: &Scribe) {
        let mut now = *registers;
        match &self.state {
            State::Cached => self.true_registers(&mut now, scribe),
            State::Special { next, .. } => now.rip = *next,
            _ => {}
        }
        self.close(now.rip, scribe);
    }

    /// Waits for the packets.
    pub(crate) fn finish(self, scribe: &Scribe) -> Option<Finished> {
        let end = self.cursor.written(&self.region);
        let written = scribe.end(self.stream, end).recv().ok()?;
        self.space.borrow_mut().give_back(self.memory, self.region);
        Some(Finished {
            packets: written.packets,
            dropped: written.dropped,
            instructions: None,
            bytes: written.bytes,
            gaps: written.gaps,
            golden: Vec::new(),
            boundaries: written.boundaries,
            failure: written.failure,
        })
    }
}

fn no_vdso(tid: RawTid) -> crate::Error {
    crate::Error::Ptrace {
        action: "find the vdso of",
        tid: tid as u32,
        source: std::io::Error::from_raw_os_error(libc::ENOENT),
    }
}

/// The program's memory can be there: the lower half of the canonical addresses (SDM volume 1, "Canonical Addressing").
/// Elsewhere the processor, or the kernel's vsyscall page, is left to do what it does.
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
