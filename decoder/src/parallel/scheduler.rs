//! Schedules segment, merge and forest jobs on the threads of a parallel decode.

use super::error::ParallelError;
use super::forest_worker::ForestWorker;
use super::history_delta::HistoryDelta;
use super::merge::{HistoryMerger, MergedSegment};
use super::segment_output::{DecodedSegment, SegmentOutput};
use crate::engine::native::{PsbSplitter, Segment};
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The next job of a thread.
pub(super) enum Task<'a> {
    /// Adds a delta of the history to the forest.
    GrowForest(Box<ForestWorker<'a>>, HistoryDelta),
    /// Adds a decoded segment to the history.
    Merge(Box<HistoryMerger>, Box<DecodedSegment>),
    /// Decodes a segment, given by its number, into a buffer.
    Decode(usize, Segment, SegmentOutput),
}

/// The state of the work, shared by all threads.
pub(super) struct Scheduler<'a, 't> {
    splitter: PsbSplitter<'t>,
    state: Mutex<SchedulerState<'a>>,
    /// Notified when there may be a new job.
    condvar: Condvar,
    stopped: AtomicBool,
    jobs: NonZeroUsize,
}

struct SchedulerState<'a> {
    /// The start of the next segment; `None`: all are issued.
    next: Option<usize>,
    issued: usize,
    merged: usize,
    ready: BTreeMap<usize, Box<DecodedSegment>>,
    /// Empty buffers.
    buffers: Vec<SegmentOutput>,
    /// `None`: a thread has it.
    merger: Option<Box<HistoryMerger>>,
    /// The deltas not yet in the forest, in order.
    deltas: VecDeque<HistoryDelta>,
    forest: ForestSlot<'a>,
    error: Option<ParallelError>,
}

/// The place of the forest worker.
enum ForestSlot<'a> {
    /// No forest is wanted.
    None,
    Free(Box<ForestWorker<'a>>),
    /// A thread has it.
    InUse,
}

impl<'a, 't> Scheduler<'a, 't> {
    /// Segments per thread that wait or are being decoded: always this many,
    const SEGMENTS: usize = 3;
    /// and at most this many while memory is below [`Self::MEMORY_LIMIT`]: the first segment can
    /// take as long as many later ones.
    const MAX_SEGMENTS: usize = 16;
    /// Waiting segments at which the decoding thread merges too.
    const MAX_BACKLOG: usize = 12;
    /// Towards the end of the trace, this part of the remaining segments is enough.
    const BACKLOG_SHARE: usize = 4;
    /// The bytes of all waiting output below which further segments are issued.
    const MEMORY_LIMIT: usize = 32 << 20;

    pub fn new(
        splitter: PsbSplitter<'t>,
        merger: HistoryMerger,
        worker: Option<ForestWorker<'a>>,
        jobs: NonZeroUsize,
    ) -> Self {
        Self {
            splitter,
            state: Mutex::new(SchedulerState {
                next: Some(0),
                issued: 0,
                merged: 0,
                ready: BTreeMap::new(),
                buffers: Vec::new(),
                merger: Some(Box::new(merger)),
                deltas: VecDeque::new(),
                forest: worker.map_or(ForestSlot::None, |worker| ForestSlot::Free(Box::new(worker))),
                error: None,
            }),
            condvar: Condvar::new(),
            stopped: AtomicBool::new(false),
            jobs,
        }
    }

    /// Returns the next job of a thread, and waits for one if needed; `None`: the work is done.
    ///
    /// One thread (`decodes`) prefers decoding, because it knows the code best, until too many
    /// segments wait for merging. The others prefer the other jobs.
    pub fn next(&self, decodes: bool) -> Option<Task<'a>> {
        let mut state = self.state();
        loop {
            if state.error.is_some() {
                return None;
            }
            let task = match decodes {
                true => (state.take_merge_if_behind(self))
                    .or_else(|| state.take_segment(self))
                    .or_else(|| state.take_merge())
                    .or_else(|| state.take_forest_task()),
                false => (state.take_forest_task())
                    .or_else(|| state.take_merge())
                    .or_else(|| state.take_segment(self)),
            };
            if task.is_some() {
                return task;
            }
            if state.next.is_none() && state.merged == state.issued && state.deltas.is_empty() {
                return None;
            }
            state = self.condvar.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stores a decoded segment.
    pub fn deliver(&self, number: usize, done: DecodedSegment) {
        self.state().ready.insert(number, Box::new(done));
        self.condvar.notify_all();
    }

    /// Ends a merge.
    pub fn finish_merge(&self, merger: Box<HistoryMerger>, merged: MergedSegment) {
        let mut state = self.state();
        match merged {
            MergedSegment::Delta(delta) => state.deltas.push_back(delta),
            MergedSegment::Buffer(output) => state.buffers.push(output),
        }
        state.merger = Some(merger);
        state.merged += 1;
        self.condvar.notify_all();
    }

    /// Ends a forest job; `output` is an empty buffer.
    pub fn finish_forest_task(&self, worker: Box<ForestWorker<'a>>, output: SegmentOutput) {
        let mut state = self.state();
        state.buffers.push(output);
        state.forest = ForestSlot::Free(worker);
        self.condvar.notify_all();
    }

    /// Stops all work with an error.
    pub fn fail(&self, error: ParallelError) {
        let mut state = self.state();
        state.error.get_or_insert(error);
        // Threads stopped by this report errors too, but later.
        self.stopped.store(true, Ordering::Release);
        drop(state);
        self.condvar.notify_all();
    }

    /// Returns whether the work was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns the history and the forest, after all threads have ended.
    pub fn finish(self) -> Result<(HistoryMerger, Option<ForestWorker<'a>>), ParallelError> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (state.error, state.merger, state.forest) {
            (None, Some(merger), ForestSlot::None) => Ok((*merger, None)),
            (None, Some(merger), ForestSlot::Free(worker)) => Ok((*merger, Some(*worker))),
            (error, ..) => Err(error.unwrap_or(ParallelError::Discontinuous)),
        }
    }

    fn state(&self) -> MutexGuard<'_, SchedulerState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> SchedulerState<'a> {
    fn take_forest_task(&mut self) -> Option<Task<'a>> {
        if self.deltas.is_empty() {
            return None;
        }
        match std::mem::replace(&mut self.forest, ForestSlot::InUse) {
            ForestSlot::Free(worker) => Some(Task::GrowForest(worker, self.deltas.pop_front()?)),
            other => {
                self.forest = other;
                None
            }
        }
    }

    fn take_merge(&mut self) -> Option<Task<'a>> {
        let merger = self.merger.take()?;
        match self.ready.remove(&self.merged) {
            Some(done) => Some(Task::Merge(merger, done)),
            None => {
                self.merger = Some(merger);
                None
            }
        }
    }

    /// Returns a merge job, if many decoded segments wait.
    fn take_merge_if_behind(&mut self, scheduler: &Scheduler<'_, '_>) -> Option<Task<'a>> {
        let left = self.next.map_or(0, |from| scheduler.splitter.segments_left(from));
        let backlog = Scheduler::MAX_BACKLOG.min(left / Scheduler::BACKLOG_SHARE);
        let is_behind = self.ready.len() + self.deltas.len() >= backlog;
        is_behind.then(|| self.take_merge()).flatten()
    }

    /// Returns whether enough segments wait or are being decoded.
    fn is_full(&self, jobs: NonZeroUsize) -> bool {
        // Deltas not yet in the forest take memory too.
        let each = (self.issued - self.merged + self.deltas.len()) / jobs;
        let ready = self.ready.values().map(|done| done.output.memory());
        let memory = || {
            ready
                .chain(self.deltas.iter().map(HistoryDelta::memory))
                .sum::<usize>()
        };
        each >= Scheduler::SEGMENTS
            && (each >= Scheduler::MAX_SEGMENTS || memory() >= Scheduler::MEMORY_LIMIT)
    }

    fn take_segment(&mut self, scheduler: &Scheduler<'_, '_>) -> Option<Task<'a>> {
        if self.is_full(scheduler.jobs) {
            return None;
        }
        let from = self.next?;
        self.next = scheduler.splitter.segment_end(from);
        let segment = Segment {
            from: (self.issued > 0).then_some(from),
            to: self.next,
        };
        self.issued += 1;
        let output = self.buffers.pop().unwrap_or_default();
        Some(Task::Decode(self.issued - 1, segment, output))
    }
}
