//! Watchpoints on variables in registers: their values at each instruction of their frame.

use super::Navigator;
use crate::breakpoint::SearchRange;
use crate::error::Result;
use crate::evaluation::watched;
use crate::lines::OwnInstructions;
use crate::session::Thread;
use crate::step::Direction;
use crate::watchpoint::{WatchedChange, WatchedValue, Watchpoint};
use backtrail_decoder::{Stage, Watch};

impl Navigator {
    /// Returns the nearest position in a range at which the value has another value than at the
    /// instruction of the frame before.
    pub(super) fn next_register_change(
        &self,
        watchpoint: &Watchpoint,
        thread: &Thread,
        range: SearchRange,
        watch: &Watch<'_>,
    ) -> Result<Option<u64>> {
        let Some(scope) = watchpoint.scope.as_ref().filter(|scope| scope.tid == thread.tid) else {
            return Ok(None);
        };
        let value = |index| watched::value_in_frame(self, watchpoint, (thread, index), watch);
        let all = range.start.abs_diff(range.end).max(1);
        self.with_steps_of(thread, watch, |steps| {
            let Some(call) = steps.forest().call_at(scope.instructions.start) else {
                return Ok(None);
            };
            let own = |from| OwnInstructions::new(&steps.lines, call, from, |_| true);
            match range.direction {
                Direction::Forward => {
                    let mut before = own(range.start);
                    let mut known = None;
                    while known.is_none()
                        && let Some(index) = before.previous(scope.instructions.start)?
                    {
                        known = value(index)?.bytes;
                    }
                    let mut after = own(range.start);
                    while let Some(index) = after.next(range.end)? {
                        watch.report(Stage::Search, index - range.start, all)?;
                        let Some(bytes) = value(index)?.bytes else {
                            continue;
                        };
                        if known.as_ref().is_some_and(|known| *known != bytes) {
                            return Ok(Some(index));
                        }
                        known = Some(bytes);
                    }
                    Ok(None)
                }
                Direction::Backward => {
                    let mut known = value(range.end)?.bytes;
                    let mut before = own(range.end);
                    while let Some(index) = before.previous(range.start)? {
                        watch.report(Stage::Search, range.end - index, all)?;
                        let Some(bytes) = value(index)?.bytes else {
                            continue;
                        };
                        if known.as_ref().is_some_and(|known| *known != bytes) {
                            return Ok(Some(index));
                        }
                        known = Some(bytes);
                    }
                    Ok(None)
                }
            }
        })
    }

    /// Returns the change at a stop.
    pub(super) fn register_change(
        &self,
        watchpoint: &Watchpoint,
        thread: &Thread,
        index: u64,
        direction: Direction,
        watch: &Watch<'_>,
    ) -> Result<WatchedChange> {
        let value = |index| watched::value_in_frame(self, watchpoint, (thread, index), watch);
        let here = value(index)?;
        let scope = watchpoint.scope.as_ref();
        let instructions = scope.map_or(index..index + 1, |scope| scope.instructions.clone());
        self.with_steps_of(thread, watch, |steps| {
            let unknown = || WatchedValue {
                text: "<unknown>".to_owned(),
                bytes: None,
            };
            let Some(call) = steps.forest().call_at(instructions.start) else {
                return Ok(WatchedChange {
                    at: index,
                    old: unknown(),
                    new: here.clone(),
                });
            };
            let own = |from| OwnInstructions::new(&steps.lines, call, from, |_| true);
            match direction {
                Direction::Forward => {
                    let mut before = own(index);
                    let mut at = None;
                    while let Some(earlier) = before.previous(instructions.start)? {
                        let last = *at.get_or_insert(earlier);
                        let old = value(earlier)?;
                        if old.bytes.is_some() {
                            return Ok(WatchedChange {
                                at: last,
                                old,
                                new: here.clone(),
                            });
                        }
                    }
                    Ok(WatchedChange {
                        at: at.unwrap_or(index),
                        old: unknown(),
                        new: here.clone(),
                    })
                }
                Direction::Backward => {
                    let mut after = own(index + 1);
                    while let Some(later) = after.next(instructions.end)? {
                        let new = value(later)?;
                        if new.bytes.is_some() {
                            return Ok(WatchedChange {
                                at: index,
                                old: here.clone(),
                                new,
                            });
                        }
                    }
                    Ok(WatchedChange {
                        at: index,
                        old: here.clone(),
                        new: unknown(),
                    })
                }
            }
        })
    }
}
