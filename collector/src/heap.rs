//! The heap history of services: calls of allocator functions, noted by uprobes.
//!
//! `[heap]` in the configuration names the services. The collector finds their processes twice a
//! second, and attaches to the allocator functions of each. It keeps the newest calls of each
//! process in memory, and adds them to the bundle of its crash.

mod functions;
mod ring;
mod services;

use crate::clock;
use crate::config::HeapConfig;
use crate::probe::{HeapAttachment, HeapBreakpoints, HeapProbe, ProbeError};
use backtrail_process::{RawTid, status};
use backtrail_pt::Pid;
use functions::FileKey;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ring::CallRing;
use services::ServiceProcesses;
use std::collections::{HashMap, HashSet};
use std::io::PipeReader;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The maximum number of processes.
pub(crate) const MAX_PROCESSES: usize = 64;
/// How often the ring is read at least.
const DRAIN_INTERVAL_MS: u16 = 100;
/// How often processes are searched.
const SCAN: Duration = Duration::from_millis(500);
/// How long the calls of a process that ended are kept. Its bundle may be waiting.
const KEEP: Duration = Duration::from_secs(120);
/// How often, and with which pause, the state is tried to be locked.
const LOCK_ATTEMPTS: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// The longest time between two searches of the files of a process.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The heap history of all processes of the configured services.
pub struct HeapHistory(Mutex<State>);

struct State {
    probe: HeapProbe,
    config: HeapConfig,
    services: ServiceProcesses,
    processes: HashMap<u32, Watched>,
    scanned: Option<Instant>,
    /// Breakpoints to remove without the lock.
    detached: HeapBreakpoints,
}

/// A process whose calls are noted.
struct Watched {
    /// Readable after the process has ended.
    pidfd: OwnedFd,
    /// `None`: it has ended, is refused, or belongs to a recorder.
    attachment: Option<HeapAttachment>,
    functions: usize,
    /// The files that were searched for functions.
    files: HashSet<FileKey>,
    calls: Option<CallRing>,
    looked: Instant,
    pause: Duration,
    ended: Option<Instant>,
}

impl std::fmt::Debug for HeapHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapHistory").finish_non_exhaustive()
    }
}

impl HeapHistory {
    /// Loads the probe. `None`: no service is configured.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(config: &HeapConfig) -> Result<Option<Self>, ProbeError> {
        if config.services.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self(Mutex::new(State {
            probe: HeapProbe::load()?,
            config: config.clone(),
            services: ServiceProcesses::default(),
            processes: HashMap::new(),
            scanned: None,
            detached: HeapBreakpoints::default(),
        }))))
    }

    /// Returns the state. `None`: a file system does not answer the search for functions.
    fn lock_soon(&self) -> Option<MutexGuard<'_, State>> {
        for _ in 0..LOCK_ATTEMPTS {
            match self.0.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file of the calls of a process. `None`: they are not noted. `zero` is the time
    /// of the crash, and `perf_offset` is the offset of perf's clock then.
    ///
    /// # Errors
    /// When the calls cannot be read now, as a sentence for the bundle.
    pub fn record(
        &self,
        pid: Pid,
        zero: u64,
        perf_offset: Option<i64>,
    ) -> Result<Option<Vec<u8>>, &'static str> {
        let busy = "the heap records are missing: the collector waits for a file system";
        let mut state = self.lock_soon().ok_or(busy)?;
        state.drain();
        let process = state.processes.get(&pid.0);
        let Some(calls) = process.and_then(|process| process.calls.as_ref()) else {
            return Ok(None);
        };
        let encoded = calls.encode(pid, zero, perf_offset, clock::monotonic());
        encoded.map(Some).map_err(|error| {
            tracing::warn!("the heap records of process {pid} are lost: {error}");
            "the heap records are missing: they could not be encoded"
        })
    }

    /// Detaches from a process that a recorder claims. The recorder would read the breakpoints as
    /// code.
    pub fn release(&self, pid: Pid) {
        match self.lock_soon() {
            Some(mut state) => {
                state.release(pid);
                let detached = std::mem::take(&mut state.detached);
                drop(state);
                detached.remove();
            }
            None => tracing::warn!("the heap probe cannot be detached from process {pid}"),
        }
    }

    /// Returns the gauges with name and description.
    #[must_use]
    pub fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        let Some(state) = self.lock_soon() else {
            return Vec::new();
        };
        let is_noted = |process: &&Watched| process.attachment.is_some() && process.calls.is_some();
        let attached = state.processes.values().filter(is_noted);
        let calls = state
            .processes
            .values()
            .filter_map(|process| process.calls.as_ref());
        let lost = state
            .processes
            .keys()
            .map(|pid| state.probe.lost(Pid(*pid)).count);
        vec![
            (
                "heap_processes",
                "Processes whose allocator calls are noted.",
                attached.count() as f64,
            ),
            (
                "heap_calls",
                "Allocator calls that are kept.",
                calls.map(CallRing::len).sum::<usize>() as f64,
            ),
            (
                "heap_lost",
                "Allocator calls of running processes that were lost.",
                lost.sum::<u64>() as f64,
            ),
        ]
    }

    /// Finds processes and reads their calls until the other end of `stop` is closed.
    pub fn run(&self, stop: &PipeReader) {
        loop {
            let ring = self.lock().probe.descriptor().as_raw_fd();
            // SAFETY: the ring stays open as long as `self`.
            let ring = unsafe { BorrowedFd::borrow_raw(ring) };
            let mut waited = [
                PollFd::new(ring, PollFlags::POLLIN),
                PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            ];
            let _ = poll(&mut waited, DRAIN_INTERVAL_MS);
            if waited[1].any().unwrap_or(false) {
                return;
            }
            let mut state = self.lock();
            state.drain();
            let now = Instant::now();
            if state.scanned.is_none_or(|scanned| now - scanned >= SCAN) {
                state.scanned = Some(now);
                state.scan(now);
            }
            let detached = std::mem::take(&mut state.detached);
            drop(state);
            detached.remove();
        }
    }
}

impl State {
    /// Reads the calls from the kernel's ring.
    fn drain(&mut self) {
        let processes = &mut self.processes;
        self.probe.drain(&mut |event| {
            let process = processes.get_mut(&event.pid);
            if let Some(calls) = process.and_then(|process| process.calls.as_mut()) {
                calls.push(event);
            }
        });
        let now = clock::monotonic();
        for (pid, process) in processes
            .iter_mut()
            .filter(|(_, process)| process.attachment.is_some())
        {
            if let Some(calls) = &mut process.calls {
                calls.note_lost(self.probe.lost(Pid(*pid)), now);
            }
        }
    }

    /// Attaches to new processes of the services, and detaches from those that ended.
    fn scan(&mut self, now: Instant) {
        let ended: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| process.ended.is_none() && has_ended(&process.pidfd))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in ended {
            self.drain();
            self.detach(Pid(pid));
            if let Some(process) = self.processes.get_mut(&pid) {
                process.ended = Some(now);
            }
        }
        self.processes
            .retain(|_, process| process.ended.is_none_or(|ended| now - ended < KEEP));
        for pid in self.services.find(&self.config, now) {
            self.watch(pid, now);
        }
        let due: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| process.attachment.is_some() && now - process.looked >= process.pause)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in due {
            self.attach(Pid(pid), now);
        }
    }

    /// Begins to note the calls of a process.
    fn watch(&mut self, pid: Pid, now: Instant) {
        let known = self.processes.get(&pid.0);
        if known.is_some_and(|process| process.ended.is_none()) || status::tracer(pid.0 as RawTid).is_some() {
            return;
        }
        if self.processes.len() >= MAX_PROCESSES {
            self.drop_oldest();
        }
        if self.processes.len() >= MAX_PROCESSES {
            tracing::debug!("the heap of process {pid} is not recorded: there are {MAX_PROCESSES} already");
            return;
        }
        let Some(pidfd) = open(pid) else { return };
        let process = Watched {
            pidfd,
            attachment: Some(HeapAttachment::default()),
            functions: 0,
            files: HashSet::new(),
            calls: None,
            looked: now,
            pause: SCAN,
            ended: None,
        };
        self.processes.insert(pid.0, process);
        self.attach(pid, now);
    }

    /// Drops the calls of the process that ended first.
    fn drop_oldest(&mut self) {
        let ended = |(pid, process): (&u32, &Watched)| Some((process.ended?, *pid));
        if let Some((_, pid)) = self.processes.iter().filter_map(ended).min() {
            self.processes.remove(&pid);
        }
    }

    /// Attaches to the allocator functions of files that a process has mapped since the last look.
    fn attach(&mut self, pid: Pid, now: Instant) {
        let Some(process) = self.processes.get_mut(&pid.0) else {
            return;
        };
        process.looked = now;
        process.pause = (2 * process.pause).min(LONGEST_PAUSE);
        let is_first = process.functions == 0;
        let found = match functions::find(pid, &mut process.files) {
            Ok(found) if found.is_empty() => return,
            Ok(found) => found,
            Err(why) => {
                tracing::warn!("the heap of process {pid} is not recorded: {why}");
                process.calls = None;
                self.detach(pid);
                return;
            }
        };
        let Some(attachment) = &mut process.attachment else {
            return;
        };
        let attached = self.probe.attach(pid, &found, process.functions, attachment);
        process.functions += found.len();
        match attached {
            Ok(()) => {
                // Calls of functions that are attached later were not noted before.
                process.calls = Some(CallRing::new(self.config.ring.0, clock::monotonic()));
                let files: HashSet<_> = found.iter().map(|function| &function.path).collect();
                let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
                let verb = if is_first { "noting" } else { "noting more" };
                tracing::info!("{verb} allocator calls of process {pid}: {}", files.join(", "));
            }
            Err(error) if has_ended(&process.pidfd) => {
                tracing::debug!("process {pid} ended: {error}");
            }
            Err(error) => {
                tracing::warn!("the heap of process {pid} is not recorded: {error}");
                process.calls = None;
                self.detach(pid);
            }
        }
    }

    fn release(&mut self, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&pid.0) {
            process.calls = None;
        }
        self.detach(pid);
    }

    fn detach(&mut self, pid: Pid) {
        let process = self.processes.get_mut(&pid.0);
        if let Some(attachment) = process.and_then(|process| process.attachment.take()) {
            self.detached.add(self.probe.detach(pid, attachment));
        }
    }
}

fn open(pid: Pid) -> Option<OwnedFd> {
    let pid = i32::try_from(pid.0).ok()?;
    // SAFETY: the call takes two numbers, returns a descriptor or an error, and writes no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut look = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    !matches!(poll(&mut look, PollTimeout::ZERO), Ok(0))
}
