//! A recording that runs: its threads and processes, and what is done at each of their stops.

use crate::core_dump::{self, StoppedThread};
use crate::error::{Error, Result};
use crate::modules::CodeImage;
use crate::process::{self, DefaultAction};
use crate::ptrace::{self, CpuSet, RawTid, Stop, Wait};
use crate::spawn::{self, Spawned};
use crate::stream::Stream;
use crate::thread::{Place, Run, Thread};
use crate::{Ending, Target, clock, code};
use backtrail_bundle::core::Registers;
use backtrail_bundle::manifest::Crash;
use backtrail_bundle::{BundlePath, Writer};
use backtrail_pt::{Avma, EncoderOptions, Pid, Tid};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The events every tracee reports.
const EVENTS: libc::c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;
/// How long threads may take to stop when asked.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// A core of a process that did not crash is not written when larger.
const MAX_LIVE_CORE: u64 = 1 << 30;
/// Code of 64-bit programs (`__USER_CS`).
const USER_CS: u64 = 0x33;
/// `si_code` of the stop before a handler's first instruction: ptrace puts the signal there.
const HANDLER_ENTRY: i32 = libc::SIGTRAP;
/// `si_code` of a breakpoint instruction.
const SI_KERNEL: i32 = 0x80;

/// What the tracing thread and the one that minds it tell each other.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Recording is to end.
    pub(crate) stop: AtomicBool,
    pub(crate) instructions: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) threads: AtomicUsize,
}

/// How threads are recorded.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) follow: bool,
    pub(crate) golden: bool,
    pub(crate) ring: Option<usize>,
    pub(crate) encoder: EncoderOptions,
}

/// A thread whose stream has ended.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) tid: RawTid,
    pub(crate) name: Option<String>,
    pub(crate) packets: Vec<u8>,
    pub(crate) dropped: u64,
    pub(crate) golden: Vec<Avma>,
}

/// A recorded process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) image: CodeImage,
    pub(crate) recorded: Vec<Recorded>,
    pub(crate) program: Option<String>,
    pub(crate) command_line: Vec<String>,
    /// It has executed another program since recording began.
    pub(crate) replaced: bool,
}

impl Process {
    fn new(pid: RawTid) -> Self {
        let mut process = Self {
            program: process::program(pid),
            command_line: process::command_line(pid),
            ..Self::default()
        };
        process.image.update(pid);
        process
    }
}

/// The threads that stay stopped when they stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Nobody,
    Process(RawTid),
    All,
}

/// A running recording, on the thread that traces.
pub(crate) struct Session<'a> {
    settings: Settings,
    shared: &'a Shared,
    writer: &'a Writer,
    /// The processor that tracer and tracees share: handing over on one is much faster than across two.
    cpu: Option<CpuSet>,
    /// Where the program might run before.
    free: Option<CpuSet>,
    threads: HashMap<RawTid, Thread>,
    pub(crate) processes: BTreeMap<RawTid, Process>,
    /// The child that has not become the program yet.
    pending: Option<Spawned>,
    /// The process the recording is about.
    pub(crate) root: RawTid,
    /// We started it.
    ours: bool,
    hold: Hold,
    pub(crate) ending: Ending,
    pub(crate) crash: Option<Crash>,
    pub(crate) core: Option<BundlePath>,
    pub(crate) notes: Vec<String>,
    pub(crate) instructions: u64,
    pub(crate) gaps: u64,
    /// Bytes of the streams that have ended.
    bytes: u64,
    /// Recording has ended; what is still traced is only seen off.
    over: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(settings: Settings, shared: &'a Shared, writer: &'a Writer) -> Self {
        let free = ptrace::affinity(0);
        let cpu = ptrace::current_cpu();
        if let Some(cpu) = &cpu {
            ptrace::set_affinity(0, cpu);
        }
        Self {
            settings,
            shared,
            writer,
            cpu,
            free,
            threads: HashMap::new(),
            processes: BTreeMap::new(),
            pending: None,
            root: 0,
            ours: false,
            hold: Hold::Nobody,
            ending: Ending::Running,
            crash: None,
            core: None,
            notes: Vec::new(),
            instructions: 0,
            gaps: 0,
            bytes: 0,
            over: false,
        }
    }

    /// Starts or attaches.
    pub(crate) fn begin(&mut self, target: &Target, randomize: bool) -> Result<()> {
        match target {
            Target::Command(command) => self.start(command, randomize),
            Target::Processes(pids) => {
                self.root = pids.first().ok_or(Error::NoCommand)?.0 as RawTid;
                pids.iter().try_for_each(|pid| self.attach(*pid))
            }
        }
    }

    fn start(&mut self, command: &[OsString], randomize: bool) -> Result<()> {
        let spawned = spawn::spawn(command, randomize, EVENTS | libc::PTRACE_O_EXITKILL)?;
        (self.root, self.ours) = (spawned.pid, true);
        self.pending = Some(spawned);
        Ok(())
    }

    fn attach(&mut self, pid: Pid) -> Result<()> {
        let leader = pid.0 as RawTid;
        let fail = |error: Error| match error {
            Error::Ptrace { source, .. } => Error::Attach {
                pid,
                hint: attach_hint(&source),
                source,
            },
            other => other,
        };
        ptrace::seize(leader, EVENTS).map_err(fail)?;
        let mut seized = vec![leader];
        // Threads may start threads meanwhile: until a look finds none that is new. Those started by a seized one are traced already.
        loop {
            let new: Vec<RawTid> = process::threads(leader)
                .into_iter()
                .filter(|tid| !seized.contains(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let _ = ptrace::seize(tid, EVENTS);
                seized.push(tid);
            }
        }
        self.processes.insert(leader, Process::new(leader));
        for tid in seized {
            if let Some(cpu) = &self.cpu {
                ptrace::set_affinity(tid, cpu);
            }
            // One that is gone already needs no stop.
            let _ = ptrace::interrupt(tid);
        }
        Ok(())
    }

    /// Runs until nothing is traced any more.
    pub(crate) fn run(&mut self) -> Result<()> {
        let mut stopping = false;
        let mut reports = 0u32;
        loop {
            reports = reports.wrapping_add(1);
            if reports.is_multiple_of(1024) {
                self.publish();
            }
            if !stopping && self.shared.stop.load(Ordering::Relaxed) {
                stopping = true;
                self.stop_recording()?;
            }
            match ptrace::wait_any()? {
                Wait::Report(tid, stop) => self.on_stop(tid, stop)?,
                Wait::Interrupted => {}
                Wait::Nobody => break,
            }
        }
        self.publish();
        match self.pending.take() {
            Some(spawned) if !stopping => Err(spawned.failure()),
            _ => Ok(()),
        }
    }

    fn publish(&self) {
        let running: (u64, u64) = self
            .threads
            .values()
            .fold((0, 0), |(instructions, bytes), thread| {
                (
                    instructions + thread.stream.instructions,
                    bytes + thread.stream.written(),
                )
            });
        self.shared
            .instructions
            .store(self.instructions + running.0, Ordering::Relaxed);
        self.shared.bytes.store(self.bytes + running.1, Ordering::Relaxed);
        self.shared.threads.store(self.threads.len(), Ordering::Relaxed);
    }

    fn on_stop(&mut self, tid: RawTid, stop: Stop) -> Result<()> {
        if let Stop::Exited(_) | Stop::Killed(_) = stop {
            self.on_gone(tid, stop);
            return Ok(());
        }
        if stop == Stop::Event(libc::PTRACE_EVENT_EXEC) {
            return self.on_exec(tid);
        }
        // A thread that was killed meanwhile answers no request; its end will be reported.
        let Ok(registers) = ptrace::registers(tid) else {
            return Ok(());
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return self.on_new(tid, stop, &registers);
        };
        thread.run = Run::Stopped;
        thread.stream.set_time(clock::now());
        match stop {
            Stop::Signal(signal) => self.on_signal(tid, signal, &registers)?,
            Stop::Event(libc::PTRACE_EVENT_EXIT) => self.on_exit(tid, &registers),
            Stop::Event(_) => thread.left_by_itself(registers.pc()),
            Stop::Group(_) if self.hold == Hold::Nobody => {
                thread.run = Run::Listening;
                let _ = ptrace::listen(tid);
                return Ok(());
            }
            Stop::Interrupted | Stop::Group(_) if process::is_pending(tid, libc::SIGTRAP) => {
                // The trap of its last step comes next. Let go before, the program would die of it.
                thread.run = Run::Running;
                let _ = ptrace::step(tid, 0);
                return Ok(());
            }
            _ => {}
        }
        self.go_on(tid);
        Ok(())
    }

    /// Resumes the thread unless it is held.
    fn go_on(&mut self, tid: RawTid) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let held = match self.hold {
            Hold::Nobody => false,
            Hold::Process(pid) => thread.pid == pid,
            Hold::All => true,
        };
        if held || thread.run != Run::Stopped {
            return;
        }
        let signal = thread.signal.take().map_or(0, |info| info.signal());
        thread.delivered = signal != 0;
        thread.run = Run::Running;
        // Failing means that it was killed: its end will be reported.
        let _ = match thread.place {
            Place::User(_) => {
                thread.prepare();
                ptrace::step(tid, signal)
            }
            Place::Kernel { .. } => ptrace::step(tid, signal),
            Place::Closed => ptrace::resume(tid, signal),
        };
    }

    /// A signal-delivery-stop: ours, because it was stepped, or a signal for the program.
    fn on_signal(&mut self, tid: RawTid, signal: i32, registers: &Registers) -> Result<()> {
        let Ok(info) = ptrace::siginfo(tid) else {
            return Ok(());
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        if thread.place == Place::Closed {
            let stepped =
                signal == libc::SIGTRAP && (libc::TRAP_BRKPT..=libc::TRAP_TRACE).contains(&info.code());
            thread.signal = Some(info).filter(|_| !stepped);
            return Ok(());
        }
        if signal == libc::SIGTRAP {
            let breakpoint = thread.code.is_some_and(|code| code.is_breakpoint());
            match info.code() {
                HANDLER_ENTRY if thread.delivered => {
                    ptrace::unblock_trap(tid);
                    thread.entered_handler(registers.pc());
                    return Ok(());
                }
                libc::TRAP_BRKPT | libc::TRAP_TRACE if !breakpoint => {
                    self.on_step(tid, registers);
                    return Ok(());
                }
                SI_KERNEL | libc::TRAP_BRKPT | libc::TRAP_TRACE if breakpoint => {
                    thread.hit_breakpoint(registers.pc());
                }
                _ => {}
            }
        }
        thread.left_by_itself(registers.pc());
        thread.signal = Some(info);
        let fatal = process::default_action(signal) == DefaultAction::Terminate
            && process::is_default_signal(tid, signal);
        if fatal && self.hold == Hold::Nobody {
            self.on_crash(tid, registers)?;
        }
        Ok(())
    }

    fn on_step(&mut self, tid: RawTid, registers: &Registers) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let code = thread.code;
        thread.stepped(registers);
        let Some(code) = code else { return };
        if code.pushes_flags() {
            code::hide_pushed_trap_flag(thread.pid, registers.rsp);
        }
        if code.is_syscall() {
            if let Some(clean) = crate::thread::without_trap_flag(registers) {
                let _ = ptrace::set_registers(tid, &clean);
            }
            if maps_code(registers)
                && let Some(process) = self.processes.get_mut(&thread.pid)
            {
                process.image.update(thread.pid);
            }
        }
    }

    /// A thread or process that one of ours has started, or a thread just attached to.
    fn on_new(&mut self, tid: RawTid, stop: Stop, registers: &Registers) -> Result<()> {
        if self.pending.as_ref().is_some_and(|spawned| spawned.pid == tid) {
            // Not the program yet: its signals are its own.
            let signal = if let Stop::Signal(signal) = stop {
                signal
            } else {
                0
            };
            return ptrace::resume(tid, signal);
        }
        if self.over {
            return if self.ours {
                ptrace::resume(tid, 0)
            } else {
                ptrace::detach(tid, 0)
            };
        }
        let pid = process::thread_group(tid).unwrap_or(tid);
        let known = self.processes.contains_key(&pid);
        if registers.cs != USER_CS || !(known || self.settings.follow) {
            if known && pid == self.root {
                return Err(Error::Not64Bit(Pid(pid as u32)));
            }
            self.let_go(tid);
            return Ok(());
        }
        if !known {
            self.processes.insert(pid, Process::new(pid));
        }
        if let Some(clean) = crate::thread::without_trap_flag(registers) {
            let _ = ptrace::set_registers(tid, &clean);
        }
        ptrace::unblock_trap(tid);
        let thread = Thread::found(tid, pid, self.stream(), registers);
        self.threads.insert(tid, thread);
        self.on_stop(tid, stop)
    }

    fn stream(&self) -> Stream {
        Stream::new(
            self.settings.encoder,
            self.settings.ring,
            self.settings.golden,
            clock::now(),
        )
    }

    /// Detaches a stopped thread that is not recorded, or no longer.
    fn let_go(&mut self, tid: RawTid) {
        if let Some(free) = &self.free {
            ptrace::set_affinity(tid, free);
        }
        let signal = self.threads.remove(&tid).and_then(|thread| thread.signal);
        let _ = ptrace::detach(tid, signal.map_or(0, |info| info.signal()));
    }

    /// The process has become another program: what it was before is no part of the recording.
    fn on_exec(&mut self, tid: RawTid) -> Result<()> {
        let Ok(registers) = ptrace::registers(tid) else {
            return Ok(());
        };
        let first = self.pending.take_if(|spawned| spawned.pid == tid).is_some();
        self.threads.retain(|_, thread| thread.pid != tid);
        if registers.cs != USER_CS {
            self.processes.remove(&tid);
            if tid == self.root {
                return Err(Error::Not64Bit(Pid(tid as u32)));
            }
            self.notes.push(format!(
                "process {tid} executed a 32-bit program, which is not recorded"
            ));
            self.let_go(tid);
            return Ok(());
        }
        let process = Process {
            replaced: !first,
            ..Process::new(tid)
        };
        self.processes.insert(tid, process);
        ptrace::unblock_trap(tid);
        let thread = Thread::in_kernel(tid, tid, self.stream());
        self.threads.insert(tid, thread);
        self.go_on(tid);
        Ok(())
    }

    /// A thread is about to end.
    fn on_exit(&mut self, tid: RawTid, registers: &Registers) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let pid = thread.pid;
        thread.close(Some(registers.pc()));
        thread.signal = None;
        let name = process::thread_name(pid, tid);
        self.record(tid, name);
        if let Some(process) = self.processes.get_mut(&pid)
            && !self.threads.values().any(|thread| thread.pid == pid)
        {
            process.image.update(pid);
        }
        let _ = ptrace::resume(tid, 0);
    }

    /// Takes a thread whose stream has ended out of those that run.
    fn record(&mut self, tid: RawTid, name: Option<String>) {
        let Some(mut thread) = self.threads.remove(&tid) else {
            return;
        };
        thread.close(None);
        self.instructions += thread.stream.instructions;
        self.gaps += thread.stream.gaps;
        self.bytes += thread.stream.written();
        let Some(process) = self.processes.get_mut(&thread.pid) else {
            return;
        };
        let (packets, dropped, golden) = thread.stream.finish();
        process.recorded.push(Recorded {
            tid,
            name,
            packets,
            dropped,
            golden,
        });
    }

    /// A thread, or with its leader a process, is gone.
    fn on_gone(&mut self, tid: RawTid, stop: Stop) {
        self.record(tid, None);
        // An end that we made is not the program's own.
        if tid == self.root && self.pending.is_none() && !self.over {
            self.ending = match stop {
                Stop::Exited(status) => Ending::Exited(status),
                Stop::Killed(signal) => Ending::Killed(signal),
                _ => Ending::Running,
            };
        }
    }

    /// A signal without handler is about to end a process.
    fn on_crash(&mut self, tid: RawTid, registers: &Registers) -> Result<()> {
        let Some(thread) = self.threads.get(&tid) else {
            return Ok(());
        };
        let (pid, info) = (thread.pid, thread.signal);
        self.halt(Hold::Process(pid))?;
        if (self.crash.is_none() || pid == self.root)
            && let Some(info) = info
        {
            self.crash = Some(Crash {
                pid: Pid(pid as u32),
                tid: Tid(tid as u32),
                signal: info.signal(),
                code: info.code(),
                fault_address: info.address(),
                pc: registers.pc(),
            });
            self.save_core(pid, tid, u64::MAX)?;
        }
        self.close(pid);
        self.hold = Hold::Nobody;
        self.go_on(tid);
        let others: Vec<RawTid> = self.tids(|thread| thread.pid == pid);
        others.into_iter().for_each(|tid| self.go_on(tid));
        Ok(())
    }

    /// Stops every thread that `hold` names, within [`STOP_TIMEOUT`].
    fn halt(&mut self, hold: Hold) -> Result<()> {
        self.hold = hold;
        let held = |thread: &Thread| match hold {
            Hold::Process(pid) => thread.pid == pid,
            Hold::All | Hold::Nobody => true,
        };
        for tid in self.tids(|thread| held(thread) && thread.run != Run::Stopped) {
            let _ = ptrace::interrupt(tid);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self
            .threads
            .values()
            .any(|thread| held(thread) && thread.run != Run::Stopped)
        {
            if Instant::now() > deadline {
                self.notes
                    .push("a thread did not stop in time; its registers are not in the core".to_owned());
                break;
            }
            match ptrace::wait_within(deadline)? {
                Wait::Report(tid, stop) => self.on_stop(tid, stop)?,
                Wait::Interrupted => {}
                Wait::Nobody => break,
            }
        }
        Ok(())
    }

    fn tids(&self, wanted: impl Fn(&Thread) -> bool) -> Vec<RawTid> {
        self.threads
            .values()
            .filter(|thread| wanted(thread))
            .map(|thread| thread.tid)
            .collect()
    }

    /// Writes the core of a halted process, `first` being the thread it is about.
    fn save_core(&mut self, pid: RawTid, first: RawTid, limit: u64) -> Result<()> {
        let mut tids = self.tids(|thread| thread.pid == pid && thread.run == Run::Stopped);
        tids.sort_by_key(|tid| (*tid != first, *tid));
        let threads: Vec<StoppedThread> = tids
            .into_iter()
            .filter_map(|tid| {
                let signal = self.threads.get(&tid).and_then(|thread| thread.signal);
                Some(StoppedThread {
                    tid,
                    registers: ptrace::registers(tid).ok()?,
                    signal,
                })
            })
            .collect();
        let contents = core_dump::describe(pid, &threads);
        let size = core_dump::size(&contents);
        if size > limit {
            self.notes.push(format!(
                "the process has {} MiB of memory: no core was written",
                size >> 20
            ));
            return Ok(());
        }
        let path = BundlePath::new(if self.core.is_none() { "core" } else { "core.root" })?;
        let mut file = self.writer.create_file(&path)?;
        core_dump::write(&mut file, pid, &contents).map_err(Error::system("write the core"))?;
        self.core = Some(path);
        Ok(())
    }

    /// Ends the streams of a halted process.
    fn close(&mut self, pid: RawTid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.image.update(pid);
        }
        for thread in self.threads.values_mut().filter(|thread| thread.pid == pid) {
            let ip = ptrace::registers(thread.tid).ok().map(|registers| registers.pc());
            thread.close(ip);
        }
    }

    /// Ends recording before the program has ended.
    fn stop_recording(&mut self) -> Result<()> {
        self.halt(Hold::All)?;
        let root = self.root;
        if self.crash.is_none() && self.threads.values().any(|thread| thread.pid == root) {
            self.save_core(root, root, MAX_LIVE_CORE)?;
        }
        let pids: Vec<RawTid> = self.processes.keys().copied().collect();
        pids.iter().for_each(|pid| self.close(*pid));
        for tid in self.tids(|_| true) {
            let name = self
                .threads
                .get(&tid)
                .and_then(|thread| process::thread_name(thread.pid, tid));
            let signal = self.threads.get(&tid).and_then(|thread| thread.signal);
            self.record(tid, name);
            if !self.ours {
                if let Some(free) = &self.free {
                    ptrace::set_affinity(tid, free);
                }
                let _ = ptrace::detach(tid, signal.map_or(0, |info| info.signal()));
            }
        }
        if self.ours {
            let pending = self.pending.as_ref().map(|spawned| spawned.pid);
            pids.into_iter().chain(pending).for_each(ptrace::kill);
        }
        self.over = true;
        self.hold = Hold::Nobody;
        Ok(())
    }
}

/// Whether a system call that just returned may have made memory executable.
fn maps_code(registers: &Registers) -> bool {
    let with_exec = registers.rdx & libc::PROT_EXEC as u64 != 0;
    match registers.orig_rax as libc::c_long {
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => with_exec,
        libc::SYS_mremap | libc::SYS_shmat => true,
        _ => false,
    }
}

fn attach_hint(source: &std::io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EPERM) => crate::capabilities()
            .attach_fix()
            .map(|fix| format!("; {fix}"))
            .unwrap_or_default(),
        Some(libc::ESRCH) => "; there is no such process".to_owned(),
        _ => String::new(),
    }
}
