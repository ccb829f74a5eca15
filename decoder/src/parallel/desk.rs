//! Who of several threads does what next.

use super::join::{Joined, Joiner};
use super::plant::{Growth, Planter};
use super::tape::Tape;
use crate::engine::native::{Ended, Scout, Segment};
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Why there is no history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The caller asked to stop.
    Canceled,
    /// A segment does not continue the one before it.
    Apart,
}

/// A segment that is decoded.
pub(super) struct Done {
    /// The number of the engine.
    pub engine: usize,
    pub tape: Tape,
    pub ended: Ended,
    /// Where it ends in the trace bytes.
    pub to: Option<usize>,
}

/// What a thread does next.
pub(super) enum Task<'a> {
    /// Adds to the forest what the history got.
    Plant(Box<Planter<'a>>, Growth),
    /// Adds to the history what was decoded.
    Join(Box<Joiner>, Box<Done>),
    /// Decodes the segment with a number onto a tape.
    Decode(usize, Segment, Tape),
}

/// Where the work stands, for all threads.
pub(super) struct Desk<'a, 't> {
    scout: Scout<'t>,
    state: Mutex<State<'a>>,
    /// Rings when there may be something to do.
    bell: Condvar,
    halted: AtomicBool,
    jobs: NonZeroUsize,
}

struct State<'a> {
    /// Where the next segment begins that is given out; `None`: all are.
    next: Option<usize>,
    given: usize,
    joined: usize,
    ready: BTreeMap<usize, Box<Done>>,
    /// Empty ones.
    tapes: Vec<Tape>,
    /// `None`: a thread has it.
    joiner: Option<Box<Joiner>>,
    /// What the forest has not got yet, in order.
    growths: VecDeque<Growth>,
    forest: Plot<'a>,
    failed: Option<Failed>,
}

/// Where the forest grows.
enum Plot<'a> {
    /// None is wanted.
    None,
    Free(Box<Planter<'a>>),
    /// A thread has it.
    Taken,
}

impl<'a, 't> Desk<'a, 't> {
    /// Segments for each thread that wait or are being decoded: always so many,
    const SEGMENTS: usize = 3;
    /// and so many while they take little memory: where a program begins, a segment can take as long as many behind it.
    const MOST_SEGMENTS: usize = 16;
    /// Segments that wait when the others are behind.
    const MUCH: usize = 12;
    /// Towards the end, where one thread would wait for the other to get through what waits, such a part of the segments that are left.
    const PARTS_OF_LEFT: usize = 4;
    /// Bytes of all that waits that are little.
    const LITTLE: usize = 32 << 20;

    pub fn new(scout: Scout<'t>, joiner: Joiner, planter: Option<Planter<'a>>, jobs: NonZeroUsize) -> Self {
        Self {
            scout,
            state: Mutex::new(State {
                next: Some(0),
                given: 0,
                joined: 0,
                ready: BTreeMap::new(),
                tapes: Vec::new(),
                joiner: Some(Box::new(joiner)),
                growths: VecDeque::new(),
                forest: planter.map_or(Plot::None, |planter| Plot::Free(Box::new(planter))),
                failed: None,
            }),
            bell: Condvar::new(),
            halted: AtomicBool::new(false),
            jobs,
        }
    }

    /// What one of the threads does next, once there is something; `None`: nothing any more.
    ///
    /// One thread decodes before it does anything else, for it knows the code best, until the others, who are there
    /// for the rest first, fall behind.
    pub fn next(&self, decodes: bool) -> Option<Task<'a>> {
        let mut state = self.state();
        loop {
            if state.failed.is_some() {
                return None;
            }
            let task = match decodes {
                true => (state.take_join_behind(self))
                    .or_else(|| state.take_segment(self))
                    .or_else(|| state.take_join())
                    .or_else(|| state.take_growth()),
                false => (state.take_growth())
                    .or_else(|| state.take_join())
                    .or_else(|| state.take_segment(self)),
            };
            if task.is_some() {
                return task;
            }
            if state.next.is_none() && state.joined == state.given && state.growths.is_empty() {
                return None;
            }
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A segment is decoded.
    pub fn deliver(&self, number: usize, done: Done) {
        self.state().ready.insert(number, Box::new(done));
        self.bell.notify_all();
    }

    /// A segment is part of the history.
    pub fn give_back(&self, joiner: Box<Joiner>, joined: Joined) {
        let mut state = self.state();
        match joined {
            Joined::Growth(growth) => state.growths.push_back(growth),
            Joined::Tape(tape) => state.tapes.push(tape),
        }
        state.joiner = Some(joiner);
        state.joined += 1;
        self.bell.notify_all();
    }

    /// The forest has what it was given, and its tape is empty.
    pub fn put_back(&self, planter: Box<Planter<'a>>, tape: Tape) {
        let mut state = self.state();
        state.tapes.push(tape);
        state.forest = Plot::Free(planter);
        self.bell.notify_all();
    }

    /// There is nothing to do any more.
    pub fn fail(&self, failed: Failed) {
        let mut state = self.state();
        state.failed.get_or_insert(failed);
        // Whoever is halted by this fails too, and later.
        self.halted.store(true, Ordering::Release);
        drop(state);
        self.bell.notify_all();
    }

    /// It has failed.
    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// The history and the forest, when all threads are done.
    pub fn finish(self) -> Result<(Joiner, Option<Planter<'a>>), Failed> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (state.failed, state.joiner, state.forest) {
            (None, Some(joiner), Plot::None) => Ok((*joiner, None)),
            (None, Some(joiner), Plot::Free(planter)) => Ok((*joiner, Some(*planter))),
            (failed, ..) => Err(failed.unwrap_or(Failed::Apart)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> State<'a> {
    fn take_growth(&mut self) -> Option<Task<'a>> {
        if self.growths.is_empty() {
            return None;
        }
        match std::mem::replace(&mut self.forest, Plot::Taken) {
            Plot::Free(planter) => Some(Task::Plant(planter, self.growths.pop_front()?)),
            other => {
                self.forest = other;
                None
            }
        }
    }

    fn take_join(&mut self) -> Option<Task<'a>> {
        let joiner = self.joiner.take()?;
        match self.ready.remove(&self.joined) {
            Some(done) => Some(Task::Join(joiner, done)),
            None => {
                self.joiner = Some(joiner);
                None
            }
        }
    }

    /// A join, when much of what is decoded waits.
    fn take_join_behind(&mut self, desk: &Desk<'_, '_>) -> Option<Task<'a>> {
        let left = self.next.map_or(0, |from| desk.scout.segments_from(from));
        let much = Desk::MUCH.min(left / Desk::PARTS_OF_LEFT);
        let behind = self.ready.len() + self.growths.len() >= much;
        behind.then(|| self.take_join()).flatten()
    }

    /// What waits, or is being decoded, is enough.
    fn is_full(&self, jobs: NonZeroUsize) -> bool {
        // Those that the forest has not got yet take memory too.
        let each = (self.given - self.joined + self.growths.len()) / jobs;
        let ready = self.ready.values().map(|done| done.tape.memory());
        let memory = || {
            ready
                .chain(self.growths.iter().map(Growth::memory))
                .sum::<usize>()
        };
        each >= Desk::SEGMENTS && (each >= Desk::MOST_SEGMENTS || memory() >= Desk::LITTLE)
    }

    fn take_segment(&mut self, desk: &Desk<'_, '_>) -> Option<Task<'a>> {
        if self.is_full(desk.jobs) {
            return None;
        }
        let from = self.next?;
        self.next = desk.scout.end_of(from);
        let segment = Segment {
            from: (self.given > 0).then_some(from),
            to: self.next,
        };
        self.given += 1;
        let tape = self.tapes.pop().unwrap_or_default();
        Some(Task::Decode(self.given - 1, segment, tape))
    }
}
