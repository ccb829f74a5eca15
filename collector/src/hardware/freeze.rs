//! Pauses, copies and resumes the traces of all processors.

use super::clock;
use super::counters::SharedCounters;
use super::freezable::FreezableTrace;
use crate::Result;
use backtrail_perf::ring::AuxCopy;
use backtrail_perf::{Error as PerfError, LockedMemory};
use backtrail_pt::{Cpu, Tid, Tsc, TscConversion};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};

/// More threads do not copy faster, because memory bandwidth is the limit.
const MAX_WORKERS: usize = 4;

/// Freezes the traces. Any thread can use a clone of this handle. Concurrent freezes wait for each
/// other.
#[derive(Clone, Debug)]
pub struct Freezer(pub(super) Arc<FreezerState>);

/// The state that freezers and the Intel PT source share.
#[derive(Debug)]
pub(super) struct FreezerState {
    /// The traces of all processors. Those of offline processors stay for a while.
    traces: RwLock<Vec<Arc<dyn FreezableTrace>>>,
    pub(super) counters: SharedCounters,
    conversion: RwLock<TscConversion>,
    pool: Arc<BufferPool>,
    jobs: Arc<CopyQueue>,
    /// Held during a freeze.
    turn: Mutex<()>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    tids: Vec<Tid>,
}

/// The traces of all processors at one moment.
#[derive(Debug)]
pub struct Frozen {
    /// The traces, with that of the requested processor first. Traces that could not be stopped or
    /// copied are missing.
    pub cpus: Vec<FrozenCpu>,
    /// When the freeze started, by `CLOCK_MONOTONIC`.
    pub began_at: u64,
    /// The time of the crash, from the caller.
    pub crash_at: Option<u64>,
}

/// The trace of one processor.
#[derive(Debug)]
pub struct FrozenCpu {
    /// The processor.
    pub cpu: Cpu,
    /// Whether the ring was full, so that older trace was overwritten.
    pub wrapped: bool,
    /// When the trace was stopped, by `CLOCK_MONOTONIC` in nanoseconds. For an offline processor,
    /// when it went offline.
    pub paused_at: u64,
    /// The same time on the time-stamp counter, which recalibration does not affect.
    pub paused: Tsc,
    /// When the trace was resumed. `None`: the processor is offline, or the kernel refused.
    pub resumed_at: Option<u64>,
    /// Whether the kernel itself paused the trace at the crash, so that nothing was overwritten
    /// since.
    pub paused_by_kernel: bool,
    /// Whether the processor was offline.
    pub off: bool,
    had_buffer: bool,
    copy: AuxCopy,
    memory: PooledBuffer,
}

impl FrozenCpu {
    /// Returns the packets, oldest first. The first packet may be incomplete.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory
            .bytes()
            .get(self.copy.range.clone())
            .unwrap_or_default()
    }
}

/// Buffers for copies.
#[derive(Debug)]
struct BufferPool {
    free: Mutex<Vec<LockedMemory>>,
    /// Maximum number of free buffers.
    size: AtomicUsize,
    /// Number of buffers in use.
    lent: AtomicUsize,
    lock: bool,
}

impl BufferPool {
    /// Returns a buffer, and whether it was prepared. When all prepared buffers are in use,
    /// allocates memory that may cause page faults. The total is at most twice the number of
    /// processors.
    fn lend(self: &Arc<Self>, size: usize) -> std::result::Result<(PooledBuffer, bool), PerfError> {
        let spare = locked(&self.free)
            .pop()
            .filter(|memory| memory.bytes().len() >= size);
        let ready = spare.is_some();
        let memory = match spare {
            Some(memory) => memory,
            None if self.lent.load(Ordering::Relaxed) < 2 * self.size.load(Ordering::Relaxed) => {
                LockedMemory::new(size, false)?
            }
            None => {
                return Err(PerfError::Setting(
                    "too many frozen traces are waiting to be written".to_owned(),
                ));
            }
        };
        self.lent.fetch_add(1, Ordering::Relaxed);
        let pooled = PooledBuffer {
            memory: Some(memory),
            pool: self.clone(),
        };
        Ok((pooled, ready))
    }
}

/// A buffer that returns to the pool when dropped.
#[derive(Debug)]
struct PooledBuffer {
    memory: Option<LockedMemory>,
    pool: Arc<BufferPool>,
}

impl PooledBuffer {
    fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], LockedMemory::bytes)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], LockedMemory::bytes_mut)
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.lent.fetch_sub(1, Ordering::Relaxed);
            let mut free = locked(&self.pool.free);
            if free.len() < self.pool.size.load(Ordering::Relaxed) {
                free.push(memory);
            }
        }
    }
}

/// A paused trace that is to be copied.
#[derive(Debug)]
struct CopyJob {
    index: usize,
    trace: Arc<dyn FreezableTrace>,
    paused_at: u64,
    paused: Tsc,
    paused_by_kernel: bool,
    /// Whether the trace has stopped, so that its position is known.
    stopped: bool,
    /// Whether the processor is offline.
    off: bool,
    shared: Arc<FreezeRound>,
}

/// The state of one freeze.
#[derive(Debug)]
struct FreezeRound {
    pool: Arc<BufferPool>,
    /// The result for each trace when it is finished. The inner `None` is a trace that could not be
    /// copied.
    done: Mutex<Vec<Option<Option<FrozenCpu>>>>,
    all: Condvar,
    not_resumed: AtomicU64,
}

#[derive(Debug, Default)]
struct CopyQueue {
    queue: Mutex<QueuedJobs>,
    some: Condvar,
}

#[derive(Debug, Default)]
struct QueuedJobs {
    jobs: VecDeque<CopyJob>,
    closed: bool,
}

/// Locks a mutex and ignores poisoning, because the state is consistent at every point.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FreezerState {
    /// Starts the copy threads and allocates the buffers.
    pub(super) fn new(
        traces: Vec<Arc<dyn FreezableTrace>>,
        conversion: TscConversion,
        lock: bool,
    ) -> Result<Arc<Self>> {
        let free = traces.iter().map(|trace| LockedMemory::new(trace.size(), lock));
        let free = free.collect::<std::result::Result<Vec<_>, _>>()?;
        let jobs = Arc::new(CopyQueue::default());
        let (tid_sender, tids) = std::sync::mpsc::channel();
        let count = traces.len().saturating_sub(1).min(MAX_WORKERS);
        let workers = (0..count).map_while(|_| {
            let (jobs, tid_sender) = (jobs.clone(), tid_sender.clone());
            let work = move || {
                let _ = tid_sender.send(Tid(nix::unistd::gettid().as_raw().cast_unsigned()));
                while let Some(job) = jobs.next() {
                    job.run();
                }
            };
            // With fewer threads, copying takes longer.
            let named = thread::Builder::new().name("backtrail-copy".to_owned());
            named.spawn(work).ok()
        });
        let workers: Vec<_> = workers.collect();
        drop(tid_sender);
        Ok(Arc::new(Self {
            traces: RwLock::new(traces),
            counters: SharedCounters::default(),
            conversion: RwLock::new(conversion),
            pool: Arc::new(BufferPool {
                size: AtomicUsize::new(free.len()),
                lent: AtomicUsize::new(0),
                free: Mutex::new(free),
                lock,
            }),
            jobs,
            turn: Mutex::default(),
            tids: tids.iter().take(workers.len()).collect(),
            workers: Mutex::new(workers),
        }))
    }

    /// Adds a buffer for a new processor.
    pub(super) fn grow(&self, size: usize) -> Result<()> {
        let memory = LockedMemory::new(size, self.pool.lock)?;
        self.pool.size.fetch_add(1, Ordering::Relaxed);
        locked(&self.pool.free).push(memory);
        Ok(())
    }

    /// Resumes the trace of a processor after the kernel stopped it.
    pub(super) fn restart(&self, cpu: Cpu) {
        // Not during a freeze.
        let _turn = locked(&self.turn);
        for trace in self
            .traces()
            .iter()
            .filter(|trace| trace.cpu() == cpu && trace.offline_since().is_none())
        {
            if !trace.resume(false) {
                SharedCounters::count(&self.counters.resume_failures);
            }
        }
    }

    /// Resumes traces that the kernel paused at a crash without a later freeze. Call it
    /// periodically. A trace stays paused for at least one period.
    pub(super) fn end_stale_pauses(&self) {
        let _turn = locked(&self.turn);
        let stale =
            |trace: &&Arc<dyn FreezableTrace>| trace.offline_since().is_none() && trace.pause_is_stale();
        for trace in self.traces().iter().filter(stale) {
            SharedCounters::count(&self.counters.paused_by_kernel);
            if !trace.resume(true) {
                SharedCounters::count(&self.counters.resume_failures);
            }
        }
    }

    /// Removes a buffer, with the trace of an offline processor.
    pub(super) fn shrink(&self) {
        self.pool.size.fetch_sub(1, Ordering::Relaxed);
        let mut free = locked(&self.pool.free);
        if free.len() > self.pool.size.load(Ordering::Relaxed) {
            free.pop();
        }
    }

    /// Returns whether all buffers are locked in memory.
    pub(super) fn buffers_locked(&self) -> bool {
        locked(&self.pool.free).iter().all(LockedMemory::is_locked)
    }
}

impl FreezerState {
    /// Locks the traces for reading.
    pub(super) fn traces(&self) -> RwLockReadGuard<'_, Vec<Arc<dyn FreezableTrace>>> {
        self.traces.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the traces for writing.
    pub(super) fn traces_mut(&self) -> RwLockWriteGuard<'_, Vec<Arc<dyn FreezableTrace>>> {
        self.traces.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the conversion from TSC to perf's clock.
    pub(super) fn conversion(&self) -> TscConversion {
        *self.conversion.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the conversion after the kernel has recalibrated its clock.
    pub(super) fn set_conversion(&self, conversion: TscConversion) {
        *self.conversion.write().unwrap_or_else(PoisonError::into_inner) = conversion;
    }

    /// Stops the threads.
    pub(super) fn close(&self) {
        locked(&self.jobs.queue).closed = true;
        self.jobs.some.notify_all();
        for worker in locked(&self.workers).drain(..) {
            let _ = worker.join();
        }
    }
}

impl CopyQueue {
    /// Waits for the next job. `None`: the queue is closed.
    fn next(&self) -> Option<CopyJob> {
        let mut queue = locked(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.some.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn try_next(&self) -> Option<CopyJob> {
        locked(&self.queue).jobs.pop_front()
    }
}

impl CopyJob {
    /// Copies the trace and resumes it.
    fn run(self) {
        let copied = self.stopped.then(|| {
            let (mut memory, had_buffer) = self.shared.pool.lend(self.trace.size())?;
            let copy = self.trace.copy(memory.bytes_mut())?;
            Ok::<_, PerfError>((memory, had_buffer, copy))
        });
        let resumed_at = (!self.off && self.trace.resume(self.paused_by_kernel)).then(clock::monotonic);
        let frozen = copied
            .and_then(std::result::Result::ok)
            .map(|(memory, had_buffer, copy)| FrozenCpu {
                cpu: self.trace.cpu(),
                wrapped: copy.wrapped,
                paused_at: self.paused_at,
                paused: self.paused,
                resumed_at,
                paused_by_kernel: self.paused_by_kernel,
                off: self.off,
                had_buffer,
                copy,
                memory,
            });
        if !self.off && resumed_at.is_none() {
            self.shared.not_resumed.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(slot) = locked(&self.shared.done).get_mut(self.index) {
            *slot = Some(frozen);
        }
        self.shared.all.notify_all();
    }
}

impl Freezer {
    /// Pauses all traces, that of processor `first` before all others. Then copies them in the same
    /// order, and resumes each as soon as it is copied. The time from pause to resume is a gap in
    /// the next trace.
    ///
    /// `crash_at` is the time of the crash by `CLOCK_MONOTONIC`, for the report. Afterwards, read
    /// the sideband ([`Hardware::drain`](super::Hardware::drain)) before using the history of this
    /// moment.
    #[must_use]
    pub fn freeze(&self, first: Option<Cpu>, crash_at: Option<u64>) -> Frozen {
        let shared = &self.0;
        let _turn = locked(&shared.turn);
        let began_at = clock::monotonic();
        let conversion = shared.conversion();
        SharedCounters::count(&shared.counters.freezes);
        let mut traces = shared.traces().clone();
        // Of two traces of the same processor, the online one.
        if let Some(position) = traces
            .iter()
            .position(|trace| Some(trace.cpu()) == first && trace.offline_since().is_none())
        {
            traces.swap(0, position);
        }
        let round = Arc::new(FreezeRound {
            pool: shared.pool.clone(),
            done: Mutex::new(traces.iter().map(|_| None).collect()),
            all: Condvar::new(),
            not_resumed: AtomicU64::new(0),
        });
        let mut jobs: VecDeque<CopyJob> = traces
            .into_iter()
            .enumerate()
            .map(|(index, trace)| {
                let paused = trace.pause();
                let off = trace.offline_since().is_some();
                let stopped = paused || off;
                let (paused_at, paused) = match trace.offline_since() {
                    None => (clock::monotonic(), clock::tsc()),
                    Some(offline_at) => (
                        offline_at,
                        conversion.tsc(clock::perf_of_monotonic(&conversion, offline_at)),
                    ),
                };
                CopyJob {
                    index,
                    paused,
                    paused_at,
                    paused_by_kernel: trace.paused_by_kernel(),
                    stopped,
                    off,
                    trace,
                    shared: round.clone(),
                }
            })
            .collect();
        for _ in jobs.iter().filter(|job| job.paused_by_kernel) {
            SharedCounters::count(&shared.counters.paused_by_kernel);
        }
        let crashed = jobs.pop_front();
        locked(&shared.jobs.queue).jobs.extend(jobs);
        shared.jobs.some.notify_all();
        if let Some(job) = crashed {
            job.run();
        }
        while let Some(job) = shared.jobs.try_next() {
            job.run();
        }
        let mut done = locked(&round.done);
        while done.iter().any(Option::is_none) {
            done = round.all.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        // Traces that could not be stopped or copied are left out.
        let cpus: Vec<FrozenCpu> = done.drain(..).flatten().flatten().collect();
        let failures = round.not_resumed.load(Ordering::Relaxed);
        shared
            .counters
            .resume_failures
            .fetch_add(failures, Ordering::Relaxed);
        for _ in cpus.iter().filter(|cpu| !cpu.had_buffer) {
            SharedCounters::count(&shared.counters.buffers_missing);
        }
        Frozen {
            cpus,
            began_at,
            crash_at,
        }
    }

    /// Returns the copy threads, so that the caller can set their priority.
    #[must_use]
    pub fn threads(&self) -> &[Tid] {
        &self.0.tids
    }
}

#[cfg(test)]
mod tests;
