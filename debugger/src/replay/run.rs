//! A replay from the beginning of a segment, instruction by instruction.

use super::checkpoints::Checkpoint;
use super::segments::ReplaySegment;
use super::sharing::MapChange;
use super::{ExecutedPath, ReplayGap, ThreadReplay, kernel};
use backtrail_decoder::Watch;
use backtrail_semantics::{ENCODED, LogReader, NoObserver, Observer, State, Stop};
use kernel::KernelWrites;
use std::rc::Rc;

/// The instructions between two checks for a cancel.
const CHECK: u64 = 1 << 14;

/// The receiver of the accesses of a run.
pub trait AccessSink {
    /// The observer of one instruction.
    type Observer<'a>: Observer
    where
        Self: 'a;

    /// Returns the observer of instruction `index`.
    fn of(&mut self, index: u64) -> Self::Observer<'_>;

    /// Notes the memory that a system call writes.
    fn kernel(&mut self, index: u64, writes: KernelWrites);

    /// Notes a change of the memory map.
    fn maps(&mut self, index: u64, change: MapChange);
}

impl AccessSink for () {
    type Observer<'a> = NoObserver;

    fn of(&mut self, _index: u64) -> NoObserver {
        NoObserver
    }

    fn kernel(&mut self, _index: u64, _writes: KernelWrites) {}

    fn maps(&mut self, _index: u64, _change: MapChange) {}
}

/// A replay that has reached a position.
pub struct Run {
    /// The end of the segment.
    end: u64,
    index: u64,
    state: State,
    content: Rc<[u8]>,
    /// The place of the next logged byte.
    at: usize,
    /// Whether the last system call has not returned, so that the registers are those before it.
    is_unfinished: bool,
    /// The address to which the last instruction leads, if it has run.
    next: Option<u64>,
}

impl Run {
    /// Begins a run. `None`: the content has no registers.
    pub fn new(segment: &ReplaySegment, content: Rc<[u8]>) -> Option<Self> {
        let state = State::decode(&content)?;
        Some(Self {
            end: segment.end,
            index: segment.start,
            state,
            content,
            at: ENCODED,
            is_unfinished: false,
            next: None,
        })
    }

    /// Goes on from a checkpoint, with the content of its segment.
    pub fn resume(checkpoint: &Checkpoint, content: Rc<[u8]>) -> Self {
        Self {
            end: checkpoint.end,
            index: checkpoint.index,
            state: checkpoint.state.clone(),
            content,
            at: checkpoint.at,
            is_unfinished: checkpoint.is_unfinished,
            next: checkpoint.next,
        }
    }

    /// Returns its state, to go on from later.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            end: self.end,
            index: self.index,
            state: self.state.clone(),
            at: self.at,
            is_unfinished: self.is_unfinished,
            next: self.next,
        }
    }

    /// Returns the registers at the reached position.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns whether the registers are known: the last system call has returned.
    pub const fn has_registers(&self) -> bool {
        !self.is_unfinished
    }

    /// Returns the address to which the last instruction leads. `None`: it is not known.
    pub const fn next(&self) -> Option<u64> {
        self.next
    }

    /// Returns the instruction before which it is.
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// Replays to the position before instruction `to`.
    ///
    /// # Errors
    /// Fails with the reason why it is not reached. The run is then at the last known position.
    pub fn forward_to<S: AccessSink>(
        &mut self,
        to: u64,
        replay: &ThreadReplay,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
        sink: &mut S,
    ) -> Result<(), ReplayGap> {
        let history = path.history();
        let mut walker = history.walk(self.index);
        let mut version = history.version(self.index);
        let mut effects = replay.effects.borrow_mut();
        let has_versions = history.version(history.len()) != history.version(0);
        while self.index < to {
            if self.index.is_multiple_of(CHECK) && watch.is_canceled() {
                return Err(ReplayGap::Canceled);
            }
            let index = self.index;
            let instruction = walker.next().ok_or(ReplayGap::NoCode(index))?;
            if has_versions {
                version = history.version(index);
            }
            let effect = effects
                .of(path, version, instruction.pc, instruction.len)
                .ok_or(ReplayGap::NoCode(index))?;
            let call = effect.is_syscall().then(|| kernel::Call::before(&self.state));
            let mut log = LogReader::new(self.content.get(self.at..).unwrap_or_default());
            let before = log.left();
            let next = effect.replay(&mut self.state, &mut log, &mut sink.of(index));
            // The last system call of a thread need not have returned.
            if let (Err(Stop::Memory(_)), Some(call)) = (&next, call)
                && index + 1 == history.len()
            {
                sink.kernel(index, call.unfinished_writes());
                self.index += 1;
                self.is_unfinished = true;
                return Ok(());
            }
            // The registers after the return from a signal handler are in the next segment.
            if let (Err(Stop::Memory(_)), Some(call)) = (&next, call)
                && call.returns_from_handler()
                && index + 1 == self.end
            {
                self.index += 1;
                (self.is_unfinished, self.next) = (true, None);
                return Ok(());
            }
            let next = next.map_err(|stop| match stop {
                Stop::Memory(_) => ReplayGap::LogEnd(index),
                _ => ReplayGap::Disagreement(index),
            })?;
            self.at += before - log.left();
            if let Some(call) = call {
                sink.kernel(index, call.writes(&self.state));
                if let Some(change) = MapChange::of(call, &self.state) {
                    sink.maps(index, change);
                }
            }
            self.index += 1;
            self.next = Some(next);
            // At its end, the registers are those of the next segment.
            let expected = walker.peek().map(|next| next.pc.0);
            if self.index < self.end && expected.is_some_and(|expected| expected != next) {
                return Err(ReplayGap::Disagreement(index));
            }
        }
        Ok(())
    }
}
