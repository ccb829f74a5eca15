//! Stops of threads in the code cache.

use super::signals::HANDLER_ENTRY;
use super::{Hold, Session};
use crate::error::{Error, Result};
use crate::ptrace::{self, RawTid, Stop};
use crate::recorded::Process;
use crate::thread::{Following, Run, Thread};
use crate::translate::{Kin, Making, Scribe, SharedSpace, State, Translated, Trapped};
use backtrail_bundle::BundlePath;
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_process::status::{self, DefaultAction, Disposition};
use backtrail_pt::{Avma, Pid};
use std::collections::HashMap;
use std::rc::Rc;

/// Code of 64-bit programs (`__USER_CS`).
const USER_CS: u64 = 0x33;

/// Who has started whom.
#[derive(Debug, Default)]
pub(super) struct Kindred {
    /// Threads announced by the one that starts them.
    expected: HashMap<RawTid, Kin>,
    /// Threads that have stopped before they were announced.
    early: Vec<RawTid>,
    /// Where the packets of a thread go.
    pub(super) files: HashMap<RawTid, BundlePath>,
}

impl Session<'_> {
    /// A stop of a thread in the cache, or at work for us.
    pub(super) fn on_translated(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        match stop {
            Stop::Signal(signal) => return self.on_translated_signal(tid, signal, registers),
            Stop::Event(libc::PTRACE_EVENT_EXIT) => {
                return self.on_exit(tid, registers);
            }
            Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) => {
                self.on_birth(tid)?;
                // It is still in the system call, where nothing can be done in its place. After vfork it stays there.
                let ends_soon = stop != Stop::Event(libc::PTRACE_EVENT_VFORK);
                let is_our_call = followed(&mut self.threads, &self.scribe, tid)
                    .is_some_and(|thread| matches!(thread.translated.state, State::Special { .. }));
                if ends_soon && is_our_call && self.is_held(tid) {
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        thread.run = Run::Running;
                    }
                    return ptrace::step(tid, 0);
                }
            }
            Stop::Group(_) if self.hold == Hold::Nobody => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.run = Run::Listening;
                }
                let _ = ptrace::listen(tid);
                return Ok(());
            }
            Stop::Interrupted | Stop::Group(_) if self.is_held(tid) => {
                // What a trap or fault means must be told by the place where it happened.
                if [libc::SIGTRAP, libc::SIGSEGV]
                    .into_iter()
                    .any(|signal| status::is_pending(tid, signal))
                {
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        thread.run = Run::Running;
                    }
                    return ptrace::resume(tid, 0);
                }
                self.settle(tid, registers)?;
            }
            _ => {}
        }
        self.go_on(tid);
        Ok(())
    }

    fn on_translated_signal(&mut self, tid: RawTid, signal: i32, registers: &Registers) -> Result<()> {
        let Ok(info) = ptrace::siginfo(tid) else {
            return Ok(());
        };
        let info = match followed(&mut self.threads, &self.scribe, tid) {
            Some(Followed { translated, .. }) => translated.as_it_came(info),
            None => info,
        };
        if self.is_ours(tid, signal, &info, registers)? {
            return Ok(());
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        thread.signal = Some(info);
        if !thread.is_closed() {
            let stopped = registers.pc();
            let registers = self.settle(tid, registers)?;
            self.move_fault(tid, &info, stopped, registers.pc());
            let fatal = status::default_action(signal) == DefaultAction::Terminate
                && status::is_default_signal(tid, signal);
            if fatal && self.hold == Hold::Nobody {
                self.on_fatal(tid, &registers)?;
            }
        }
        self.go_on(tid);
        Ok(())
    }

    /// Where a signal names the instruction that raised it, it is to be the program's, and not ours for it (sigaction(2), `si_addr`).
    fn move_fault(&mut self, tid: RawTid, info: &SigInfo, from: Avma, to: Avma) {
        const OF_INSTRUCTIONS: [i32; 3] = [libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
        if from == to || !OF_INSTRUCTIONS.contains(&info.signal()) || info.address() != Some(from) {
            return;
        }
        let info = info.with_address(to);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.signal = Some(info);
        }
        // Only a thread that dies meanwhile has none to set.
        let _ = ptrace::set_siginfo(tid, &info);
    }

    /// Whether the stop was made by our own code or doing, and is dealt with.
    fn is_ours(&mut self, tid: RawTid, signal: i32, info: &SigInfo, registers: &Registers) -> Result<bool> {
        let apart = self.shares_cache(tid);
        let Some(Followed {
            translated, scribe, ..
        }) = followed(&mut self.threads, &self.scribe, tid)
        else {
            return Ok(false);
        };
        if signal == libc::SIGTRAP
            && let Some(next) = translated.wants_room(registers)
            && (apart || translated.is_full(next))
        {
            // At the trap itself, not behind it.
            let at = Registers {
                rip: registers.rip - 1,
                ..*registers
            };
            translated.settle(&at, scribe)?;
            if !apart {
                self.empty_cache(tid)?;
            }
            self.go_on(tid);
            return Ok(true);
        }
        if apart && signal == libc::SIGSEGV && translated.is_write(info) {
            let registers = translated.settle(registers, scribe)?;
            self.split(tid, &registers)?;
            return self.is_ours(tid, signal, info, &registers);
        }
        let done = match signal {
            libc::SIGSEGV => {
                let address = info.address().map(|address| address.0);
                if translated.on_fault(address, registers, scribe)? {
                    Some(Trapped::GoOn)
                } else {
                    translated.on_write(info, registers, scribe)?
                }
            }
            libc::SIGTRAP => translated.on_trap(registers, scribe)?,
            _ => None,
        };
        match done {
            None => {}
            Some(Trapped::True) => {
                self.go_on(tid);
                return Ok(true);
            }
            Some(_) if self.is_held(tid) => {
                let registers = ptrace::registers(tid)?;
                self.settle(tid, &registers)?;
                return Ok(true);
            }
            Some(done) => {
                let Some(thread) = self.threads.get_mut(&tid) else {
                    return Ok(true);
                };
                thread.run = Run::Running;
                if let Following::Translated(translated) = &mut thread.following {
                    translated.send_held();
                }
                // Failing means that it was killed: its end will be reported.
                let _ = match done {
                    Trapped::Step => ptrace::step(tid, 0),
                    _ => ptrace::resume(tid, 0),
                };
                return Ok(true);
            }
        }
        if signal != libc::SIGTRAP {
            return Ok(false);
        }
        let Some(Followed {
            translated, scribe, ..
        }) = followed(&mut self.threads, &self.scribe, tid)
        else {
            return Ok(false);
        };
        if let Some((number, before, now)) = translated.end_call(registers)? {
            self.after_call(tid, number, &before, &now)?;
            self.go_on(tid);
            return Ok(true);
        }
        let stepped = translated.on_breakpoint(registers, scribe);
        if !stepped && translated.on_stepped(registers, info.code() == HANDLER_ENTRY, scribe) {
            if info.code() == HANDLER_ENTRY {
                ptrace::unblock_trap(tid);
            }
            self.go_on(tid);
            return Ok(true);
        }
        Ok(false)
    }

    /// Brings a stopped thread into its true state.
    pub(super) fn settle(&mut self, tid: RawTid, registers: &Registers) -> Result<Registers> {
        match followed(&mut self.threads, &self.scribe, tid) {
            Some(Followed {
                translated, scribe, ..
            }) => translated.settle(registers, scribe),
            None => Ok(*registers),
        }
    }

    /// Brings all stopped threads into their true states: one that starts another stops while we make the call for it.
    pub(super) fn settle_all(&mut self) -> Result<()> {
        for tid in self.tids(|thread| thread.run == Run::Stopped) {
            if let Ok(registers) = ptrace::registers(tid) {
                self.settle(tid, &registers)?;
            }
        }
        Ok(())
    }

    /// Resumes a thread in the cache.
    pub(super) fn go_on_translated(&mut self, tid: RawTid) {
        let Err(error) = self.try_to_go_on(tid) else {
            return;
        };
        // Of a thread that was killed meanwhile the end will be reported. Any other runs on by itself.
        let Ok(registers) = ptrace::registers(tid) else {
            return;
        };
        self.notes
            .push(format!("thread {tid} could not be followed to its end: {error}"));
        if let Some(Followed {
            run,
            translated,
            scribe,
            ..
        }) = followed(&mut self.threads, &self.scribe, tid)
        {
            *run = Run::Running;
            translated.close(registers.rip, scribe);
            translated.send_held();
        }
        let _ = ptrace::resume(tid, 0);
    }

    fn try_to_go_on(&mut self, tid: RawTid) -> Result<()> {
        self.keep_apart(tid)?;
        let Some(Followed {
            run,
            signal,
            translated,
            scribe,
            ..
        }) = followed(&mut self.threads, &self.scribe, tid)
        else {
            return Ok(());
        };
        *run = Run::Running;
        translated.send_held();
        match translated.state {
            State::Cached => ptrace::resume(tid, 0),
            State::Special { .. } | State::Native { .. } => ptrace::step(tid, 0),
            State::Closed => ptrace::resume(tid, signal.take().map_or(0, |info| info.signal())),
            State::True => {
                let signal = signal.take().map_or(0, |info| info.signal());
                let registers = ptrace::registers(tid)?;
                if signal != 0 && status::disposition(tid, signal) == Disposition::Handled {
                    translated.deliver(&registers, scribe);
                    return ptrace::step(tid, signal);
                }
                if let Err(error) = translated.enter(&registers, scribe) {
                    ptrace::set_registers(tid, &registers)?;
                    return Err(error);
                }
                // Entering may have been work, too.
                translated.send_held();
                ptrace::resume(tid, signal)
            }
        }
    }

    /// A process that shares the cache with another, and needs memory added or has changed its code, gets
    /// a cache of its own. The thread is in its true state.
    fn keep_apart(&mut self, tid: RawTid) -> Result<()> {
        let Some(Following::Translated(translated)) = self.threads.get(&tid).map(|thread| &thread.following)
        else {
            return Ok(());
        };
        if !matches!(translated.state, State::True) || !self.shares_cache(tid) {
            return Ok(());
        }
        let registers = ptrace::registers(tid)?;
        if translated.must_extend(registers.rip) {
            self.split(tid, &registers)?;
        }
        Ok(())
    }

    /// Forgets all that was translated for a process, where all its threads can be stopped outside the
    /// cache; else it will get more memory.
    fn empty_cache(&mut self, tid: RawTid) -> Result<()> {
        let Some((pid, space)) = self.space(tid) else {
            return Ok(());
        };
        if self.hold != Hold::Nobody {
            return Ok(());
        }
        self.halt(Hold::Process(pid))?;
        let threads = self.tids(|thread| match &thread.following {
            Following::Translated(other) => Rc::ptr_eq(&other.space, &space),
            _ => false,
        });
        let out = threads
            .iter()
            .filter_map(|tid| self.threads.get(tid))
            .all(|thread| match &thread.following {
                Following::Translated(other) => thread.run == Run::Stopped && other.is_out(),
                _ => true,
            });
        if out {
            space.borrow_mut().empty();
        }
        self.hold = Hold::Nobody;
        let others = threads.into_iter().filter(|other| *other != tid);
        others.for_each(|other| self.go_on(other));
        Ok(())
    }

    /// A translated thread's process and address space.
    fn space(&self, tid: RawTid) -> Option<(RawTid, SharedSpace)> {
        let thread = self.threads.get(&tid)?;
        match &thread.following {
            Following::Translated(translated) => Some((thread.pid, Rc::clone(&translated.space))),
            _ => None,
        }
    }

    /// Whether any thread is in this memory.
    pub(super) fn is_used(&self, space: &SharedSpace, memory: u64) -> bool {
        self.threads.values().any(|thread| match &thread.following {
            Following::Translated(other) => Rc::ptr_eq(&other.space, space) && other.memory == memory,
            _ => false,
        })
    }

    /// Whether a process with other memory runs in the same cache.
    pub(super) fn shares_cache(&self, tid: RawTid) -> bool {
        let Some(Following::Translated(one)) = self.threads.get(&tid).map(|thread| &thread.following) else {
            return false;
        };
        self.threads.values().any(|thread| match &thread.following {
            Following::Translated(other) => {
                Rc::ptr_eq(&one.space, &other.space) && one.memory != other.memory
            }
            _ => false,
        })
    }

    pub(super) fn split(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let Some(Following::Translated(one)) = self.threads.get(&tid).map(|thread| &thread.following) else {
            return Ok(());
        };
        let memory = one.memory;
        let same = |thread: &Thread| matches!(&thread.following, Following::Translated(other) if other.memory == memory);
        let tids = self.tids(same);
        let regions: Vec<u64> = tids
            .iter()
            .filter_map(|tid| match &self.threads.get(tid)?.following {
                Following::Translated(other) => Some(other.region()),
                _ => None,
            })
            .collect();
        let Some(Followed { translated, .. }) = followed(&mut self.threads, &self.scribe, tid) else {
            return Ok(());
        };
        let space = translated.split(registers, &regions)?;
        for tid in tids {
            if let Some(Followed { translated, .. }) = followed(&mut self.threads, &self.scribe, tid) {
                let shared = std::mem::replace(&mut translated.space, Rc::clone(&space));
                shared.borrow_mut().forget(memory);
            }
        }
        Ok(())
    }

    /// Looks for code that has come to a process.
    pub(super) fn update_image(&mut self, pid: RawTid) {
        let added = self.added(pid);
        let fragments = self.threads.values().find_map(|thread| match &thread.following {
            Following::Translated(translated) if thread.pid == pid => {
                Some(translated.space.borrow().fragments())
            }
            _ => None,
        });
        if let Some(process) = self.processes.get_mut(&pid) {
            process.image.added = added;
            process.image.update(pid);
            process.fragments = fragments.unwrap_or_default();
        }
        self.limit_open_files();
    }

    /// What we have added to a process, start and size of each.
    pub(super) fn added(&self, pid: RawTid) -> Vec<(u64, u64)> {
        self.threads
            .values()
            .filter(|thread| thread.pid == pid)
            .find_map(|thread| match &thread.following {
                Following::Translated(translated) => Some(translated.space.borrow().areas()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// A thread has started another.
    fn on_birth(&mut self, tid: RawTid) -> Result<()> {
        let Ok(child) = ptrace::event_message(tid) else {
            return Ok(());
        };
        let child = child as RawTid;
        let kin = followed(&mut self.threads, &self.scribe, tid)
            .and_then(|Followed { translated, .. }| translated.kin(child));
        match kin {
            Some(kin) => {
                self.kindred.expected.insert(child, kin);
            }
            // Its parent was not in the cache: it is where it seems to be, as one that ran before.
            None => {
                self.attached.insert(child);
            }
        }
        if let Some(index) = self.kindred.early.iter().position(|early| *early == child) {
            self.kindred.early.swap_remove(index);
            if let Ok(registers) = ptrace::registers(child) {
                return self.on_new_translated(child, Stop::Interrupted, &registers);
            }
        }
        Ok(())
    }

    /// A new thread, and recording is over: it leaves the cache.
    pub(super) fn leave_newborn(&mut self, tid: RawTid, registers: &Registers) {
        if let Some(kin) = self.kindred.expected.remove(&tid) {
            let registers = Translated::born(&kin, registers);
            // Failing means that it was killed.
            let _ = ptrace::set_registers(tid, &registers);
        }
    }

    /// Stopped threads of which nobody has said who started them.
    pub(super) fn newborns(&mut self) -> Vec<RawTid> {
        std::mem::take(&mut self.kindred.early)
    }

    /// A new thread's first stop.
    pub(super) fn on_new_translated(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        let pid = status::thread_group(tid).unwrap_or(tid);
        let known = self.processes.contains_key(&pid);
        if stop == Stop::Event(libc::PTRACE_EVENT_EXIT) {
            // Killed before it ran under our eyes: whoever holds it now holds it for ever, and the recording with it.
            self.kindred.expected.remove(&tid);
            self.kindred.early.retain(|early| *early != tid);
            self.attached.remove(&tid);
            return ptrace::resume(tid, 0);
        }
        let attached = self.attached.remove(&tid);
        let Some(kin) = self.kindred.expected.remove(&tid) else {
            if attached {
                return self.adopt(tid, pid, stop, registers);
            }
            self.kindred.early.push(tid);
            return Ok(());
        };
        if !known && !self.settings.follow {
            let registers = Translated::born(&kin, registers);
            let _ = ptrace::set_registers(tid, &registers);
            self.let_go(tid);
            return Ok(());
        }
        if !known {
            self.add_process(pid, Process::new(pid, kin.areas(), &self.files));
        }
        ptrace::unblock_trap(tid);
        let keep = self.keep(tid)?;
        let Some(scribe) = &mut self.scribe else {
            return Ok(());
        };
        let true_registers = Translated::born(&kin, registers);
        let translated = match Translated::started(tid, pid, kin, registers, scribe, keep) {
            Ok(translated) => translated,
            Err(error) => return self.step_instead(tid, pid, &true_registers, &error),
        };
        let translated = Following::Translated(Box::new(translated));
        self.threads.insert(tid, Thread::new(tid, pid, translated));
        self.update_added(pid);
        self.go_on(tid);
        Ok(())
    }

    fn update_added(&mut self, pid: RawTid) {
        let added = self.added(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.image.added = added;
        }
    }

    /// A thread that ran before we came.
    fn adopt(&mut self, tid: RawTid, pid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        let known = self.processes.contains_key(&pid);
        if !known && !self.settings.follow {
            self.let_go(tid);
            return Ok(());
        }
        if registers.cs != USER_CS {
            return Err(Error::Not64Bit(Pid(pid as u32)));
        }
        if !known {
            self.add_process(pid, Process::new(pid, Vec::new(), &self.files));
        }
        if let Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) =
            stop
        {
            self.on_birth(tid)?;
        }
        if !matches!(stop, Stop::Interrupted) {
            // Its first stop was another: the one asked for comes later.
            self.attached.insert(tid);
            let signal = if let Stop::Signal(signal) = stop {
                signal
            } else {
                0
            };
            return ptrace::resume(tid, signal);
        }
        self.threads
            .insert(tid, Thread::new(tid, pid, Following::Arriving));
        self.begin_translating(tid, registers)
    }

    /// A thread that has executed a program comes to user code.
    pub(super) fn on_arriving(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        match stop {
            Stop::Signal(libc::SIGTRAP) => self.begin_translating(tid, registers),
            Stop::Event(libc::PTRACE_EVENT_EXIT) => self.on_exit(tid, registers),
            Stop::Signal(_) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.signal = ptrace::siginfo(tid).ok();
                }
                self.go_on(tid);
                Ok(())
            }
            Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) => {
                self.on_birth(tid)?;
                self.go_on(tid);
                Ok(())
            }
            _ => {
                self.go_on(tid);
                Ok(())
            }
        }
    }

    /// A thread in user code begins to be translated; where that is impossible, to be stepped.
    fn begin_translating(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let Some(pid) = self.threads.get(&tid).map(|thread| thread.pid) else {
            return Ok(());
        };
        if self.scribe.is_none() {
            self.scribe = Some(Scribe::start(self.settings.encoder, self.others())?);
        }
        let keep = self.keep(tid)?;
        let kin = self.threads.values().find_map(|thread| match &thread.following {
            Following::Translated(translated) if thread.pid == pid => {
                Some((Rc::clone(&translated.space), translated.memory))
            }
            _ => None,
        });
        let making = Making {
            calls: self.settings.encoder.compress_returns,
            rseq: !self.ours,
            wide: self.settings.all_wide,
            room: self.settings.cache,
        };
        let Some(scribe) = &mut self.scribe else {
            return Ok(());
        };
        let translated = match kin {
            Some((space, memory)) => Translated::join(tid, pid, space, memory, registers, scribe, keep),
            None => Translated::first(tid, pid, registers, making, scribe, keep),
        };
        match translated {
            Ok(translated) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.following = Following::Translated(Box::new(translated));
                }
                self.update_added(pid);
                self.go_on(tid);
                Ok(())
            }
            Err(error) => self.step_instead(tid, pid, registers, &error),
        }
    }

    /// A thread could not be prepared.
    fn step_instead(&mut self, tid: RawTid, pid: RawTid, registers: &Registers, error: &Error) -> Result<()> {
        self.threads.remove(&tid);
        // One that was killed meanwhile needs nothing.
        if ptrace::registers(tid).is_err() {
            return Ok(());
        }
        let _ = ptrace::set_registers(tid, registers);
        self.remove_file(tid);
        let note = format!(
            "thread {tid} of process {pid} cannot be translated ({error}); it is stepped instead, which is slow"
        );
        self.notes.push(note);
        self.on_new_stepped(tid, Stop::Interrupted, registers)
    }

    /// Removes what we have added to processes that are let go; all their threads have settled.
    pub(super) fn clear(&mut self) {
        let mut cleared = Vec::new();
        for tid in self.tids(|_| true) {
            let Some(Followed { translated, .. }) = followed(&mut self.threads, &self.scribe, tid) else {
                continue;
            };
            if !cleared.contains(&translated.memory) {
                cleared.push(translated.memory);
                if let Err(error) = translated.clear() {
                    self.notes.push(format!(
                        "memory that recording added to thread {tid} is still there: {error}"
                    ));
                }
            }
        }
    }
}

/// A translated thread, and who writes its packets.
pub(super) struct Followed<'a> {
    pub(super) pid: RawTid,
    run: &'a mut Run,
    signal: &'a mut Option<SigInfo>,
    pub(super) translated: &'a mut Translated,
    scribe: &'a Scribe,
}

pub(super) fn followed<'a>(
    threads: &'a mut HashMap<RawTid, Thread>,
    scribe: &'a Option<Scribe>,
    tid: RawTid,
) -> Option<Followed<'a>> {
    let Thread {
        pid,
        run,
        signal,
        following,
        ..
    } = threads.get_mut(&tid)?;
    let Following::Translated(translated) = following else {
        return None;
    };
    Some(Followed {
        pid: *pid,
        run,
        signal,
        translated,
        scribe: scribe.as_ref()?,
    })
}
