//! Cuts a processor's flow where another thread could come, and picks the code to decode with.

use super::owner::{Owners, When};
use crate::engine::native::Pauses;
use crate::{
    CodeChange, Event, Execution, Gap, GapCause, History, HistoryBuilder, Image, Memory, Runs, Sink,
};
use backtrail_pt::{Avma, Cofi, Pid, Tid, Tsc};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A stretch of a processor's trace that is of one thread.
#[derive(Debug)]
pub(super) struct Piece {
    /// Its instructions in the processor's history.
    pub range: Range<u64>,
    pub when: When,
    /// The process whose code it was decoded with.
    pub code: Option<Pid>,
    /// Flow is lost after it (and it has no instructions itself).
    pub gap: Option<(Gap, bool)>,
}

/// The code of whichever process is chosen.
pub(super) struct Selected<'a> {
    images: &'a BTreeMap<Pid, Arc<Image>>,
    /// The image, and its process.
    current: Cell<Option<(&'a Image, Pid)>>,
}

impl<'a> Selected<'a> {
    pub fn new(images: &'a BTreeMap<Pid, Arc<Image>>) -> Self {
        Self {
            images,
            current: Cell::new(None),
        }
    }

    /// `None` and a process that is not known have no code.
    fn select(&self, pid: Option<Pid>) {
        let found = pid.and_then(|pid| Some((&**self.images.get(&pid)?, pid)));
        self.current.set(found);
    }
}

impl Memory for Selected<'_> {
    fn read(&self, at: Avma, out: &mut [u8]) -> usize {
        self.current.get().map_or(0, |(image, _)| image.read(at, out))
    }

    fn is_nobodys(&self) -> bool {
        self.current.get().is_none()
    }

    fn change(&self) -> CodeChange {
        CodeChange {
            space: self.current.get().map_or(u32::MAX, |(_, pid)| pid.0),
            ranges: Vec::new(),
        }
    }
}

/// The last loss of flow through code that is nobody's. All losses of one execution are one.
struct Nobodys {
    /// Its number among the pieces.
    piece: usize,
    /// When the execution began; `None`: it is not known whose it is.
    execution: Option<Tsc>,
    /// It goes on: stamps are in it.
    on: bool,
}

/// The sink that cuts.
pub(super) struct Cutter<'a> {
    owners: &'a Owners<'a>,
    memory: &'a Selected<'a>,
    pauses: &'a Pauses,
    builder: HistoryBuilder,
    pieces: Vec<Piece>,
    /// Pieces before this one have all their stamps.
    settled: usize,
    /// The first stamp since decoding began at a PSB: the PSB's.
    psb: Option<Tsc>,
    last: Option<Tsc>,
    /// The first stamp since tracing went off, which is not told before it is on again.
    paused: Option<Tsc>,
    open: Option<When>,
    first: u64,
    /// Who probably runs, and with whose code it is decoded.
    runs: Option<&'a Execution>,
    nobodys: Option<Nobodys>,
    /// The next instruction is behind a far transfer that was traced on: kernel code.
    far: bool,
}

impl<'a> Cutter<'a> {
    pub fn new(owners: &'a Owners<'a>, memory: &'a Selected<'a>, pauses: &'a Pauses) -> Self {
        Self {
            owners,
            memory,
            pauses,
            builder: HistoryBuilder::new(Tid(0)),
            pieces: Vec::new(),
            settled: 0,
            psb: None,
            last: None,
            paused: None,
            open: None,
            first: 0,
            runs: None,
            nobodys: None,
            far: false,
        }
    }

    /// The history as if of one thread, and its pieces.
    pub fn finish(mut self) -> (History, Vec<Piece>) {
        self.close();
        (self.builder.finish(), self.pieces)
    }

    /// Begins a piece; `stamped` when the stamp of the last PSB was taken in it.
    fn open(&mut self, stamped: bool) {
        self.close();
        self.first = self.builder.len();
        let inside = self.psb.filter(|_| stamped).map(|stamp| (stamp, stamp));
        self.open = Some(When {
            after: self.last,
            inside,
            before: None,
        });
        self.choose(self.last);
    }

    /// Chooses whose code is decoded, of flow that begins after a stamp.
    fn choose(&mut self, after: Option<Tsc>) {
        self.runs = self.owners.likely(after);
        self.memory.select(self.runs.map(|execution| execution.pid));
    }

    fn close(&mut self) {
        self.far = false;
        let Some(when) = self.open.take() else { return };
        let range = self.first..self.builder.len();
        if !range.is_empty() {
            self.pieces.push(Piece {
                range,
                when,
                code: self.runs.map(|execution| execution.pid),
                gap: None,
            });
        }
    }

    /// Tracing is off: what ran before has its time at the first that is told meanwhile, not at that which comes when it
    /// is on again.
    fn pause(&mut self) {
        self.paused = self.last.and_then(|last| self.pauses.first_after(last));
    }

    /// Flow is lost. Says whether that is news.
    fn lost(&mut self, gap: Gap, error: bool) -> bool {
        self.close();
        let nobodys = self.memory.is_nobodys() && matches!(gap.cause, GapCause::LostCode { .. });
        let execution = self.runs.map(|execution| execution.start);
        let next = self.pieces.len();
        if let Some(known) = self.nobodys.as_mut().filter(|_| nobodys)
            && (known.piece + 1, known.execution) == (next, execution)
        {
            known.on = true;
            self.settled = self.settled.min(known.piece);
            return false;
        }
        self.nobodys = nobodys.then_some(Nobodys {
            piece: next,
            execution,
            on: true,
        });
        let here = self.builder.len();
        let when = When {
            after: self.last,
            ..When::default()
        };
        self.pieces.push(Piece {
            range: here..here,
            when,
            code: None,
            gap: Some((gap, error)),
        });
        true
    }

    /// The flow is there again, or tracing is off. Says whether it was lost in code that is nobody's.
    fn found(&mut self) -> bool {
        let nobodys = self.nobodys.as_mut();
        nobodys.is_some_and(|nobodys| std::mem::take(&mut nobodys.on))
    }

    fn stamp(&mut self, tsc: Tsc) {
        self.psb.get_or_insert(tsc);
        // An event repeats the last stamp when there is no newer one: that says nothing new.
        if self.last.is_some_and(|last| tsc <= last) {
            return;
        }
        self.last = Some(tsc);
        // Where this pause tells only one time, the other is of a later one.
        let first = self.paused.take().map_or(tsc, |paused| paused.min(tsc));
        for piece in self.pieces.get_mut(self.settled..).unwrap_or(&mut []) {
            piece.when.before = Some(first);
        }
        self.settled = self.pieces.len();
    }

    /// A stamp of a packet that came while flow was on.
    fn stamp_inside(&mut self) {
        let lost = self.nobodys.as_ref().filter(|nobodys| nobodys.on);
        let lost = lost.and_then(|nobodys| self.pieces.get_mut(nobodys.piece));
        let inside = lost.map(|piece| &mut piece.when).or(self.open.as_mut());
        if let (Some(when), Some(tsc)) = (inside, self.last) {
            let (first, _) = *when.inside.get_or_insert((tsc, tsc));
            when.inside = Some((first, tsc));
            if self.open.is_some() && self.first == self.builder.len() {
                // Now it is known; what is decoded stays as it is.
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

    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        for run in executed {
            if self.far {
                self.open(false);
            }
            self.builder.runs(runs, std::slice::from_ref(run));
            let last = runs.last(*run);
            self.far = last.is_some_and(|last| last.cofi == Cofi::FarTransfer);
        }
    }

    fn event(&mut self, event: Event) {
        let mut news = true;
        match &event {
            Event::Time(stamp) => {
                let is_later = self.last.is_none_or(|last| stamp.tsc > last);
                self.stamp(stamp.tsc);
                if is_later {
                    self.stamp_inside();
                }
            }
            Event::Sync { .. } => {
                self.found();
                self.psb = None;
            }
            // A PSB in the flow says again that it is on.
            Event::Enabled { status: true, .. } if self.open.is_some() => {}
            Event::Enabled { status, .. } => self.open(*status),
            Event::Disabled { .. } => {
                news = !self.found();
                self.close();
                self.pause();
            }
            Event::Branched { .. } => self.open(false),
            Event::Overflow { offset } => {
                let cause = GapCause::Overflow;
                self.lost(
                    Gap {
                        cause,
                        trace_offset: *offset,
                        resumed_offset: Some(*offset),
                    },
                    false,
                );
                self.open(false);
            }
            Event::Lost { cause, offset, error } => {
                let gap = Gap {
                    cause: cause.clone(),
                    trace_offset: *offset,
                    resumed_offset: None,
                };
                news = self.lost(gap, *error);
            }
            Event::FlowBegins { .. } => {
                self.found();
            }
            Event::Ptwrite { .. } | Event::Cpu(_) => {}
        }
        // What code that is nobody's does is not told again and again.
        if news {
            self.builder.event(event);
        }
    }

    fn progress(&mut self, _offset: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
