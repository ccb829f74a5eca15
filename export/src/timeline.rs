//! The calls of a trace's threads on one clock, as ordered events.

use crate::scale::Scale;
use crate::{Error, FunctionId, Functions, Result, Unit};
use backtrail_debugger::Session;
use backtrail_debugger::functions::InlinedFunction;
use backtrail_debugger::inlined::{self, Execution};
use backtrail_debugger::session::{Process, Thread};
use backtrail_debugger::signal;
use backtrail_decoder::{
    Call, CallId, Entered, Forest, Mark, MarkKind, PcSet, Position, Stage, Version, Watch,
};
use backtrail_pt::{Tid, Tsc};
use std::ops::Range;

/// The part of a trace to export.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Export only this thread. `None` means all.
    pub thread: Option<Tid>,
    /// Start at this position, in its thread.
    pub from: Option<Position>,
    /// End at this position, in its thread.
    pub to: Option<Position>,
    /// Export only calls with fewer callers than this.
    pub depth: Option<u32>,
    /// The unit of timestamps.
    pub clock: Clock,
}

/// The unit of timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// Time if the threads have timestamps, else instructions.
    #[default]
    Auto,
    /// Time.
    Time,
    /// Instructions of each thread, counted separately.
    Instructions,
}

/// The calls of the selected threads.
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
    /// The exported instructions.
    range: Range<u64>,
    inlined: InlinedCalls,
}

/// The executions of inlined functions in a thread.
#[derive(Default)]
struct InlinedCalls {
    copies: Vec<InlinedFunction>,
    /// In order, outer ones before inner ones.
    executions: Vec<Execution>,
    /// Whether there are too many to export them.
    are_left_out: bool,
}

impl InlinedCalls {
    fn of(session: &Session, process: &Process, thread: &Thread, watch: &Watch<'_>) -> Result<Self> {
        let copies = inlined::executed_copies(process, thread)?;
        let begun = copies.iter().map(|function| {
            let begin = PcSet::from(function.copy.begin);
            thread.history.count_at(0..thread.history.len(), &begin)
        });
        if begun.sum::<u64>() > MAX_INLINED {
            return Ok(Self {
                are_left_out: true,
                ..Self::default()
            });
        }
        Ok(Self {
            executions: inlined::executions(session, thread, &copies, watch)?,
            copies,
            are_left_out: false,
        })
    }
}

impl<'a> Track<'a> {
    /// Returns the calls of the thread.
    #[must_use]
    pub fn forest(&self) -> &'a Forest {
        self.forest
    }

    /// Returns the thread's label.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.thread.name {
            Some(name) => name.clone(),
            None => format!("thread {}", self.thread.tid),
        }
    }
}

/// An event of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time in the timeline's unit, relative to its start. It never decreases.
    pub at: u64,
    /// The instruction of the thread that follows the event.
    pub index: u64,
    /// The call that begins. `None`: none does.
    pub entered: Option<EnteredCall>,
    /// The kind of the event.
    pub kind: EventKind,
}

/// A call that begins, or an execution of an inlined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnteredCall {
    /// The call; of an inlined function, the call that executes it.
    pub call: CallId,
    /// The instructions from its beginning to its end.
    pub range: Range<u64>,
    /// Whether the function is inlined.
    pub is_inlined: bool,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A function is called, or is already active at the start. A placeholder function replaces a
    /// pause of the thread.
    Enter(FunctionId),
    /// The innermost call ends, or the export does.
    Leave,
    /// An instant without duration: a gap, a PTWRITE value, or the crash.
    Instant(String),
}

/// The most executions of inlined functions that are exported of a thread. Each takes about 100
/// bytes of memory.
const MAX_INLINED: u64 = 4_000_000;

/// The number of calls between two progress reports.
const REPORT_EVERY: u32 = 1 << 14;

impl<'a> Timeline<'a> {
    /// Selects the part to export, and finds its calls.
    ///
    /// # Errors
    /// Fails if the selection is empty, or if it was canceled.
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
                inlined: InlinedCalls::of(session, process, thread, watch)?,
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

    /// Returns the session of the trace.
    #[must_use]
    pub fn session(&self) -> &'a Session {
        self.session
    }

    /// Returns the threads, sorted by id.
    #[must_use]
    pub fn tracks(&self) -> &[Track<'a>] {
        &self.tracks
    }

    /// Returns the unit of timestamps.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.scale.unit
    }

    /// Returns the time of 0: nanoseconds of perf's clock, or ticks.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.scale.start
    }

    /// Returns the name of a track's program.
    #[must_use]
    pub fn program_of(&self, track: &Track<'_>) -> String {
        let only = self.session.processes().len() == 1;
        match self.session.program().filter(|_| only) {
            Some(program) => program.to_owned(),
            None => format!("process {}", track.process.pid),
        }
    }

    /// Returns the end of a track, relative to the start, in the unit.
    #[must_use]
    pub fn length(&self, track: &Track<'_>) -> u64 {
        self.scale.ends(&track.thread.history, track.range.end)
    }

    /// Returns notes for the user of an export, one sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let clock = match self.scale.unit {
            Unit::Instructions => "timestamps count the instructions of each thread, not time".to_owned(),
            unit => format!(
                "timestamps are {}; between two timestamps of the trace they are interpolated",
                unit.name()
            ),
        };
        let left_out = self.tracks.iter().filter(|track| track.inlined.are_left_out);
        let left_out = left_out.map(|track| {
            let tid = track.thread.tid;
            format!(
                "thread {tid} executed inlined functions more than {MAX_INLINED} times, so they are left out"
            )
        });
        std::iter::once(clock)
            .chain(left_out)
            .chain(self.session.notes().iter().cloned())
            .collect()
    }

    /// Calls `sink` for each event of a track, in order. Each `Enter` has a matching `Leave`.
    ///
    /// # Errors
    /// Fails if `sink` fails, or if it was canceled.
    pub fn for_each_event(
        &self,
        track: &Track<'_>,
        functions: &mut Functions,
        watch: &Watch<'_>,
        sink: &mut dyn FnMut(&Functions, Event) -> Result<()>,
    ) -> Result<()> {
        let mut emitter = EventEmitter {
            scale: &self.scale,
            track,
            functions,
            sink,
            time: 0,
            open: Vec::new(),
            depth: self.depth,
            marks: track
                .thread
                .history
                .marks_in(track.range.start..track.range.end + 1)
                .iter(),
            next_mark: None,
        };
        emitter.next_mark = emitter.marks.next();
        let count = track.forest.len() as u64;
        let mut executions = self.executions_of(track).peekable();
        for (number, id) in (0_u32..).zip(self.calls_of(track)) {
            if number.is_multiple_of(REPORT_EVERY) {
                watch.report(Stage::Export, u64::from(id.number()), count)?;
            }
            let call = track.forest.call(id);
            while let Some(execution) = executions.next_if(|execution| execution.first < call.first) {
                emitter.enter_inlined(execution)?;
            }
            emitter.enter(id, &call)?;
        }
        for execution in executions {
            emitter.enter_inlined(execution)?;
        }
        emitter.end(self.crash_at_end(track))?;
        Ok(watch.report(Stage::Export, count, count)?)
    }

    /// Returns the exported calls of a track, in order.
    pub(crate) fn calls_of<'t>(&'t self, track: &'t Track<'a>) -> impl Iterator<Item = CallId> + 't {
        let forest = track.forest;
        let begun = forest
            .ids()
            .take_while(|id| forest.call(*id).first < track.range.end);
        begun.filter(|id| {
            forest.call(*id).end > track.range.start
                && (self.depth == u32::MAX || forest.depth(*id) < self.depth)
        })
    }

    /// Returns the exported executions of inlined functions, in order.
    pub(crate) fn executions_of<'t>(&'t self, track: &'t Track<'a>) -> impl Iterator<Item = &'t Execution> {
        let executions = track.inlined.executions.iter();
        let begun = executions.take_while(|execution| execution.first < track.range.end);
        begun.filter(|execution| {
            let is_shown = || track.forest.depth(execution.call).saturating_add(1) < self.depth;
            execution.end > track.range.start && (self.depth == u32::MAX || is_shown())
        })
    }

    /// Returns the description of the crash, if the track reaches it.
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

/// A call that has not ended, or an execution of an inlined function.
struct OpenCall {
    call: CallId,
    /// The index of the inlined copy. `None`: it is a call.
    copy: Option<usize>,
    end: u64,
}

/// Emits the events of a track.
struct EventEmitter<'t> {
    scale: &'t Scale,
    track: &'t Track<'t>,
    functions: &'t mut Functions,
    sink: &'t mut dyn FnMut(&Functions, Event) -> Result<()>,
    /// The time of the last event.
    time: u64,
    /// The open calls, innermost last.
    open: Vec<OpenCall>,
    /// The most calls around a call are fewer than this.
    depth: u32,
    marks: std::slice::Iter<'t, Mark>,
    next_mark: Option<&'t Mark>,
}

impl EventEmitter<'_> {
    fn enter(&mut self, id: CallId, call: &Call) -> Result<()> {
        let first = call.first.max(self.track.range.start);
        self.advance(first)?;
        if let Entered::Call { site } | Entered::TailCall { site } = call.entered {
            self.leave_inlined(call.parent, site, first)?;
        }
        let function = self
            .functions
            .of(self.track.process, call.function, self.version(first));
        let begins = self.scale.begins(&self.track.thread.history, first);
        let entered = EnteredCall {
            call: id,
            range: call.first..call.end,
            is_inlined: false,
        };
        self.emit_call(begins, first, Some(entered), EventKind::Enter(function))?;
        self.open.push(OpenCall {
            call: id,
            copy: None,
            end: call.end.min(self.track.range.end),
        });
        Ok(())
    }

    /// Enters an inlined function, unless the depth of the export hides it.
    fn enter_inlined(&mut self, execution: &Execution) -> Result<()> {
        let track = self.track;
        let first = execution.first.max(track.range.start);
        self.advance(first)?;
        self.leave_inlined(Some(execution.call), execution.first, first)?;
        let around = self.open.iter().rev();
        let inlined = around.take_while(|open| open.copy.is_some()).count();
        let depth = u64::from(track.forest.depth(execution.call)) + inlined as u64 + 1;
        let Some(around) = self.open.last() else {
            return Ok(());
        };
        if around.call != execution.call || depth >= u64::from(self.depth) {
            return Ok(());
        }
        let end = execution.end.min(around.end);
        let Some(copy) = track.inlined.copies.get(execution.copy) else {
            return Ok(());
        };
        let function = self.functions.inlined(track.process, copy, self.version(first));
        let begins = self.scale.begins(&track.thread.history, first);
        let entered = EnteredCall {
            call: execution.call,
            range: execution.first..execution.end,
            is_inlined: true,
        };
        self.emit_call(begins, first, Some(entered), EventKind::Enter(function))?;
        self.open.push(OpenCall {
            call: execution.call,
            copy: Some(execution.copy),
            end,
        });
        Ok(())
    }

    /// Leaves the inlined functions of a call whose code does not contain instruction `site`. Code
    /// of their caller, or of another inlined function, runs before their end.
    fn leave_inlined(&mut self, call: Option<CallId>, site: u64, index: u64) -> Result<()> {
        let Some(pc) = self.track.thread.history.pc(site) else {
            return Ok(());
        };
        let copies = &self.track.inlined.copies;
        let is_left = |open: &OpenCall| {
            let copy = open.copy.and_then(|copy| copies.get(copy));
            Some(open.call) == call && copy.is_some_and(|copy| !copy.copy.code.contains(pc))
        };
        while self.open.last().is_some_and(is_left) {
            self.leave(index)?;
        }
        Ok(())
    }

    /// Returns the version of the code at an instruction.
    fn version(&self, index: u64) -> Version {
        match self.track.process.has_one_epoch() {
            true => Version::default(),
            false => self.track.thread.history.version(index),
        }
    }

    /// Emits all events before an instruction.
    fn advance(&mut self, index: u64) -> Result<()> {
        while let Some(end) = self.open.last().map(|open| open.end).filter(|&end| end <= index) {
            self.instants(end, false)?;
            self.leave(end)?;
        }
        self.instants(index, true)
    }

    fn leave(&mut self, end: u64) -> Result<()> {
        self.open.pop();
        self.emit(
            self.scale.ends(&self.track.thread.history, end),
            end,
            EventKind::Leave,
        )
    }

    /// Emits the marks before an instruction. With `at_too`, also those directly before it.
    fn instants(&mut self, index: u64, at_too: bool) -> Result<()> {
        while let Some(mark) = self
            .next_mark
            .filter(|mark| mark.index < index || at_too && mark.index == index)
        {
            self.next_mark = self.marks.next();
            if let Some(text) = describe(mark) {
                let at = self.scale.ends(&self.track.thread.history, mark.index);
                self.emit(at, mark.index, EventKind::Instant(text))?;
            }
            if let Some((name, from, to)) = pause(mark)
                && self.scale.unit != Unit::Instructions
            {
                let function = self.functions.placeholder(self.track.process, name);
                self.emit(self.scale.at(from), mark.index, EventKind::Enter(function))?;
                self.emit(self.scale.at(to), mark.index, EventKind::Leave)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, crash: Option<String>) -> Result<()> {
        let end = self.track.range.end;
        self.advance(end - 1)?;
        self.instants(end, false)?;
        if let Some(crash) = crash {
            let at = self.scale.ends(&self.track.thread.history, end);
            self.emit(at, end, EventKind::Instant(crash))?;
        }
        while let Some(end) = self.open.last().map(|open| open.end) {
            self.leave(end)?;
        }
        self.instants(end, true)
    }

    fn emit(&mut self, at: u64, index: u64, kind: EventKind) -> Result<()> {
        self.emit_call(at, index, None, kind)
    }

    fn emit_call(
        &mut self,
        at: u64,
        index: u64,
        entered: Option<EnteredCall>,
        kind: EventKind,
    ) -> Result<()> {
        self.time = self.time.max(at);
        let event = Event {
            at: self.time,
            index,
            entered,
            kind,
        };
        (self.sink)(self.functions, event)
    }
}

/// Returns the interval of a pause, and the reason for it.
fn pause(mark: &Mark) -> Option<(&'static str, Tsc, Tsc)> {
    let (name, back) = match &mark.kind {
        MarkKind::Descheduled { back } => ("[off-CPU]", back),
        MarkKind::LeftUser { back, .. } | MarkKind::Interrupted { back, .. } => ("[not traced]", back),
        _ => return None,
    };
    let (from, back) = (mark.tsc?, (*back)?);
    (from < back).then_some((name, from, back))
}

/// Returns the description of a mark that is exported as an instant.
fn describe(mark: &Mark) -> Option<String> {
    match &mark.kind {
        MarkKind::Gap(gap) => Some(format!("gap: {}", gap.cause)),
        MarkKind::Ptwrite(value) => Some(format!("ptwrite {value:#x}")),
        MarkKind::Descheduled { .. } | MarkKind::LeftUser { .. } | MarkKind::Interrupted { .. } => None,
        other => Some(format!("mark of an unknown kind: {other:?}")),
    }
}
