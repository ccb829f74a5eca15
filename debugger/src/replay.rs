//! Replay of recorded values: the registers and the memory accesses of each position.
//!
//! A bundle may have a value log of a thread ([`backtrail_bundle::value_log`]). Each of its
//! segments begins with all registers, at a mark in the history. From there, the instructions of
//! the history are computed again by their models. The log has the loaded bytes and the results
//! without a model. Each instruction must lead to the next one of the history, or the rest of the
//! segment is a gap.

mod accesses;
mod kernel;
mod memory;
mod run;
mod segments;

use accesses::{AccessKind, Accesses};
use backtrail_bundle::value_log::ValueLog;
use backtrail_decoder::{History, Position, Version, Watch};
use backtrail_pt::Avma;
use backtrail_semantics::{Effect, State};
use backtrail_symbolizer::Unknown;
use iced_x86::Instruction;
pub use memory::CoreMemory;
use run::Run;
use rustc_hash::{FxHashMap, FxHashSet};
use segments::ReplaySegment;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// The most instructions whose effects are kept.
const MAX_EFFECTS: usize = 1 << 18;
/// The accesses that are kept, in bytes.
const MAX_ACCESSES: usize = 256 << 20;

/// The executed instructions of a thread.
pub trait ExecutedPath {
    /// Returns them in order.
    fn history(&self) -> &History;

    /// Returns the instruction of `len` bytes at an address, in a version of the code.
    fn decode(&self, version: Version, pc: Avma, len: u8) -> Option<Instruction>;

    /// Returns the name of the position before an instruction.
    fn position(&self, index: u64) -> Position;
}

/// The effects of instructions by their addresses and versions. `None`: the code is not known.
type Effects = FxHashMap<(Avma, Version), Option<Rc<Effect>>>;

/// The replay of a thread.
pub struct ThreadReplay {
    log: ValueLog,
    segments: Vec<ReplaySegment>,
    effects: RefCell<Effects>,
    /// The last run, which goes on if a later position of its segment is asked for.
    last: RefCell<Option<Run>>,
    accesses: RefCell<FxHashMap<usize, Rc<Accesses>>>,
    /// The lines of memory that the thread stores to. `None`: not all are known.
    stored: OnceCell<Option<FxHashSet<u64>>>,
}

/// The number of low bits of an address within a line of memory.
const LINE_BITS: u32 = 6;
/// The most lines of a thread that are kept.
const MAX_LINES: usize = 16 << 20;

/// The reason why a replay does not reach a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayGap {
    /// The log has no segment there.
    NotRecorded,
    /// The replay and the trace disagree after this instruction.
    Disagreement(u64),
    /// The log ends before this instruction.
    LogEnd(u64),
    /// The code of this instruction is not known.
    NoCode(u64),
    /// The user has canceled.
    Canceled,
}

impl ReplayGap {
    /// Returns the reason for the user.
    #[must_use]
    pub fn reason(&self, path: &dyn ExecutedPath) -> Unknown {
        let at = |index: u64| path.position(index);
        match self {
            Self::NotRecorded => "no values were recorded here".into(),
            Self::Disagreement(index) => format!(
                "the recorded values do not lead along the trace after {}",
                at(*index)
            )
            .into(),
            Self::LogEnd(index) => format!("the recorded values end before {}", at(*index)).into(),
            Self::NoCode(index) => format!("the code at {} is not known", at(*index)).into(),
            Self::Canceled => "canceled".into(),
        }
    }
}

impl ThreadReplay {
    /// Returns the replay of a thread with a value log.
    #[must_use]
    pub fn new(log: ValueLog, history: &History) -> Self {
        let segments = segments::find(&log, history);
        Self {
            log,
            segments,
            effects: RefCell::default(),
            last: RefCell::default(),
            accesses: RefCell::default(),
            stored: OnceCell::new(),
        }
    }

    /// Returns the registers before instruction `index`.
    ///
    /// # Errors
    /// Fails with the reason why they are not known.
    pub fn state_at(
        &self,
        path: &dyn ExecutedPath,
        index: u64,
        watch: &Watch<'_>,
    ) -> Result<State, ReplayGap> {
        let number = self.segment_at(index).ok_or(ReplayGap::NotRecorded)?;
        let mut last = self.last.borrow_mut();
        let reusable = last.take().filter(|run| run.reaches(number, index));
        let mut run = match reusable {
            Some(run) => run,
            None => self.begin(number)?,
        };
        run.forward_to(index, self, path, watch, &mut ())?;
        let state = run.state().clone();
        *last = Some(run);
        Ok(state)
    }

    /// Returns whether the thread may store to memory at any time of its history.
    ///
    /// # Errors
    /// Fails if the user has canceled.
    pub fn may_store(
        &self,
        path: &dyn ExecutedPath,
        address: u64,
        size: usize,
        watch: &Watch<'_>,
    ) -> Result<bool, ReplayGap> {
        if self.stored.get().is_none() {
            let lines = self.stored_lines(path, watch)?;
            let _ = self.stored.set(lines);
        }
        let last = address.saturating_add((size as u64).saturating_sub(1));
        let known = self.stored.get().and_then(Option::as_ref);
        Ok(known
            .is_none_or(|lines| (address >> LINE_BITS..=last >> LINE_BITS).any(|line| lines.contains(&line))))
    }

    fn stored_lines(
        &self,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<Option<FxHashSet<u64>>, ReplayGap> {
        let mut lines = FxHashSet::default();
        let covers = self.segments.first().is_some_and(|segment| segment.start == 0)
            && self.segments.windows(2).all(|pair| pair[0].end == pair[1].start);
        if !covers {
            return Ok(None);
        }
        for number in 0..self.segments.len() {
            let accesses = self.accesses_of(number, path, watch)?;
            if !accesses.is_complete {
                return Ok(None);
            }
            for access in accesses.from(0) {
                match access.kind {
                    AccessKind::Load => {}
                    AccessKind::Anywhere => return Ok(None),
                    AccessKind::Store | AccessKind::Kernel => {
                        let last = access.address.saturating_add(access.size.saturating_sub(1));
                        let range = access.address >> LINE_BITS..=last >> LINE_BITS;
                        if range.clone().count() > MAX_LINES {
                            return Ok(None);
                        }
                        lines.extend(range);
                    }
                }
            }
            if lines.len() > MAX_LINES {
                return Ok(None);
            }
        }
        Ok(Some(lines))
    }

    /// Returns the accesses of a segment. If the replay fails in it, those before.
    fn accesses_of(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<Rc<Accesses>, ReplayGap> {
        if let Some(known) = self.accesses.borrow().get(&number) {
            return Ok(known.clone());
        }
        let segment = self.segments.get(number).ok_or(ReplayGap::NotRecorded)?;
        let mut run = self.begin(number)?;
        let mut accesses = Accesses::new(segment.start);
        match run.forward_to(segment.end, self, path, watch, &mut accesses) {
            Ok(()) => accesses.is_complete = true,
            Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
            Err(_) => {}
        }
        accesses.end = Some(run.state().clone());
        let accesses = Rc::new(accesses);
        let mut kept = self.accesses.borrow_mut();
        let size: usize = kept.values().map(|known| known.size()).sum();
        if size > MAX_ACCESSES {
            kept.clear();
        }
        kept.insert(number, accesses.clone());
        Ok(accesses)
    }

    /// Returns the number of the segment that has the registers before instruction `index`.
    fn segment_at(&self, index: u64) -> Option<usize> {
        let after = self.segments.partition_point(|segment| segment.start <= index);
        let number = after.checked_sub(1)?;
        (index <= self.segments.get(number)?.end).then_some(number)
    }

    fn begin(&self, number: usize) -> Result<Run, ReplayGap> {
        let segment = self.segments.get(number).ok_or(ReplayGap::NotRecorded)?;
        let content = self.log.segments().get(segment.in_log);
        let content = content.and_then(|content| self.log.content(content).ok());
        content
            .and_then(|content| Run::new(number, segment, content))
            .ok_or(ReplayGap::LogEnd(segment.start))
    }

    /// Returns the effect of an instruction. `None`: its code is not known.
    fn effect(&self, path: &dyn ExecutedPath, version: Version, pc: Avma, len: u8) -> Option<Rc<Effect>> {
        let mut effects = self.effects.borrow_mut();
        if let Some(known) = effects.get(&(pc, version)) {
            return known.clone();
        }
        let instruction = path.decode(version, pc, len);
        let effect = instruction.map(|instruction| Rc::new(Effect::of(&instruction)));
        if effects.len() >= MAX_EFFECTS {
            effects.clear();
        }
        effects.insert((pc, version), effect.clone());
        effect
    }
}
