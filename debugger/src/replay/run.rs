//! A replay from the beginning of a segment, block by block.

use super::checkpoints::Checkpoint;
use super::effects::{BlockInstruction, Effects};
use super::segments::ReplaySegment;
use super::sharing::MapChange;
use super::{ExecutedPath, ReplayGap, kernel};
use backtrail_decoder::Watch;
use backtrail_semantics::{ENCODED, Effect, LogEnd, LogReader, NoObserver, Observer, State, Stop};
use kernel::KernelWrites;
use std::sync::Arc;

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
    content: Arc<[u8]>,
    /// The place of the next logged byte.
    at: usize,
    /// Whether the last system call has not returned, so that the registers are those before it.
    is_unfinished: bool,
    /// The address to which the last instruction leads, if it has run.
    next: Option<u64>,
}

impl Run {
    /// Begins a run. `None`: the content has no registers.
    pub fn new(segment: &ReplaySegment, content: Arc<[u8]>) -> Option<Self> {
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
    pub fn resume(checkpoint: &Checkpoint, content: Arc<[u8]>) -> Self {
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

    /// Replays to the position before instruction `to`. `effects` has those of blocks that ran
    /// before.
    ///
    /// # Errors
    /// Fails with the reason why it is not reached. The run is then at the last known position.
    pub fn forward_to<S: AccessSink>(
        &mut self,
        to: u64,
        effects: &mut Effects,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
        sink: &mut S,
    ) -> Result<(), ReplayGap> {
        let history = path.history();
        let mut walker = history.walk(self.index);
        let mut check_at = self.index;
        while self.index < to {
            if self.index >= check_at {
                check_at = self.index + CHECK;
                if watch.is_canceled() {
                    return Err(ReplayGap::Canceled);
                }
            }
            let block = effects.of(path, &walker).ok_or(ReplayGap::NoCode(self.index))?;
            let most = usize::try_from(to - self.index).unwrap_or(usize::MAX);
            let block = block.get(..most).unwrap_or(block);
            let from = self.index;
            self.through(block, history.len(), sink)?;
            walker.skip_in_block((self.index - from) as usize);
            // At its end, the registers are those of the next segment.
            if let (Some(expected), Some(next)) = (walker.peek(), self.next)
                && self.index < self.end
                && expected.pc.0 != next
            {
                return Err(ReplayGap::Disagreement(self.index - 1));
            }
        }
        Ok(())
    }

    /// Replays instructions in a row. `end` is that of the history.
    fn through<S: AccessSink>(
        &mut self,
        block: &[BlockInstruction],
        end: u64,
        sink: &mut S,
    ) -> Result<(), ReplayGap> {
        let content = self.content.clone();
        let unread = content.get(self.at..).unwrap_or_default();
        let mut log = LogReader::new(unread);
        let last = block.len().saturating_sub(1);
        for (number, instruction) in block.iter().enumerate() {
            let index = self.index;
            let effect = instruction.effect.as_ref().ok_or(ReplayGap::NoCode(index))?;
            let next = if effect.is_syscall() {
                match self.system_call(effect, end, &mut log, sink)? {
                    Some(next) => next,
                    None => return Ok(()),
                }
            } else {
                let next = effect.replay(&mut self.state, &mut log, &mut sink.of(index));
                next.map_err(|stop| gap_of(stop, index))?
            };
            self.at = content.len() - log.left();
            self.index += 1;
            self.next = Some(next);
            if number < last && next != instruction.next {
                return Err(ReplayGap::Disagreement(index));
            }
        }
        Ok(())
    }

    /// Replays a system call. Returns the address of the next instruction. `None`: the call has not
    /// returned, and the registers after it are not known.
    fn system_call<S: AccessSink>(
        &mut self,
        effect: &Effect,
        end: u64,
        log: &mut LogReader<'_>,
        sink: &mut S,
    ) -> Result<Option<u64>, ReplayGap> {
        let index = self.index;
        let call = kernel::Call::before(&self.state);
        let next = effect.replay(&mut self.state, log, &mut sink.of(index));
        if matches!(next, Err(Stop::Memory(_))) {
            // The last system call of a thread need not have returned.
            if index + 1 == end {
                sink.kernel(index, call.unfinished_writes());
                self.index += 1;
                self.is_unfinished = true;
                return Ok(None);
            }
            // The registers after the return from a signal handler are in the next segment.
            if call.returns_from_handler() && index + 1 == self.end {
                self.index += 1;
                (self.is_unfinished, self.next) = (true, None);
                return Ok(None);
            }
        }
        let next = next.map_err(|stop| gap_of(stop, index))?;
        sink.kernel(index, call.writes(&self.state));
        if let Some(change) = MapChange::of(call, &self.state) {
            sink.maps(index, change);
        }
        Ok(Some(next))
    }
}

/// Returns why instruction `index` cannot be replayed.
fn gap_of(stop: Stop<LogEnd>, index: u64) -> ReplayGap {
    match stop {
        Stop::Memory(_) => ReplayGap::LogEnd(index),
        _ => ReplayGap::Disagreement(index),
    }
}
