//! Determines which thread ran on a processor at a time, or between two times.

use super::UnattributedReason;
use crate::Execution;
use backtrail_pt::{Tid, Tsc};
use std::ops::RangeInclusive;

/// The idle task.
const IDLE: Tid = Tid(0);

/// The executions of a processor, searchable by time.
pub(super) struct Owners<'a> {
    /// In order of time. They overlap only where their bounds are unknown.
    executions: &'a [Execution],
}

/// The times of a stretch of flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PieceTime {
    /// The last known time before it: a stamp, or the end of a part of the trace.
    pub after: Option<Tsc>,
    /// The first and last stamp in it.
    pub inside: Option<(Tsc, Tsc)>,
    /// The first stamp after it.
    pub before: Option<Tsc>,
    /// The time at which its part of the trace was complete.
    pub complete: Option<Tsc>,
}

impl PieceTime {
    /// Returns the time by which pieces are ordered.
    pub fn key(&self) -> Tsc {
        self.inside
            .map(|(first, _)| first)
            .or(self.after)
            .unwrap_or_default()
    }

    /// Returns the first known time after it.
    pub fn until(&self) -> Option<Tsc> {
        self.before.into_iter().chain(self.complete).min()
    }

    /// Returns the time after which it ran; the earliest possible if only its end is known.
    pub fn since(&self) -> Option<Tsc> {
        self.after.or(self.complete.map(|_| Tsc(0)))
    }
}

impl<'a> Owners<'a> {
    pub fn new(executions: &'a [Execution]) -> Self {
        Self { executions }
    }

    /// Returns the execution at a time.
    pub fn at(&self, at: Tsc) -> Option<&'a Execution> {
        self.between(at..=at).next()
    }

    /// Returns the executions in a time range, without the idle task.
    pub fn between(&self, times: RangeInclusive<Tsc>) -> impl Iterator<Item = &'a Execution> + use<'a> {
        let first = self
            .executions
            .partition_point(|execution| execution.end < *times.start());
        let rest = self.executions.get(first..).unwrap_or(&[]);
        let end = *times.end();
        rest.iter()
            .take_while(move |execution| execution.start <= end)
            .filter(|found| found.tid != IDLE)
    }

    /// Returns a time at which all executions that started up to `before` had ended.
    pub fn end_of(&self, before: Tsc) -> Option<Tsc> {
        let next = self
            .executions
            .partition_point(|execution| execution.start <= before);
        let last = next.checked_sub(1).and_then(|last| self.executions.get(last));
        last.map(|execution| execution.end)
    }

    /// Returns the first execution after a stamp: its code is used for flow that starts there. If
    /// the owner is certain, it is this one.
    pub fn likely(&self, after: Option<Tsc>) -> Option<&'a Execution> {
        let all = after?..=Tsc(u64::MAX);
        self.between(all).next()
    }

    /// Returns the execution that certainly owns the flow.
    pub fn certain(&self, time: &PieceTime) -> Result<&'a Execution, UnattributedReason> {
        if let Some((first, last)) = time.inside {
            let owner = self.at(first).ok_or(UnattributedReason::NoSwitch)?;
            let same = self.between(first..=last).all(|other| same_thread(other, owner));
            return if same {
                Ok(owner)
            } else {
                Err(UnattributedReason::Contradiction)
            };
        }
        let after = time.since().ok_or(UnattributedReason::NoTime)?;
        let mut candidates = self.between(after..=time.until().unwrap_or(Tsc(u64::MAX)));
        let owner = candidates.next().ok_or(UnattributedReason::NoSwitch)?;
        if candidates.all(|other| same_thread(other, owner)) {
            Ok(owner)
        } else {
            Err(UnattributedReason::SwitchBetweenStamps)
        }
    }

    /// Returns all executions that may own the flow.
    pub fn possible(&self, time: &PieceTime) -> impl Iterator<Item = &'a Execution> + use<'a> {
        let (first, last) = time.inside.unwrap_or((
            time.after.unwrap_or_default(),
            time.until().unwrap_or(Tsc(u64::MAX)),
        ));
        self.between(first..=last)
    }
}

fn same_thread(one: &Execution, other: &Execution) -> bool {
    (one.pid, one.tid) == (other.pid, other.tid)
}
