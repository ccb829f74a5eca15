//! Replay of recorded values: the registers and the memory accesses of each position.
//!
//! A bundle may have a value log of a thread ([`backtrail_bundle::value_log`]). Each of its
//! segments begins with all registers, at a mark in the history. From there, the instructions of
//! the history are computed again by their models. The log has the loaded bytes and the results
//! without a model. Each instruction must lead to the next one of the history, or the rest of the
//! segment is a gap.

mod accesses;
mod checkpoints;
mod effects;
mod kernel;
mod memory;
mod parts;
mod range;
mod recent;
mod run;
mod search;
mod segment_run;
mod segments;
mod shadow;
mod sharing;
mod summary;

pub use accesses::AccessKind;
use accesses::Accesses;
use backtrail_bundle::value_log::ValueLog;
use backtrail_decoder::{History, Position, Progress, Stage, Version, Watch};
use backtrail_pt::Avma;
use backtrail_semantics::State;
use backtrail_symbolizer::Unknown;
use checkpoints::{Checkpoint, Checkpoints};
use effects::Effects;
use iced_x86::Instruction;
pub use memory::{Byte, CoreMemory};
use parts::{MAX_ACCESSES, Part, SegmentEnds};
pub use range::MemoryRange;
use recent::Recent;
use run::Run;
use rustc_hash::FxHashMap;
pub use search::{AccessFilter, AccessSearch, FoundAccess, UnseenPlace};
use segments::ReplaySegment;
use shadow::Shadow;
pub use shadow::UnseenChange;
pub use sharing::SharedRange;
use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use summary::PartSummary;

/// The contents of segments that are kept, in bytes.
const MAX_CONTENTS: usize = 64 << 20;
/// The instructions between two checkpoints of a run.
const CHECKPOINT: u64 = 1 << 14;

/// The executed instructions of a thread.
pub trait ExecutedPath: Sync {
    /// Returns them in order.
    fn history(&self) -> &History;

    /// Returns the instruction of `len` bytes at an address, in a version of the code.
    fn decode(&self, version: Version, pc: Avma, len: u8) -> Option<Instruction>;

    /// Returns the name of the position before an instruction.
    fn position(&self, index: u64) -> Position;
}

/// The result of a check of all recorded values of a thread.
#[derive(Clone, Debug, Default)]
pub struct ReplayCheck {
    /// The ranges of instructions that the replay does not reach, with the reason. An empty range
    /// has a segment whose registers are not those where the one before it ends, although no signal
    /// came in between.
    pub gaps: Vec<(Range<u64>, ReplayGap)>,
    /// Memory that changed unseen.
    pub unseen: Vec<UnseenChange>,
    /// The number of segments. Each begins with the registers of the processor.
    pub segments: u64,
    /// The number of instructions that were replayed.
    pub instructions: u64,
}

/// The replay of a thread.
pub struct ThreadReplay {
    log: ValueLog,
    segments: Vec<ReplaySegment>,
    parts: Vec<Part>,
    /// The effects of instructions, one for each thread that replays.
    effects: RefCell<Vec<Effects>>,
    checkpoints: RefCell<Checkpoints>,
    /// The contents of the segments that were used last.
    contents: RefCell<Recent<[u8]>>,
    /// The accesses of the parts that were used last.
    accesses: RefCell<Recent<Accesses>>,
    /// The summaries of parts.
    summaries: RefCell<FxHashMap<usize, Rc<PartSummary>>>,
    /// The ends of replayed segments.
    ends: RefCell<FxHashMap<usize, Rc<SegmentEnds>>>,
    /// Whether the log begins at `execve`, once it is asked for.
    begins_at_exec: OnceCell<bool>,
    /// The memory that is shared with other processes, once it is asked for.
    shared: RefCell<Option<Rc<[SharedRange]>>>,
}

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
            parts: parts::split(&segments),
            segments,
            effects: RefCell::default(),
            checkpoints: RefCell::default(),
            contents: RefCell::new(Recent::new(MAX_CONTENTS)),
            accesses: RefCell::new(Recent::new(MAX_ACCESSES)),
            summaries: RefCell::default(),
            ends: RefCell::default(),
            begins_at_exec: OnceCell::new(),
            shared: RefCell::default(),
        }
    }

    /// Returns the first position at which values are known.
    #[must_use]
    pub fn start(&self) -> Option<u64> {
        self.segments.first().map(|segment| segment.start)
    }

    /// Returns whether the log begins where the program began: all general registers but the stack
    /// pointer are zero after `execve` (`arch/x86/include/asm/elf.h`, `ELF_PLAT_INIT`).
    #[must_use]
    pub fn begins_at_exec(&self) -> bool {
        let is_zero = |run: Run| {
            let registers = run.state().general.iter().enumerate();
            registers
                .filter(|(number, _)| *number != 4)
                .all(|(_, value)| *value == 0)
        };
        // Each read of memory asks, and the registers are in a compressed segment.
        *self
            .begins_at_exec
            .get_or_init(|| self.begins_with_thread() && self.begin(0).is_ok_and(is_zero))
    }

    /// Returns whether the log has the first segment of its thread, at the start of the history.
    #[must_use]
    pub fn begins_with_thread(&self) -> bool {
        let number = self.log.segments().first().map(|segment| segment.number);
        number == Some(0) && self.start() == Some(0)
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
        let run = self.run_at(number, index, path, watch)?;
        match run.has_registers() {
            true => Ok(run.state().clone()),
            false => Err(ReplayGap::LogEnd(index)),
        }
    }

    /// Replays all segments, and compares what they know with each other.
    ///
    /// # Errors
    /// Fails when canceled.
    pub fn check(&self, path: &dyn ExecutedPath, watch: &Watch<'_>) -> Result<ReplayCheck, ReplayGap> {
        let mut gaps = Vec::new();
        let mut shadow = Shadow::default();
        let mut before: Option<Run> = None;
        let (mut reached, mut instructions) = (0, 0);
        for (number, segment) in self.segments.iter().enumerate() {
            if reached < segment.start {
                gaps.push((reached..segment.start, ReplayGap::NotRecorded));
            }
            (watch.progress)(Progress {
                stage: Stage::Replay,
                done: segment.start,
                total: path.history().len(),
            });
            reached = segment.end;
            let mut run = match self.begin(number) {
                Ok(run) => run,
                Err(gap) => {
                    gaps.push((segment.start..segment.end, gap));
                    before = None;
                    continue;
                }
            };
            let first = path.history().walk(segment.start).next();
            let earlier = before.take().filter(|run| run.index() == segment.start);
            let is_continued = match &earlier {
                Some(earlier) => earlier.state().agrees_with(run.state()),
                None => number == 0,
            };
            if !is_continued {
                // A signal writes its frame, and a gap may hide writes.
                shadow.clear();
                if earlier.is_some_and(|earlier| earlier.next() == first.map(|first| first.pc.0)) {
                    let last = ReplayGap::Disagreement(segment.start.saturating_sub(1));
                    gaps.push((segment.start..segment.start, last));
                }
            }
            let done = self.advance(&mut run, segment.end, path, watch, &mut shadow);
            instructions += run.index() - segment.start;
            match done {
                Ok(()) => before = Some(run),
                Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
                Err(gap) => gaps.push((run.index()..segment.end, gap)),
            }
        }
        Ok(ReplayCheck {
            gaps,
            unseen: shadow.changes,
            segments: self.segments.len() as u64,
            instructions,
        })
    }

    /// Keeps a run as a checkpoint. Replays usually go backward, so the run of a position is kept
    /// as well.
    fn keep(&self, number: usize, checkpoint: Checkpoint) {
        let mut checkpoints = self.checkpoints.borrow_mut();
        if !checkpoints.has(number, checkpoint.index) {
            checkpoints.add(number, checkpoint);
        }
    }

    /// Returns the first instruction of the segment that has instruction `index`, and whether it
    /// goes on from the segment before.
    ///
    /// # Errors
    /// Fails if no values were recorded there, or when canceled.
    pub fn segment_start(
        &self,
        path: &dyn ExecutedPath,
        index: u64,
        watch: &Watch<'_>,
    ) -> Result<(u64, bool), ReplayGap> {
        let number = self.segment_at(index).ok_or(ReplayGap::NotRecorded)?;
        Ok((self.start_of(number), self.continues(number, path, watch)?))
    }

    /// Returns the memory that system calls of this thread shared with other processes. `size_at`
    /// returns the size of the memory at an address, for a segment of System V of unknown size.
    ///
    /// # Errors
    /// Fails when canceled.
    pub fn shared_ranges(
        &self,
        path: &dyn ExecutedPath,
        size_at: impl Fn(u64) -> Option<u64>,
        watch: &Watch<'_>,
    ) -> Result<Rc<[SharedRange]>, ReplayGap> {
        if let Some(known) = &*self.shared.borrow() {
            return Ok(known.clone());
        }
        let mut changes = Vec::new();
        for number in 0..self.parts.len() {
            match self.summary_of(number, path, watch) {
                Ok(summary) => changes.extend_from_slice(&summary.map_changes),
                Err(ReplayGap::Canceled) => return Err(ReplayGap::Canceled),
                // Without its values, nothing there is known.
                Err(_) => {}
            }
        }
        let ranges = sharing::shared_ranges(&changes, size_at);
        Ok(self.shared.borrow_mut().insert(ranges).clone())
    }

    /// Returns whether nothing happened between the end of the segment before and the beginning of
    /// a segment.
    fn continues(
        &self,
        number: usize,
        path: &dyn ExecutedPath,
        watch: &Watch<'_>,
    ) -> Result<bool, ReplayGap> {
        let Some(before) = number.checked_sub(1) else {
            return Ok(false);
        };
        let (Some(earlier), Some(later)) = (self.segments.get(before), self.segments.get(number)) else {
            return Ok(false);
        };
        if earlier.end != later.start {
            return Ok(false);
        }
        let earlier = self.ends_of(before, path, watch)?;
        let later = self.ends_of(number, path, watch)?;
        Ok(earlier.is_complete && earlier.end.agrees_with(&later.start))
    }

    /// Returns the number of the segment that has the registers before instruction `index`.
    fn segment_at(&self, index: u64) -> Option<usize> {
        let after = self.segments.partition_point(|segment| segment.start <= index);
        let number = after.checked_sub(1)?;
        (index <= self.segments.get(number)?.end).then_some(number)
    }

    fn start_of(&self, number: usize) -> u64 {
        self.segments.get(number).map_or(0, |segment| segment.start)
    }

    fn begin(&self, number: usize) -> Result<Run, ReplayGap> {
        let segment = self.segments.get(number).ok_or(ReplayGap::NotRecorded)?;
        let run = Run::new(segment, self.content_of(number)?);
        run.ok_or(ReplayGap::LogEnd(segment.start))
    }
}
