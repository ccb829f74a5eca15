//! Builds marks, times and processors from the events between instructions.

use crate::clock::Clock;
use crate::history::{Flow, History, PausedValues};
use crate::{Event, Gap, GapCause, Instruction, Mark, MarkKind, Resumed, Version};
use backtrail_pt::{Avma, Cpu, Tid, Tsc};
use std::sync::Arc;

/// Collects the events of a thread in order, each with the index of the next instruction.
#[derive(Debug, Default)]
pub(super) struct MarkBuilder {
    marks: Vec<Mark>,
    clock: Clock,
    cpus: Vec<(u64, Cpu)>,
    versions: Vec<(u64, Version)>,
    errors: u64,
    /// Values that were written while the flow was interrupted, and went on at the same place.
    paused_values: PausedValues,
    /// All values are marks.
    pub marks_all_values: bool,
    /// Values since the flow was interrupted, each with the last timestamp.
    waiting: Vec<(u64, Option<Tsc>)>,
    state: FlowState,
    /// The history has flow, or a mark that it starts in the middle.
    started: bool,
    /// The thread's address by the last event.
    end: Option<Avma>,
}

/// Whether instructions can follow.
#[derive(Debug, Default)]
enum FlowState {
    #[default]
    Flowing,
    /// Tracing is disabled since the thread left. The kind of mark is known when it is back.
    Off { from: Option<Avma>, tsc: Option<Tsc> },
    /// The flow is lost; `gap` is the number of the gap's mark.
    Lost { gap: usize },
}

impl MarkBuilder {
    /// Handles an event before instruction `index`; `last` is the instruction before. Returns
    /// whether the flow is interrupted.
    pub fn event(&mut self, event: Event, index: u64, last: impl FnOnce() -> Option<Instruction>) -> bool {
        let keeps_waiting = matches!(
            event,
            Event::Time(_)
                | Event::Cpu(_)
                | Event::FlowBegins { .. }
                | Event::Ptwrite { .. }
                | Event::Enabled { status: false, .. }
        );
        if !keeps_waiting {
            self.mark_waiting(index);
        }
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
            Event::FlowBegins { offset } => {
                self.resumed(offset);
                return false;
            }
            Event::Ptwrite { value } => {
                match self.state {
                    FlowState::Off { from: Some(_), .. } if !self.marks_all_values => {
                        self.waiting.push((value, self.clock.last()))
                    }
                    _ => self.mark(index, MarkKind::Ptwrite(value)),
                }
                return false;
            }
            Event::Sync { offset } => {
                self.sync(offset, index);
                return true;
            }
            Event::Enabled { status: true, at } => {
                if !self.started {
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
                // The flow resumes at once, at the next "enabled" event.
                let gap = Gap {
                    cause: GapCause::Overflow,
                    trace_offset: offset,
                    resumed_offset: Some(offset),
                };
                self.gap(gap, index);
                self.state = FlowState::Flowing;
            }
            Event::Lost { cause, offset } => {
                self.errors += u64::from(cause.is_decode_error());
                self.end = match cause {
                    GapCause::LostCode { at }
                    | GapCause::UncertainCode { at }
                    | GapCause::OtherInstruction { at } => Some(at),
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
        self.started = true;
        true
    }

    fn sync(&mut self, offset: u64, index: u64) {
        if !self.resumed(offset) && !self.started && offset > 0 {
            self.start(index, offset);
        }
        self.state = FlowState::Flowing;
    }

    /// Ends the current gap, if there is one. Returns whether there is.
    fn resumed(&mut self, offset: u64) -> bool {
        let FlowState::Lost { gap } = self.state else {
            return false;
        };
        if let Some(Mark {
            kind: MarkKind::Gap(gap),
            ..
        }) = self.marks.get_mut(gap)
        {
            gap.resumed_offset = Some(offset);
        }
        self.state = FlowState::Flowing;
        true
    }

    /// Marks that the history starts in the middle of the run.
    fn start(&mut self, index: u64, offset: u64) {
        let gap = Gap {
            cause: GapCause::Start,
            trace_offset: 0,
            resumed_offset: Some(offset),
        };
        self.started = true;
        self.mark(index, MarkKind::Gap(gap));
    }

    fn enabled(&mut self, at: Avma, index: u64, last: Option<Instruction>) {
        self.end = Some(at);
        let state = std::mem::take(&mut self.state);
        if let FlowState::Off { from: Some(from), .. } = state
            && from == at
            && !self.waiting.is_empty()
        {
            // Tracing was off for the values alone.
            for (value, _) in self.waiting.drain(..) {
                self.paused_values.push(index, value);
            }
            return;
        }
        self.mark_waiting(index);
        let FlowState::Off { from, tsc } = state else {
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

    /// Makes marks of the values since the flow was interrupted, because it did not go on.
    fn mark_waiting(&mut self, index: u64) {
        for (value, tsc) in std::mem::take(&mut self.waiting) {
            let kind = MarkKind::Ptwrite(value);
            self.marks.push(Mark { index, kind, tsc });
        }
    }

    fn disabled(&mut self, from: Option<Avma>, to: Option<Avma>, last: Option<Instruction>) {
        self.clock.pin();
        if from.is_none() && matches!(self.state, FlowState::Lost { .. }) {
            // The instruction that left is in the gap.
            self.end = to;
            return;
        }
        self.end = from.or(to).or_else(|| last.map(|last| last.next()));
        self.state = FlowState::Off {
            from,
            tsc: self.clock.last(),
        };
    }

    fn gap(&mut self, gap: Gap, index: u64) {
        self.clock.pin();
        self.state = FlowState::Lost {
            gap: self.marks.len(),
        };
        self.mark(index, MarkKind::Gap(gap));
    }

    /// Returns the marks so far.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Starts a version of the code at instruction `index`.
    pub fn version(&mut self, index: u64, version: Version) {
        match self.versions.last_mut() {
            Some(last) if last.0 == index => last.1 = version,
            _ => self.versions.push((index, version)),
        }
    }

    /// Adds a mark unchanged, and keeps the time at it.
    pub fn push(&mut self, mark: Mark) {
        self.clock.pin();
        self.marks.push(mark);
    }

    /// Keeps the newest timestamp.
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
        self.mark_waiting(flow.len());
        // An address before the last instructions is not the end.
        let end = match self.state {
            FlowState::Flowing => None,
            FlowState::Off { .. } | FlowState::Lost { .. } => self.end,
        };
        History {
            tid,
            flow: Arc::new(flow),
            marks: self.marks,
            paused_values: self.paused_values,
            clock: self.clock,
            cpus: self.cpus,
            versions: self.versions,
            errors: self.errors,
            end,
        }
    }
}
