//! Follows a program through its code: by branch outcomes and targets, with events applied where
//! they are due.
//!
//! Source: SDM volume 3, "Intel Processor Trace". Broken traces lose the flow at the same place as
//! in libipt's instruction decoder. The flow resumes at the next PSB, and after lost code at the
//! next address ([`resume`]).

mod apply;
mod binding;
mod follow;
mod resume;
mod runaway;
mod segment;

use super::decode_cache::DecodeCache;
use super::errata::Errata;
use super::error::Error;
use super::event::{EventKind, TraceEvent, TraceItem};
use super::events::Events;
use super::return_stack::ReturnStack;
use super::time::EventTime;
use super::time::TimingLog;
use crate::{Canceled, Config, Event, GapCause, Memory, PathIdx, PathTable, Resync, Sink};
use backtrail_pt::Avma;
use backtrail_pt::instruction::Mode;
use runaway::RunawayGuard;
use segment::SegmentProgress;
pub(crate) use segment::{Segment, SegmentResult};

/// Blocks or paths between two calls of [`Sink::progress`]. The sink gets the pending paths first.
const PROGRESS_EVERY: u32 = 1 << 11;

/// The decoder of one trace.
pub(super) struct FlowDecoder<'a, 'b> {
    memory: &'a dyn Memory,
    sink: &'a mut dyn Sink,
    config: &'a Config,
    errata: Errata,
    events: Events<'b>,
    /// The next item of the trace, and the offset of its packet.
    ahead: Result<TraceItem, Error>,
    ahead_offset: usize,
    /// Outcomes not used yet: the oldest in the highest of the low `outcomes_len` bits.
    outcomes: u64,
    outcomes_len: u32,
    /// The next event, which is not due yet, and the offset of its packet.
    pending: Option<TraceEvent>,
    pending_offset: usize,
    ip: u64,
    enabled: bool,
    /// The execution mode; `None`: not reported, or invalid.
    mode: Option<Mode>,
    /// The address space whose code is read.
    space: u32,
    returns: ReturnStack,
    /// The flow resumed in the middle since the last PSB: earlier calls are unknown.
    resumed: bool,
    /// The instructions since the last packet with an address or an outcome.
    since_address: u32,
    /// The offset from which the next PSB to start at is searched.
    search_from: usize,
    /// The last PSB in the flow and the address of the flow there. Set if the PSB+ has another
    /// address, or if the code depends on the time.
    passed_psb: Option<(usize, u64)>,
    cache: DecodeCache,
    /// The number of times the code changed.
    changes: u32,
    /// The paths to push to the sink next.
    batch: Vec<PathIdx>,
    runaway: RunawayGuard,
    /// The last time reported.
    last: Option<EventTime>,
    /// Blocks until the next progress report.
    until_progress: u32,
    progress: SegmentProgress,
}

/// The reason why a stretch of flow ended.
enum Stop {
    End,
    Error(Error, Option<u64>),
    RunAway(u64),
    /// The trace is too short for the blocks that would run.
    Overlong(u64),
    /// The PSB at which the segment ends is reached.
    Reached,
    /// The loss of the flow was reported; decoding resumes at the PSB at this offset.
    AtPsb(usize),
    Canceled,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::End => Self::End,
            error => Self::Error(error, None),
        }
    }
}

impl<'a, 'b> FlowDecoder<'a, 'b> {
    pub fn new(
        trace: &'b [u8],
        memory: &'a dyn Memory,
        config: &'a Config,
        errata: Errata,
        sink: &'a mut dyn Sink,
        mut cache: DecodeCache,
    ) -> Self {
        cache.begin_trace(trace.len(), config);
        Self {
            memory,
            sink,
            config,
            errata,
            events: Events::new(trace, errata, config),
            ahead: Err(Error::End),
            ahead_offset: 0,
            outcomes: 0,
            outcomes_len: 0,
            pending: None,
            pending_offset: 0,
            ip: 0,
            enabled: false,
            mode: None,
            space: 0,
            returns: ReturnStack::new(),
            resumed: false,
            since_address: 0,
            search_from: 0,
            passed_psb: None,
            cache,
            changes: 0,
            batch: Vec::with_capacity(PROGRESS_EVERY as usize),
            runaway: RunawayGuard::default(),
            last: None,
            until_progress: PROGRESS_EVERY,
            progress: SegmentProgress::new(&Segment::default()),
        }
    }

    /// Decodes all of the trace.
    pub fn run(&mut self) -> Result<(), Canceled> {
        self.sink.begin();
        self.follow_all(&Segment::default())
    }

    /// Returns the paths that the output refers to by number.
    pub fn paths(&self) -> PathTable<'_> {
        self.cache.code.paths()
    }

    /// Returns the decode caches.
    pub fn into_cache(self) -> DecodeCache {
        self.cache
    }

    /// Decodes a segment, from PSB to PSB. Records its timing packets in `log`, whose old content
    /// is dropped.
    pub fn segment(
        &mut self,
        segment: &Segment,
        log: TimingLog,
    ) -> Result<(SegmentResult, TimingLog), Canceled> {
        self.progress = SegmentProgress::new(segment);
        self.events.defer_time(log);
        self.follow_all(segment)?;
        Ok((self.progress.take_result(), self.events.take_timing_log()))
    }

    fn follow_all(&mut self, segment: &Segment) -> Result<(), Canceled> {
        let mut before = None;
        self.search_from = 0;
        loop {
            let status = self.sync(segment, before.is_none());
            let sync = self.events.sync_offset();
            let after_sync = sync.map_or(0, |sync| sync + 1);
            if let Err(error) = status {
                self.search_from = self.events.packet_offset().max(after_sync);
                if error == Error::End || self.progress.is_before_start() {
                    return Ok(());
                }
                self.emit_lost(cause(error, None));
                // Continue as long as new PSBs are found.
                if sync.is_none() || sync <= before {
                    return Ok(());
                }
                before = sync;
                continue;
            }
            if self.progress.is_past(sync) {
                return Ok(());
            }
            before = sync;
            self.last = None;
            self.emit_event(Event::Sync {
                offset: sync.unwrap_or(0) as u64,
            });
            self.runaway.pass_psb(sync.unwrap_or(0));
            let stop = self.follow();
            self.flush();
            let stop = self.resume_after_lost_code(stop);
            self.search_from = self.unused_offset().max(after_sync);
            match stop {
                Stop::End | Stop::Reached => return Ok(()),
                Stop::Error(..) if self.progress.is_before_start() => return Ok(()),
                Stop::Error(Error::NoCall, _) if self.progress.may_lack_calls(sync) => {
                    self.progress.note_missing_call();
                    return Ok(());
                }
                Stop::AtPsb(psb) => self.search_from = psb.max(after_sync),
                Stop::Canceled => return Err(Canceled),
                Stop::Overlong(at) => self.emit_lost(GapCause::Overlong { at: Avma(at) }),
                Stop::RunAway(at) => self.emit_lost(GapCause::RunAway { at: Avma(at) }),
                Stop::Error(error, at) => self.emit_lost(cause(error, at)),
            }
        }
    }

    /// Starts at the PSB of the segment, or at the next one.
    fn sync(&mut self, segment: &Segment, first: bool) -> Result<(), Error> {
        (self.ip, self.enabled, self.mode) = (0, false, None);
        (self.outcomes, self.outcomes_len) = (0, 0);
        (self.pending, self.since_address) = (None, 0);
        (self.resumed, self.passed_psb) = (false, None);
        self.returns.clear();
        match segment.from {
            Some(psb) if first => self.events.sync_at(psb)?,
            _ => match self.config.resync {
                Resync::NextAddress => self.events.sync_from(self.search_from)?,
                Resync::NextPsb => self.events.sync_forward()?,
            },
        }
        if let Some(ip) = self.start()? {
            (self.ip, self.enabled) = (ip, true);
        }
        self.read_ahead();
        Ok(())
    }

    /// Reads the next item of the trace.
    fn read_ahead(&mut self) {
        self.ahead = self.events.next();
        self.ahead_offset = self.events.item_offset();
    }

    /// Takes the next item of the trace, and reads the one after it.
    fn take_ahead(&mut self) -> Result<TraceItem, Error> {
        let next = self.events.next();
        self.ahead_offset = self.events.item_offset();
        std::mem::replace(&mut self.ahead, next)
    }

    /// Returns the offset of the first packet that the flow has not used.
    fn unused_offset(&self) -> usize {
        match (&self.pending, &self.ahead) {
            (Some(_), _) => self.pending_offset,
            (None, Ok(_)) => self.ahead_offset,
            (None, Err(_)) => self.events.packet_offset(),
        }
    }

    /// Returns whether the trace has no further packet for the flow. Nothing proves which
    /// instructions ran after it.
    fn is_at_end(&self) -> bool {
        self.pending.is_none() && self.outcomes_len == 0 && matches!(self.ahead, Err(Error::End))
    }

    /// Returns the address of the flow in the PSB+.
    fn start(&mut self) -> Result<Option<u64>, Error> {
        let mut events = self.events.clone();
        let address = Self::header_address(&mut events);
        self.events.keep_lookahead(&events);
        address
    }

    /// Returns the address of the flow in the PSB+ that `events` is at.
    fn header_address(events: &mut Events<'_>) -> Result<Option<u64>, Error> {
        let offset = events.offset();
        while events.offset() == offset {
            match events.next() {
                Err(Error::End) => break,
                Err(error) => return Err(error),
                Ok(TraceItem::Event(event)) if event.status => {
                    if let EventKind::Enabled { .. } = event.kind {
                        return Ok(Some(event.ip.unwrap_or(0)));
                    }
                }
                Ok(_) => break,
            }
        }
        Ok(None)
    }

    /// Pushes the pending paths and an event to the sink. The code may change by this.
    fn emit_event(&mut self, event: Event) {
        self.flush();
        if !self.progress.is_before_start() {
            self.sink.event(event);
        }
        self.refresh_code();
    }

    /// Drops cached code that has changed.
    fn refresh_code(&mut self) {
        let change = self.memory.change();
        let changed = !change.ranges.is_empty() && self.cache.forget(&change.ranges);
        let moved = std::mem::replace(&mut self.space, change.space) != change.space;
        self.select_code();
        self.changes = self.changes.wrapping_add(u32::from(changed || moved));
    }

    /// Reports the time of the next output, if it differs from the last one.
    fn emit_time(&mut self, time: Option<EventTime>) {
        let Some(time) = time else { return };
        if self.last.is_some_and(|last| !time.differs_from(last)) {
            return;
        }
        self.last = Some(time);
        match time {
            EventTime::Resolved(stamp) => self.emit_event(Event::Time(stamp)),
            EventTime::Logged(log) => {
                self.flush();
                if !self.progress.is_before_start() {
                    self.sink.deferred_time(log);
                }
            }
        }
    }

    /// Pushes the pending paths to the sink.
    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.sink.paths(&self.cache.code.paths(), &self.batch);
            self.batch.clear();
        }
    }

    /// Selects the code of the current process and mode.
    fn select_code(&mut self) {
        if let Some(mode) = self.mode {
            self.cache.code.select(self.space, mode);
        }
    }

    fn emit_lost(&mut self, cause: GapCause) {
        let offset = self.events.offset() as u64;
        self.emit_event(Event::Lost { cause, offset });
    }
}

fn cause(error: Error, at: Option<u64>) -> GapCause {
    let at = at.map(Avma);
    match (error, at) {
        (Error::NoCode, Some(at)) => GapCause::LostCode { at },
        (error, at) => GapCause::Corrupt {
            error: error.to_string(),
            at,
        },
    }
}
