//! Moving by verbs, and the breakpoints that stop a move on its way.

use super::{Navigator, Stop};
use crate::breakpoint::{Condition, HeapBlock, HeapHit, Hit, Logged, Message, SearchRange, Truth};
use crate::error::{Error, Result};
use crate::evaluation::conditions;
use crate::evaluation::variables::{self, Format};
use crate::heap::{self, recorded_calls::RecordedCall};
use crate::latency::{CallTimer, Span, Unit};
use crate::lines::LineStarts;
use crate::location::AskedFrame;
use crate::session::Thread;
use crate::signal;
use crate::skip::StepFilter;
use crate::stack;
use crate::step::{Direction, Motion, Steps, Target};
use crate::stop::StopReason;
use backtrail_decoder::{Stage, Watch};

impl Navigator {
    /// Calls `with` with what moves in the current thread.
    ///
    /// # Errors
    /// When the thread has no history, or when canceled; and what `with` fails with.
    pub fn with_steps<T>(&self, watch: &Watch<'_>, with: impl FnOnce(&Steps<'_>) -> Result<T>) -> Result<T> {
        self.with_steps_of(self.thread()?, watch, with)
    }

    /// Calls `with` with what moves in a thread.
    ///
    /// # Errors
    /// When the thread has no history, or when canceled; and what `with` fails with.
    pub fn with_steps_of<T>(
        &self,
        thread: &Thread,
        watch: &Watch<'_>,
        with: impl FnOnce(&Steps<'_>) -> Result<T>,
    ) -> Result<T> {
        if thread.history.is_empty() {
            return Err(Error::NoHistory(thread.tid));
        }
        let forest = self.session.forest(thread, watch)?;
        let lines = self.process_of(thread)?.lines();
        with(&Steps {
            lines: LineStarts {
                history: &thread.history,
                is_partial: thread.is_partial(),
                forest,
                lines,
                statements: &thread.statements,
                filter: None,
                watch,
            },
            gaps: thread.gaps(),
            frame: if thread.tid == self.current { self.frame } else { 0 },
            crash: self.session.crash_of(thread.tid).map(signal::describe),
            filter: StepFilter {
                libraries: self.just_my_code,
                rules: self.skips.enabled().cloned().collect(),
            },
        })
    }

    /// Moves by a verb.
    ///
    /// # Errors
    /// When the thread has no history, or when canceled; then nothing moved.
    pub fn run(&mut self, motion: &Motion, direction: Direction, watch: &Watch<'_>) -> Result<Stop> {
        let from = self.index();
        self.breakpoints.take_undecided();
        self.breakpoints.take_unseen();
        if self.searches_all_threads(motion) {
            return self.continue_all(direction, watch);
        }
        let target = self.with_steps(watch, |steps| steps.target(motion, direction, from))?;
        self.begin_watching(watch)?;
        if matches!(motion, Motion::Continue) {
            self.note_shared_memory(watch)?;
        }
        let (index, reason) = match self.breakpoint_on_the_way(direction, target.index, watch)? {
            Some((index, number)) => (index, self.breakpoints.stop_reason(number)),
            // The result depends on the beginning of the history.
            None if target.index == 0 && direction == Direction::Backward => {
                self.thread()?.needs_beginning()?;
                (target.index, target.reason)
            }
            None => (target.index, target.reason),
        };
        self.arrive(motion, Target { index, reason }, watch)
    }

    /// The nearest hit that counts, up to and with `target`.
    fn breakpoint_on_the_way(
        &mut self,
        direction: Direction,
        target: u64,
        watch: &Watch<'_>,
    ) -> Result<Option<(u64, u32)>> {
        let start = self.index();
        let mut from = start;
        loop {
            let all = start.abs_diff(target).max(1);
            watch.report(Stage::Search, start.abs_diff(from), all)?;
            let range = match direction {
                Direction::Forward => from.saturating_add(1)..target.saturating_add(1),
                Direction::Backward => target..from,
            };
            let range = SearchRange {
                start: range.start,
                end: range.end,
                direction,
            };
            if self.breakpoints.all().is_empty() || from == target {
                return Ok(None);
            }
            let nearest = self.hit_in(self.thread()?, range, watch)?;
            let Some((index, number)) = nearest else {
                return Ok(None);
            };
            if index == 0 {
                self.thread()?.needs_beginning()?;
            }
            if self.counts(index, number, direction, watch)? {
                return Ok(Some((index, number)));
            }
            from = index;
        }
    }

    /// Records a hit, and returns whether to stop there.
    pub(super) fn counts(
        &mut self,
        index: u64,
        number: u32,
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<bool> {
        if self.breakpoints.get_mut(number)?.watchpoint.is_some() {
            let reason = self.visiting(self.current, index, |navigator| {
                navigator.watch_stop(number, index, direction, watch)
            })?;
            match reason {
                None => return Ok(false),
                Some(reason @ StopReason::Watchpoint { .. }) => self.breakpoints.stops_watching(reason),
                Some(edge) => {
                    self.breakpoints.stops_watching(edge);
                    return Ok(true);
                }
            }
        }
        let breakpoint = self.breakpoints.get_mut(number)?;
        let (condition, asked) = (breakpoint.condition.clone(), breakpoint.asked.clone());
        let condition = condition.as_ref();
        let caller = match condition.is_some_and(Condition::asks_caller) {
            true => self.caller_at(index, &asked, watch)?,
            false => None,
        };
        let duration = match condition.is_some_and(Condition::asks_duration) {
            true => self.length_at(index, Unit::Ns, watch)?,
            false => None,
        };
        let instructions = match condition.is_some_and(Condition::asks_instructions) {
            true => self.length_at(index, Unit::Instructions, watch)?,
            false => None,
        };
        let heap = match condition.is_some_and(Condition::asks_heap) {
            true => self.heap_hit_at(index, watch)?,
            false => HeapHit::Elsewhere,
        };
        let tid = self.current.0;
        let breakpoint = self.breakpoints.get_mut(number)?;
        let count = breakpoint.count.saturating_add(1);
        let hit = Hit {
            tid,
            count,
            caller: caller.as_deref(),
            duration,
            instructions,
            heap,
        };
        breakpoint.count = count;
        if let Some(condition) = condition {
            // The expression was valid when it was set. A failure here means that its value is
            // unknown.
            let mut value = |expression: &str| {
                let truth = self.visiting(self.current, index, |navigator| {
                    navigator.frame = navigator.asked_frame(&asked);
                    conditions::truth(navigator, expression, watch)
                });
                match truth {
                    Err(Error::Cannot(why)) => Ok(Truth::Unknown(why)),
                    truth => truth,
                }
            };
            match condition.holds(&hit, &mut value)? {
                Truth::Known(true) => {}
                Truth::Known(false) => return Ok(false),
                Truth::Unknown(why) => {
                    self.breakpoints.passes_untold(number, &why)?;
                    return Ok(false);
                }
            }
        }
        let breakpoint = self.breakpoints.get_mut(number)?;
        breakpoint.met = breakpoint.met.saturating_add(1);
        let met = Hit {
            count: breakpoint.met,
            ..hit
        };
        if let Some(among) = &breakpoint.among
            && among.holds(&met, &mut |_| Ok(Truth::Known(false)))? != Truth::Known(true)
        {
            return Ok(false);
        }
        if breakpoint.ignore > 0 {
            breakpoint.ignore -= 1;
            return Ok(false);
        }
        if let Some(message) = breakpoint.message.clone() {
            self.log(index, number, &asked, &message, watch)?;
            return Ok(false);
        }
        let (temporary, due) = (breakpoint.temporary, breakpoint.commands.clone());
        self.breakpoints.due = due;
        self.breakpoints.asked = asked;
        if temporary {
            self.breakpoints.delete(number)?;
        }
        Ok(true)
    }

    /// Selects the frame that the breakpoint asked for that stopped the last move.
    pub(super) fn select_asked_frame(&mut self) {
        let asked = std::mem::take(&mut self.breakpoints.asked);
        self.frame = self.asked_frame(&asked);
    }

    /// Returns the number of the frame here that a location asks for.
    fn asked_frame(&self, asked: &AskedFrame) -> usize {
        let thread = self.thread();
        thread.map_or(0, |thread| self.frame_asked_at(thread, self.index(), asked))
    }

    /// Returns the number of the frame before an instruction that a location asks for.
    fn frame_asked_at(&self, thread: &Thread, index: u64, asked: &AskedFrame) -> usize {
        let pc = stack::pc_at(&self.session, thread, index);
        let symbols = self.session.symbols_at(thread, index);
        let frames = symbols.zip(pc).map(|(symbols, pc)| symbols.frames_at(pc));
        frames.map_or(0, |frames| asked.number(&frames))
    }

    /// Logs a hit.
    fn log(
        &mut self,
        index: u64,
        number: u32,
        asked: &AskedFrame,
        message: &Message,
        watch: &Watch<'_>,
    ) -> Result<()> {
        let text = match self.breakpoints.log.is_full() {
            true => String::new(),
            false => self.visiting(self.current, index, |navigator| {
                navigator.frame = navigator.asked_frame(asked);
                message.render(&mut |expression| {
                    let evaluated = variables::evaluate(navigator, expression, Format::default(), watch);
                    match evaluated {
                        Ok(node) => Ok(node.shown.text),
                        Err(error @ (Error::Canceled | Error::Earlier)) => Err(error),
                        Err(error) => Ok(format!("<error: {error}>")),
                    }
                })
            })?,
        };
        let position = self.thread()?.position(index).to_string();
        self.breakpoints.log.add(Logged {
            number,
            position,
            text,
        });
        Ok(())
    }

    /// Returns the duration of the call around an instruction; `None` if it is unknown.
    fn length_at(&self, index: u64, unit: Unit, watch: &Watch<'_>) -> Result<Option<Span>> {
        let times = self.session.times();
        if unit == Unit::Ns && times.conversion.is_none() {
            return Err(Error::Cannot(
                "the trace has no time conversion for its TSC, so $duration is not available; \
                 use $instructions"
                    .to_owned(),
            ));
        }
        let thread = self.thread()?;
        let forest = self.session.forest(thread, watch)?;
        let Some(call) = forest.call_at(index) else {
            return Ok(None);
        };
        if thread.is_cut_off(&forest.call(call)) {
            return Err(Error::Earlier);
        }
        Ok(CallTimer::new(thread, forest, unit, times).span(call).ok())
    }

    /// Returns the block of the allocator function that runs at an instruction.
    fn heap_hit_at(&self, index: u64, watch: &Watch<'_>) -> Result<HeapHit> {
        let thread = self.thread()?;
        let call = if heap::has_records(&self.session) {
            match self.recorded_calls.around(&self.session, thread, index, watch)? {
                Some(RecordedCall::Open(why)) => return Ok(HeapHit::Unknown(why)),
                Some(RecordedCall::Known(call)) => Some(call),
                None => None,
            }
        } else if heap::has_events(&self.session) {
            let forest = self.session.forest(thread, watch)?;
            heap::calls::call_around(&thread.history, forest, index)
        } else {
            None
        };
        Ok(call.map_or(HeapHit::Elsewhere, |call| {
            HeapHit::Call(HeapBlock {
                address: call.block(),
                size: call.requested(),
            })
        }))
    }

    fn caller_at(&self, index: u64, asked: &AskedFrame, watch: &Watch<'_>) -> Result<Option<String>> {
        let thread = self.thread()?;
        let caller = self.frame_asked_at(thread, index, asked).saturating_add(1);
        let stack = stack::stack(&self.session, thread, index, caller + 1, watch)?.complete()?;
        Ok(stack
            .frames
            .into_iter()
            .nth(caller)
            .and_then(|frame| frame.function))
    }
}
