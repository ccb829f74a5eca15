//! Makes marks, times and processors of the events between instructions.

use crate::clock::Clock;
use crate::history::{Flow, History};
use crate::{Event, Gap, GapCause, Instruction, Mark, MarkKind, Resumed, Version};
use backtrail_pt::{Avma, Cpu, Tid, Tsc};
use std::sync::Arc;

/// Takes the events of a thread in order, each with the index it is before.
#[derive(Debug, Default)]
pub(super) struct Marker {
    marks: Vec<Mark>,
    clock: Clock,
    cpus: Vec<(u64, Cpu)>,
    versions: Vec<(u64, Version)>,
    errors: u64,
    state: State,
    /// Flow was seen, or that it begins in the middle.
    begun: bool,
    /// Where the trace says the thread stands.
    end: Option<Avma>,
}

/// Whether instructions can come now.
#[derive(Debug, Default)]
enum State {
    #[default]
    Flowing,
    /// Tracing is off since the thread left; what that is called is known when it is back.
    Off { from: Option<Avma>, tsc: Option<Tsc> },
    /// Flow is lost; the mark with this number is the gap.
    Lost { gap: usize },
}

impl Marker {
    /// Takes an event before instruction `index`; `last` is the instruction before. Says whether the
    /// flow is broken here.
    pub fn event(&mut self, event: Event, index: u64, last: impl FnOnce() -> Option<Instruction>) -> bool {
        match event {
            Event::Time(stamp) => {
                self.clock.push(index, stamp);
                return false;
            }
            Event::Cpu(cpu) => {
                if self.cpus.last().is_none_or(|&(_, current)| current != cpu) {
                    self.cpus.push((index, cpu));
                }
                return false;
            }
            Event::FlowBegins { .. } => return false,
            Event::Ptwrite { value } => {
                self.mark(index, MarkKind::Ptwrite(value));
                return false;
            }
            Event::Sync { offset } => {
                self.sync(offset, index);
                return true;
            }
            Event::Enabled { status: true, at } => {
                if !self.begun {
                    self.start(index, 0);
                }
                self.end = Some(at);
                return false;
            }
            Event::Enabled { at, .. } => self.enabled(at, index, last()),
            Event::Disabled { from, to } => self.disabled(from, to, last()),
            Event::Branched { from } => {
                self.clock.pin();
                let back = self.clock.last();
                self.mark(index, MarkKind::Interrupted { from, back });
            }
            Event::Overflow { offset } => {
                // The flow is found again at once, where the engine says "enabled" next.
                let gap = Gap {
                    cause: GapCause::Overflow,
                    trace_offset: offset,
                    resumed_offset: Some(offset),
                };
                self.gap(gap, index);
                self.state = State::Flowing;
            }
            Event::Lost { cause, offset, error } => {
                self.errors += u64::from(error);
                self.end = match cause {
                    GapCause::LostCode { at } => Some(at),
                    _ => None,
                };
                self.gap(
                    Gap {
                        cause,
                        trace_offset: offset,
                        resumed_offset: None,
                    },
                    index,
                );
            }
        }
        self.begun = true;
        true
    }

    fn sync(&mut self, offset: u64, index: u64) {
        match self.state {
            State::Lost { gap } => {
                if let Some(Mark {
                    kind: MarkKind::Gap(gap),
                    ..
                }) = self.marks.get_mut(gap)
                {
                    gap.resumed_offset = Some(offset);
                }
            }
            _ if !self.begun && offset > 0 => self.start(index, offset),
            _ => {}
        }
        self.state = State::Flowing;
    }

    /// The history begins in the middle of the thread's life.
    fn start(&mut self, index: u64, offset: u64) {
        let gap = Gap {
            cause: GapCause::Start,
            trace_offset: 0,
            resumed_offset: Some(offset),
        };
        self.begun = true;
        self.mark(index, MarkKind::Gap(gap));
    }

    fn enabled(&mut self, at: Avma, index: u64, last: Option<Instruction>) {
        self.end = Some(at);
        let State::Off { from, tsc } = std::mem::take(&mut self.state) else {
            return;
        };
        self.clock.pin();
        let back = self.clock.last();
        let kind = match (from, last) {
            (Some(from), _) => MarkKind::Interrupted { from, back },
            (None, Some(last)) if last.next() == at => MarkKind::LeftUser {
                resumed: Resumed::After,
                back,
            },
            (None, Some(last)) if last.pc == at => MarkKind::LeftUser {
                resumed: Resumed::Again,
                back,
            },
            (None, _) => MarkKind::LeftUser {
                resumed: Resumed::Elsewhere(at),
                back,
            },
        };
        self.marks.push(Mark { index, kind, tsc });
    }

    fn disabled(&mut self, from: Option<Avma>, to: Option<Avma>, last: Option<Instruction>) {
        self.clock.pin();
        self.end = from.or(to).or_else(|| last.map(|last| last.next()));
        self.state = State::Off {
            from,
            tsc: self.clock.last(),
        };
    }

    fn gap(&mut self, gap: Gap, index: u64) {
        self.clock.pin();
        self.state = State::Lost {
            gap: self.marks.len(),
        };
        self.mark(index, MarkKind::Gap(gap));
    }

    /// The marks so far.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// From instruction `index` on, the code is of this version.
    pub fn version(&mut self, index: u64, version: Version) {
        match self.versions.last_mut() {
            Some(last) if last.0 == index => last.1 = version,
            _ => self.versions.push((index, version)),
        }
    }

    /// Adds a mark as it is; a time is fixed at it.
    pub fn push(&mut self, mark: Mark) {
        self.clock.pin();
        self.marks.push(mark);
    }

    /// Keeps the newest time stamp.
    pub fn pin(&mut self) {
        self.clock.pin();
    }

    pub fn last_stamp(&self) -> Option<Tsc> {
        self.clock.last()
    }

    pub fn add_errors(&mut self, errors: u64) {
        self.errors += errors;
    }

    fn mark(&mut self, index: u64, kind: MarkKind) {
        self.marks.push(Mark {
            index,
            kind,
            tsc: self.clock.last(),
        });
    }

    pub fn finish(mut self, tid: Tid, flow: Flow) -> History {
        self.clock.pin();
        // An address said before the last instructions says nothing of the end.
        let end = match self.state {
            State::Flowing => None,
            State::Off { .. } | State::Lost { .. } => self.end,
        };
        History {
            tid,
            flow: Arc::new(flow),
            marks: self.marks,
            clock: self.clock,
            cpus: self.cpus,
            versions: self.versions,
            errors: self.errors,
            end,
        }
    }
}
