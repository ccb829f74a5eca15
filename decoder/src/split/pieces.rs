//! Cuts a processor's flow where another thread could start, and selects the code to decode with.

use super::owner::{Owners, PieceTime};
use crate::aux_ends::AuxEnds;
use crate::engine::native::{DisabledIntervals, FlowTimes};
use crate::image::VersionedImage;
use crate::{
    CodeChange, Event, Execution, Gap, GapCause, History, HistoryBuilder, Image, Memory, PathIdx, PathTable,
    Sink, Version,
};
use backtrail_pt::{Avma, Cofi, Pid, Tid, Tsc};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A stretch of a processor's trace that belongs to one thread.
#[derive(Debug)]
pub(super) struct Piece {
    /// Its instructions in the processor's history.
    pub range: Range<u64>,
    pub time: PieceTime,
    /// The process whose code it was decoded with, and the version.
    pub code: Option<Pid>,
    pub version: Version,
    /// The flow is lost after it; such a piece has no instructions.
    pub gap: Option<Gap>,
}

/// The code of the selected process.
pub(super) struct SelectedImage<'a> {
    images: BTreeMap<Pid, CodeOfProcess<'a>>,
    current: Cell<Option<Pid>>,
}

/// The code of a process: constant, or by time.
enum CodeOfProcess<'a> {
    Constant(&'a Image),
    Versioned(VersionedImage<'a>),
}

impl<'a> SelectedImage<'a> {
    pub fn new(images: &'a BTreeMap<Pid, Arc<Image>>) -> Self {
        let code = |(&pid, image): (&Pid, &'a Arc<Image>)| {
            let versioned = VersionedImage::timed(image).map(CodeOfProcess::Versioned);
            (pid, versioned.unwrap_or(CodeOfProcess::Constant(image)))
        };
        Self {
            images: images.iter().map(code).collect(),
            current: Cell::new(None),
        }
    }

    /// Returns whether the code of a process changes.
    pub fn changes(&self) -> bool {
        let mut images = self.images.values();
        images.any(|code| matches!(code, CodeOfProcess::Versioned(_)))
    }

    /// Selects the code of a process between two times; no code for `None` and for an unknown
    /// process.
    fn select(&self, pid: Option<Pid>, after: Option<Tsc>, before: Option<Tsc>) {
        self.current.set(pid.filter(|pid| self.images.contains_key(pid)));
        if let Some(code) = self.versioned() {
            code.go_to(code.versions_between(after, before));
        }
    }

    fn code(&self) -> Option<&CodeOfProcess<'a>> {
        self.images.get(&self.current.get()?)
    }

    /// Returns the selected code, if it changes.
    fn versioned(&self) -> Option<&VersionedImage<'a>> {
        match self.code()? {
            CodeOfProcess::Versioned(code) => Some(code),
            CodeOfProcess::Constant(_) => None,
        }
    }

    /// Returns the version of the selected code.
    fn version(&self) -> Version {
        self.versioned()
            .map_or(Version::default(), VersionedImage::version)
    }
}

impl Memory for SelectedImage<'_> {
    fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        match self.code() {
            None => 0,
            Some(CodeOfProcess::Constant(image)) => image.read(at, out),
            Some(CodeOfProcess::Versioned(code)) => code.read(at, out),
        }
    }

    fn has_unknown_processes(&self) -> bool {
        self.current.get().is_none()
    }

    fn depends_on_time(&self) -> bool {
        self.versioned().is_some()
    }

    fn change(&self) -> CodeChange {
        CodeChange {
            space: self.current.get().map_or(u32::MAX, |pid| pid.0),
            ranges: self.versioned().map_or(Vec::new(), |code| code.change().ranges),
        }
    }
}

/// The last loss of flow in foreign code. All losses of one execution are merged.
struct ForeignLoss {
    /// Its number among the pieces.
    piece: usize,
    /// The start of the execution; `None`: unknown.
    execution: Option<Tsc>,
    /// The loss continues: following stamps belong to it.
    on: bool,
}

/// The sink that cuts the flow into pieces.
pub(super) struct Cutter<'a> {
    owners: &'a Owners<'a>,
    aux_ends: &'a AuxEnds,
    memory: &'a SelectedImage<'a>,
    disabled: &'a DisabledIntervals,
    /// The times of the flow, if code depends on them.
    flow_times: FlowTimes,
    /// The offset of the packet at which the flow began.
    begin: u64,
    builder: HistoryBuilder,
    pieces: Vec<Piece>,
    /// The number of pieces whose time is complete.
    settled: usize,
    /// The first stamp since decoding started at a PSB.
    psb: Option<Tsc>,
    last: Option<Tsc>,
    /// The first stamp since tracing was disabled, which events do not carry.
    paused: Option<Tsc>,
    open: Option<PieceTime>,
    first: u64,
    /// The execution that probably runs, with whose code the flow is decoded.
    running: Option<&'a Execution>,
    foreign: Option<ForeignLoss>,
    /// The next instruction follows a far transfer with tracing enabled: kernel code.
    far: bool,
}

impl<'a> Cutter<'a> {
    pub fn new(
        owners: &'a Owners<'a>,
        aux_ends: &'a AuxEnds,
        memory: &'a SelectedImage<'a>,
        disabled: &'a DisabledIntervals,
        flow_times: FlowTimes,
    ) -> Self {
        Self {
            owners,
            aux_ends,
            memory,
            disabled,
            flow_times,
            begin: 0,
            builder: HistoryBuilder::new(Tid(0)).marking_all_values(),
            pieces: Vec::new(),
            settled: 0,
            psb: None,
            last: None,
            paused: None,
            open: None,
            first: 0,
            running: None,
            foreign: None,
            far: false,
        }
    }

    /// Returns the history of the processor, and its pieces.
    pub fn finish(mut self) -> (History, Vec<Piece>) {
        self.close();
        (self.builder.finish(), self.pieces)
    }

    /// Starts a piece; `stamped`: the stamp of the last PSB is in it.
    fn open(&mut self, stamped: bool) {
        self.close();
        self.first = self.builder.len();
        let inside = self.psb.filter(|_| stamped).map(|stamp| (stamp, stamp));
        // Tracing stops at the end of a part of the trace. So flow is in the part where it begins.
        let (end, complete) = self.aux_ends.around(self.begin);
        let time = PieceTime {
            after: self.last.max(end),
            inside,
            before: None,
            complete,
        };
        self.open = Some(time);
        self.choose(time.since());
    }

    /// Selects the code for flow that starts after a stamp.
    fn choose(&mut self, after: Option<Tsc>) {
        self.running = self.owners.likely(after);
        let (stamp, next) = self.flow_times.around(self.begin);
        let (end, complete) = self.aux_ends.around(self.begin);
        // The flow is in this execution or a later one.
        let start = self.running.map(|execution| execution.start);
        let after = stamp.max(end).max(start);
        let before = next.into_iter().chain(complete).min();
        let ended = before.and_then(|before| self.owners.end_of(before));
        let before = before.into_iter().chain(ended).min();
        let pid = self.running.map(|execution| execution.pid);
        self.memory.select(pid, after, before);
    }

    fn close(&mut self) {
        self.far = false;
        let Some(time) = self.open.take() else { return };
        let range = self.first..self.builder.len();
        if !range.is_empty() {
            self.pieces.push(Piece {
                range,
                time,
                code: self.running.map(|execution| execution.pid),
                version: self.memory.version(),
                gap: None,
            });
        }
    }

    /// Tracing is disabled. The flow before it is bounded by the first stamp in the interval, not
    /// by the last.
    fn pause(&mut self) {
        self.paused = self.last.and_then(|last| self.disabled.first_after(last));
    }

    /// Handles a loss of flow. Returns whether to report it.
    fn lost(&mut self, mut gap: Gap) -> bool {
        self.close();
        if let Some(code) = self.memory.versioned() {
            gap.cause = gap.cause.in_code(code);
        }
        let foreign = self.memory.has_unknown_processes() && matches!(gap.cause, GapCause::LostCode { .. });
        let execution = self.running.map(|execution| execution.start);
        let next = self.pieces.len();
        if let Some(known) = self.foreign.as_mut().filter(|_| foreign)
            && (known.piece + 1, known.execution) == (next, execution)
        {
            known.on = true;
            self.settled = self.settled.min(known.piece);
            return false;
        }
        self.foreign = foreign.then_some(ForeignLoss {
            piece: next,
            execution,
            on: true,
        });
        let at = self.builder.len();
        // The loss is found after the flow that it begins in.
        let (end, _) = self.aux_ends.around(self.begin);
        let time = PieceTime {
            after: self.last.max(end),
            ..PieceTime::default()
        };
        self.pieces.push(Piece {
            range: at..at,
            time,
            code: None,
            version: Version::default(),
            gap: Some(gap),
        });
        true
    }

    /// The flow resumes, or tracing is disabled. Returns whether a foreign loss ends by this.
    fn found(&mut self) -> bool {
        let foreign = self.foreign.as_mut();
        foreign.is_some_and(|foreign| std::mem::take(&mut foreign.on))
    }

    fn stamp(&mut self, tsc: Tsc) {
        self.psb.get_or_insert(tsc);
        // An event repeats the last stamp if there is no newer one.
        if self.last.is_some_and(|last| tsc <= last) {
            return;
        }
        self.last = Some(tsc);
        // If this interval has only one stamp, the searched one is of a later interval.
        let first = self.paused.take().map_or(tsc, |paused| paused.min(tsc));
        for piece in self.pieces.get_mut(self.settled..).unwrap_or(&mut []) {
            piece.time.before = Some(first);
        }
        self.settled = self.pieces.len();
    }

    /// Handles a stamp of a packet within the flow.
    fn stamp_inside(&mut self) {
        let lost = self.foreign.as_ref().filter(|foreign| foreign.on);
        let lost = lost.and_then(|foreign| self.pieces.get_mut(foreign.piece));
        let inside = lost.map(|piece| &mut piece.time).or(self.open.as_mut());
        if let (Some(time), Some(tsc)) = (inside, self.last) {
            let (first, _) = *time.inside.get_or_insert((tsc, tsc));
            time.inside = Some((first, tsc));
            if self.open.is_some() && self.first == self.builder.len() {
                // The owner is known now; instructions decoded before keep their code.
                self.choose(Some(tsc));
            }
        }
    }
}

impl Sink for Cutter<'_> {
    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        if self.far {
            self.open(false);
        }
        self.builder.instruction(at, len, cofi);
        self.far = cofi == Cofi::FarTransfer;
    }

    fn begin(&mut self) {
        self.builder.begin();
    }

    fn paths(&mut self, table: &PathTable<'_>, executed: &[PathIdx]) {
        for path in executed {
            if self.far {
                self.open(false);
            }
            self.builder.paths(table, std::slice::from_ref(path));
            let last = table.last(*path);
            self.far = last.is_some_and(|last| last.cofi == Cofi::FarTransfer);
        }
    }

    fn event(&mut self, event: Event) {
        let mut is_new = true;
        match &event {
            Event::Time(stamp) => {
                let is_later = self.last.is_none_or(|last| stamp.tsc > last);
                self.stamp(stamp.tsc);
                if is_later {
                    self.stamp_inside();
                }
            }
            Event::Sync { offset } => {
                self.found();
                self.psb = None;
                self.begin = *offset;
            }
            // A PSB in the flow repeats that tracing is enabled.
            Event::Enabled { status: true, .. } if self.open.is_some() => {}
            Event::Enabled { status, .. } => self.open(*status),
            Event::Disabled { .. } => {
                is_new = !self.found();
                self.close();
                self.pause();
            }
            Event::Branched { .. } => self.open(false),
            Event::Overflow { offset } => {
                let cause = GapCause::Overflow;
                self.lost(Gap {
                    cause,
                    trace_offset: *offset,
                    resumed_offset: Some(*offset),
                });
                self.open(false);
            }
            Event::Lost { cause, offset } => {
                let gap = Gap {
                    cause: cause.clone(),
                    trace_offset: *offset,
                    resumed_offset: None,
                };
                is_new = self.lost(gap);
            }
            Event::FlowBegins { offset } => {
                self.found();
                self.begin = *offset;
                // The flow may resume in the middle, without an event of its own.
                if self.open.is_none() {
                    self.open(false);
                }
            }
            Event::Ptwrite { .. } | Event::Cpu(_) => {}
        }
        // Repeated losses in foreign code are not reported.
        if is_new {
            self.builder.event(event);
        }
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
