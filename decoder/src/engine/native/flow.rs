//! The way of a program through its code: branches by outcomes and targets, and events at their places.
//!
//! Source: SDM volume 3, "Intel Processor Trace", and for what a broken trace means libipt's instruction
//! decoder, so that both engines lose the flow at the same place and find it again at the same PSB, but behind code that is
//! nobody's (`elsewhere.rs`).

mod apply;
mod binding;
mod elsewhere;
mod leap;
mod paths;
mod quiet;
mod repeat;
mod seam;
mod walk;

use super::errata::Errata;
use super::error::Error;
use super::event::{Event, Item, Kind};
use super::events::Events;
use super::learnt::Learnt;
use super::notes::Notes;
use super::returns::Returns;
use super::timekeeper::When;
use super::trail::Trail;
use crate::{Canceled, Config, Event as Told, GapCause, Memory, Runs, Sink};
use backtrail_pt::Avma;
use backtrail_pt::instruction::Mode;
use quiet::Quiet;
use seam::Bounds;
pub(crate) use seam::{Ended, Segment};

/// Blocks or paths between two calls of [`Sink::progress`], before which it gets their runs.
const PROGRESS_EVERY: u32 = 1 << 11;

/// One decode of a trace.
pub(super) struct Flow<'a, 'b> {
    memory: &'a dyn Memory,
    sink: &'a mut dyn Sink,
    config: &'a Config,
    errata: Errata,
    events: Events<'b>,
    /// What is next in the trace.
    ahead: Result<Item, Error>,
    /// Outcomes not used yet: the oldest in the highest of `outcomes_len` low bits.
    outcomes: u64,
    outcomes_len: u32,
    /// The event that is next, whose place the flow has not come to.
    pending: Option<Event>,
    ip: u64,
    enabled: bool,
    /// `None`: the trace has not told, or tells what there is not.
    mode: Option<Mode>,
    /// The process whose code is read.
    space: u32,
    returns: Returns,
    trail: Trail,
    learnt: Learnt,
    /// How often the code has become other code.
    changes: u32,
    /// Runs that the sink gets next.
    batch: Vec<u32>,
    quiet: Quiet,
    /// The last time told.
    last: Option<When>,
    /// Blocks until the sink is told how far it is.
    until_progress: u32,
    bounds: Bounds,
}

/// Why a stretch of flow ended.
enum Stop {
    End,
    Error(Error, Option<u64>),
    RunAway(u64),
    /// The trace is too short for all that would have run.
    Overlong(u64),
    /// It came to the PSB where the segment ends.
    Reached,
    /// It was told that the flow is lost, and it goes on at the next PSB.
    Elsewhere,
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

impl<'a, 'b> Flow<'a, 'b> {
    pub fn new(
        trace: &'b [u8],
        memory: &'a dyn Memory,
        config: &'a Config,
        errata: Errata,
        sink: &'a mut dyn Sink,
        mut learnt: Learnt,
    ) -> Self {
        learnt.begin(trace.len(), config);
        Self {
            memory,
            sink,
            config,
            errata,
            events: Events::new(trace, errata, config),
            ahead: Err(Error::End),
            outcomes: 0,
            outcomes_len: 0,
            pending: None,
            ip: 0,
            enabled: false,
            mode: None,
            space: 0,
            returns: Returns::new(),
            trail: Trail::new(),
            learnt,
            changes: 0,
            batch: Vec::with_capacity(PROGRESS_EVERY as usize),
            quiet: Quiet::default(),
            last: None,
            until_progress: PROGRESS_EVERY,
            bounds: Bounds::new(&Segment::default()),
        }
    }

    /// Decodes all of the trace.
    pub fn run(&mut self) -> Result<(), Canceled> {
        self.sink.begin();
        self.follow_all(&Segment::default())
    }

    /// The runs that it tells by number.
    pub fn runs(&self) -> Runs<'_> {
        self.learnt.code.runs()
    }

    /// What it knows of the code.
    pub fn into_learnt(self) -> Learnt {
        self.learnt
    }

    /// Decodes a segment of it, from PSB to PSB, and writes what tells the time over these notes.
    pub fn segment(&mut self, segment: &Segment, notes: Notes) -> Result<(Ended, Notes), Canceled> {
        self.bounds = Bounds::new(segment);
        self.events.write_over(notes);
        self.follow_all(segment)?;
        Ok((self.bounds.ended(), self.events.take_notes()))
    }

    fn follow_all(&mut self, segment: &Segment) -> Result<(), Canceled> {
        let mut before = None;
        loop {
            let status = self.sync(segment, before.is_none());
            let sync = self.events.sync_offset();
            if let Err(error) = status {
                if error == Error::End || self.bounds.is_muted() {
                    return Ok(());
                }
                self.lost(cause(error, None), true);
                // As long as it finds other PSBs there is hope.
                if sync.is_none() || sync <= before {
                    return Ok(());
                }
                before = sync;
                continue;
            }
            if self.bounds.are_passed(sync) {
                return Ok(());
            }
            before = sync;
            self.last = None;
            self.tell(Told::Sync {
                offset: sync.unwrap_or(0) as u64,
            });
            self.quiet.pass_psb(sync.unwrap_or(0));
            let stop = self.follow();
            self.flush();
            let stop = self.get_through(stop);
            match stop {
                Stop::End | Stop::Reached => return Ok(()),
                Stop::Error(..) if self.bounds.is_muted() => return Ok(()),
                Stop::Error(Error::NoCall, _) if self.bounds.may_lack_calls(sync) => {
                    self.bounds.lack_calls();
                    return Ok(());
                }
                Stop::Elsewhere => {}
                Stop::Canceled => return Err(Canceled),
                Stop::Overlong(at) => self.lost(GapCause::Overlong { at: Avma(at) }, false),
                Stop::RunAway(at) => self.lost(GapCause::RunAway { at: Avma(at) }, false),
                Stop::Error(error, at) => self.lost(cause(error, at), true),
            }
        }
    }

    /// Begins at the PSB of a segment, or at the next.
    fn sync(&mut self, segment: &Segment, first: bool) -> Result<(), Error> {
        (self.ip, self.enabled, self.mode) = (0, false, None);
        (self.outcomes, self.outcomes_len) = (0, 0);
        self.pending = None;
        self.returns.clear();
        match segment.from {
            Some(psb) if first => self.events.sync_at(psb)?,
            _ => self.events.sync_forward()?,
        }
        if let Some(ip) = self.start()? {
            (self.ip, self.enabled) = (ip, true);
        }
        self.ahead = self.events.next();
        Ok(())
    }

    /// Where the PSB+ says that the flow is.
    fn start(&self) -> Result<Option<u64>, Error> {
        let mut events = self.events.clone();
        let offset = events.offset();
        while events.offset() == offset {
            match events.next() {
                Err(Error::End) => break,
                Err(error) => return Err(error),
                Ok(Item::Event(event)) if event.status => {
                    if let Kind::Enabled { .. } = event.kind {
                        return Ok(Some(event.ip.unwrap_or(0)));
                    }
                }
                Ok(_) => break,
            }
        }
        Ok(None)
    }

    /// Tells the sink of an event, after the runs before it. The code may be other code then.
    fn tell(&mut self, event: Told) {
        self.flush();
        if !self.bounds.is_muted() {
            self.sink.event(event);
        }
        self.look_at_code();
    }

    /// Forgets what is other code now.
    fn look_at_code(&mut self) {
        let change = self.memory.change();
        let changed = !change.ranges.is_empty() && self.learnt.forget(&change.ranges);
        if changed {
            self.trail.clear();
        }
        let moved = std::mem::replace(&mut self.space, change.space) != change.space;
        self.select();
        self.changes = self.changes.wrapping_add(u32::from(changed || moved));
    }

    /// The time of what is told next, if it is another than the last.
    fn tell_time(&mut self, when: Option<When>) {
        let Some(when) = when else { return };
        if self.last.is_some_and(|last| !when.differs_from(last)) {
            return;
        }
        self.last = Some(when);
        match when {
            When::Known(stamp) => self.tell(Told::Time(stamp)),
            When::Noted(notes) => {
                self.flush();
                if !self.bounds.is_muted() {
                    self.sink.noted(notes);
                }
            }
        }
    }

    /// Gives the sink the runs gathered.
    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.sink.runs(&self.learnt.code.runs(), &self.batch);
            self.batch.clear();
        }
    }

    /// Reads code of the process and the mode that are current.
    fn select(&mut self) {
        if let Some(mode) = self.mode {
            self.learnt.code.select(self.space, mode);
        }
    }

    fn lost(&mut self, cause: GapCause, error: bool) {
        let offset = self.events.offset() as u64;
        self.tell(Told::Lost { cause, offset, error });
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
