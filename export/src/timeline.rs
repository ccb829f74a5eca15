//! The calls of the threads of a trace, on one clock, as events in order.

use crate::scale::Scale;
use crate::{Error, FunctionId, Functions, Result, Unit};
use backtrail_debugger::Session;
use backtrail_debugger::session::{Process, Thread};
use backtrail_debugger::signal;
use backtrail_decoder::{CallId, Forest, Mark, MarkKind, Position, Stage, Watch};
use backtrail_pt::{Tid, Tsc};
use std::ops::Range;

/// The options of an export.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this thread; `None`: all.
    pub thread: Option<Tid>,
    /// From here on, in the thread of this position.
    pub from: Option<Position>,
    /// Up to here, in the thread of this position.
    pub to: Option<Position>,
    /// Only calls that are inside of fewer others.
    pub depth: Option<u32>,
    /// The unit of moments.
    pub clock: Clock,
}

/// The choice of the unit of moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// Time where the threads have it, else instructions.
    #[default]
    Auto,
    /// Time.
    Time,
    /// Instructions, of each thread for itself.
    Instructions,
}

/// The calls of the chosen threads.
pub struct Timeline<'a> {
    session: &'a Session,
    tracks: Vec<Track<'a>>,
    scale: Scale,
    depth: u32,
}

/// A thread of a [`Timeline`].
pub struct Track<'a> {
    /// The thread.
    pub thread: &'a Thread,
    /// Its process.
    pub process: &'a Process,
    forest: &'a Forest,
    /// The instructions wanted.
    range: Range<u64>,
}

impl Track<'_> {
    /// The name of the thread.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.thread.name {
            Some(name) => name.clone(),
            None => format!("thread {}", self.thread.tid),
        }
    }
}

/// Something that happens in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in the timeline's unit from its start; never less than that of the event before.
    pub at: u64,
    /// Before which instruction of the thread.
    pub index: u64,
    /// What.
    pub kind: Kind,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function is called, or runs at the start of the export, or the thread executes nothing.
    Enter(FunctionId),
    /// The innermost call ends, or the export does.
    Leave,
    /// An event other than a call: a gap, a value that the program wrote into its trace, the crash.
    Moment(String),
}

/// Calls between two reports.
const REPORT_EVERY: u32 = 1 << 14;

impl<'a> Timeline<'a> {
    /// Chooses what to export, and finds the calls of it.
    ///
    /// # Errors
    /// When there is nothing of what was chosen; when canceled.
    pub fn new(session: &'a Session, options: &Options, watch: &Watch<'_>) -> Result<Self> {
        let positions = || options.from.iter().chain(&options.to);
        let tid = options
            .thread
            .or(positions().next().map(|position| position.tid()));
        if positions().any(|position| Some(position.tid()) != tid) {
            return Err(Error::OneThread);
        }
        let chosen: Vec<&Thread> = match tid {
            Some(tid) => vec![session.thread(tid)?],
            None => session.threads().iter().collect(),
        };
        let mut tracks = Vec::new();
        for thread in chosen {
            let Some(process) = session.process(thread).filter(|_| !thread.history.is_empty()) else {
                continue;
            };
            let begin = options.from.map_or(Ok(0), |from| thread.index_of(from))?;
            let len = thread.history.len();
            let end = options.to.map_or(Ok(len), |to| thread.index_of(to))?;
            if begin >= end {
                return Err(Error::EmptyRange);
            }
            tracks.push(Track {
                thread,
                process,
                forest: session.forest(thread, watch)?,
                range: begin..end,
            });
        }
        if tracks.is_empty() {
            return Err(Error::NoHistory);
        }
        Ok(Self {
            session,
            scale: scale(session, &tracks, options.clock)?,
            tracks,
            depth: options.depth.unwrap_or(u32::MAX),
        })
    }

    /// The trace.
    #[must_use]
    pub fn session(&self) -> &'a Session {
        self.session
    }

    /// The threads, by id.
    #[must_use]
    pub fn tracks(&self) -> &[Track<'a>] {
        &self.tracks
    }

    /// The unit of moments.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.scale.unit
    }

    /// The moment called 0: nanoseconds of perf's clock, or ticks.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.scale.start
    }

    /// The name of a track's program.
    #[must_use]
    pub fn program_of(&self, track: &Track<'_>) -> String {
        let only = self.session.processes().len() == 1;
        match self.session.program().filter(|_| only) {
            Some(program) => program.to_owned(),
            None => format!("process {}", track.process.pid),
        }
    }

    /// When a track ends, from the start, in the unit.
    #[must_use]
    pub fn length(&self, track: &Track<'_>) -> u64 {
        self.scale.ends(&track.thread.history, track.range.end)
    }

    /// Remarks for the reader of an export, one sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let clock = match self.scale.unit {
            Unit::Instructions => "moments count instructions of each thread, not time".to_owned(),
            unit => format!(
                "moments are {}; between two time stamps of the trace they are interpolated",
                unit.name()
            ),
        };
        std::iter::once(clock)
            .chain(self.session.notes().iter().cloned())
            .collect()
    }

    /// Emits the events of a track in order. Each entered call is left.
    ///
    /// # Errors
    /// Those of `hear`; when canceled.
    pub fn tell(
        &self,
        track: &Track<'_>,
        functions: &mut Functions,
        watch: &Watch<'_>,
        hear: &mut dyn FnMut(&Functions, Event) -> Result<()>,
    ) -> Result<()> {
        let mut teller = Teller {
            scale: &self.scale,
            track,
            functions,
            hear,
            moment: 0,
            open: Vec::new(),
            marks: track
                .thread
                .history
                .marks_in(track.range.start..track.range.end + 1)
                .iter(),
            next_mark: None,
        };
        teller.next_mark = teller.marks.next();
        let count = track.forest.len() as u64;
        for id in track.forest.ids() {
            if id.number().is_multiple_of(REPORT_EVERY) {
                watch.report(Stage::Export, u64::from(id.number()), count)?;
            }
            let call = track.forest.call(id);
            if call.first >= track.range.end {
                break;
            }
            if call.end > track.range.start && (self.depth == u32::MAX || track.forest.depth(id) < self.depth)
            {
                teller.enter(id, call.first.max(track.range.start), call.end)?;
            }
        }
        teller.end(self.crash_at_end(track))?;
        Ok(watch.report(Stage::Export, count, count)?)
    }

    /// The name of the crash, if the track reaches it.
    fn crash_at_end(&self, track: &Track<'_>) -> Option<String> {
        let crash = self.session.crash_of(track.thread.tid)?;
        let whole = track.range.end == track.thread.history.len();
        whole.then(|| format!("crash: {}", signal::name(crash.signal)))
    }
}

fn scale(session: &Session, tracks: &[Track<'_>], clock: Clock) -> Result<Scale> {
    let threads = || tracks.iter().map(|track| track.thread);
    let by_time = match clock {
        Clock::Instructions => None,
        Clock::Auto | Clock::Time => Scale::of_times(session.times(), threads()),
    };
    let all = |scale: &Scale| threads().try_for_each(|thread| scale.covers(thread));
    match by_time {
        Some(scale) if clock == Clock::Time => all(&scale).map(|()| scale),
        Some(scale) if all(&scale).is_ok() => Ok(scale),
        None if clock == Clock::Time => Err(tracks
            .first()
            .map_or(Error::NoHistory, |track| Error::NoTime(track.thread.tid))),
        _ => Ok(Scale::of_instructions()),
    }
}

/// Goes through a track.
struct Teller<'t> {
    scale: &'t Scale,
    track: &'t Track<'t>,
    functions: &'t mut Functions,
    hear: &'t mut dyn FnMut(&Functions, Event) -> Result<()>,
    /// That of the last event.
    moment: u64,
    /// Where the calls end that were entered, innermost last.
    open: Vec<u64>,
    marks: std::slice::Iter<'t, Mark>,
    next_mark: Option<&'t Mark>,
}

impl Teller<'_> {
    fn enter(&mut self, id: CallId, first: u64, end: u64) -> Result<()> {
        self.go_to(first)?;
        let function = self.track.forest.call(id).function;
        let function = self.functions.of(self.track.process, function);
        self.tell(
            self.scale.begins(&self.track.thread.history, first),
            first,
            Kind::Enter(function),
        )?;
        self.open.push(end.min(self.track.range.end));
        Ok(())
    }

    /// All that ends or happens before an instruction.
    fn go_to(&mut self, index: u64) -> Result<()> {
        while let Some(&end) = self.open.last().filter(|&&end| end <= index) {
            self.moments(end, false)?;
            self.leave(end)?;
        }
        self.moments(index, true)
    }

    fn leave(&mut self, end: u64) -> Result<()> {
        self.open.pop();
        self.tell(self.scale.ends(&self.track.thread.history, end), end, Kind::Leave)
    }

    /// Emits the marks before an instruction, optionally with those right before it.
    fn moments(&mut self, index: u64, at_too: bool) -> Result<()> {
        while let Some(mark) = self
            .next_mark
            .filter(|mark| mark.index < index || at_too && mark.index == index)
        {
            self.next_mark = self.marks.next();
            if let Some(what) = describe(mark) {
                let at = self.scale.ends(&self.track.thread.history, mark.index);
                self.tell(at, mark.index, Kind::Moment(what))?;
            }
            if let Some((what, from, to)) = away(mark)
                && self.scale.unit != Unit::Instructions
            {
                let function = self.functions.stand_in(self.track.process, what);
                self.tell(self.scale.at(from), mark.index, Kind::Enter(function))?;
                self.tell(self.scale.at(to), mark.index, Kind::Leave)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, crash: Option<String>) -> Result<()> {
        let end = self.track.range.end;
        self.go_to(end - 1)?;
        self.moments(end, false)?;
        if let Some(crash) = crash {
            let at = self.scale.ends(&self.track.thread.history, end);
            self.tell(at, end, Kind::Moment(crash))?;
        }
        while let Some(&end) = self.open.last() {
            self.leave(end)?;
        }
        self.moments(end, true)
    }

    fn tell(&mut self, at: u64, index: u64, kind: Kind) -> Result<()> {
        self.moment = self.moment.max(at);
        let at = self.moment;
        (self.hear)(self.functions, Event { at, index, kind })
    }
}

/// Where the thread was while it executed nothing, from when to when.
fn away(mark: &Mark) -> Option<(&'static str, Tsc, Tsc)> {
    let (what, back) = match &mark.kind {
        MarkKind::Descheduled { back } => ("[off the processor]", back),
        MarkKind::LeftUser { back, .. } | MarkKind::Interrupted { back, .. } => ("[not traced]", back),
        MarkKind::Gap(_) | MarkKind::Ptwrite(_) => return None,
    };
    let (from, back) = (mark.tsc?, (*back)?);
    (from < back).then_some((what, from, back))
}

/// A mark that is worth a moment; `None`: it is not.
fn describe(mark: &Mark) -> Option<String> {
    match &mark.kind {
        MarkKind::Gap(gap) => Some(format!("gap: {}", gap.cause)),
        MarkKind::Ptwrite(value) => Some(format!("ptwrite {value:#x}")),
        MarkKind::Descheduled { .. } | MarkKind::LeftUser { .. } | MarkKind::Interrupted { .. } => None,
    }
}
