//! Which thread had a processor at a time, or between two times.

use super::UnattributedReason;
use crate::Execution;
use backtrail_pt::{Tid, Tsc};
use std::ops::RangeInclusive;

/// The idle task.
const IDLE: Tid = Tid(0);

/// The executions of a processor, to be asked by time.
pub(super) struct Owners<'a> {
    /// In order of time; they do not overlap, except where their bounds are not known.
    executions: &'a [Execution],
}

/// A stretch of flow in time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct When {
    /// The last stamp before it.
    pub after: Option<Tsc>,
    /// The first and last stamp in it.
    pub inside: Option<(Tsc, Tsc)>,
    /// The first stamp after it.
    pub before: Option<Tsc>,
}

impl When {
    /// By which pieces are ordered.
    pub fn key(&self) -> Tsc {
        self.inside
            .map(|(first, _)| first)
            .or(self.after)
            .unwrap_or_default()
    }
}

impl<'a> Owners<'a> {
    pub fn new(executions: &'a [Execution]) -> Self {
        Self { executions }
    }

    /// Who ran at a time.
    pub fn at(&self, at: Tsc) -> Option<&'a Execution> {
        self.between(at..=at).next()
    }

    /// All that ran in a stretch of time, the idle task aside.
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

    /// Whose code to try for flow that begins after a stamp. When it is certain whose it is, it is
    /// this one: the first that runs from then on.
    pub fn likely(&self, after: Option<Tsc>) -> Option<&'a Execution> {
        let all = after?..=Tsc(u64::MAX);
        self.between(all).next()
    }

    /// Whose flow it certainly is.
    pub fn certain(&self, when: &When) -> Result<&'a Execution, UnattributedReason> {
        if let Some((first, last)) = when.inside {
            let owner = self.at(first).ok_or(UnattributedReason::NoSwitch)?;
            let same = self.between(first..=last).all(|other| same_thread(other, owner));
            return if same {
                Ok(owner)
            } else {
                Err(UnattributedReason::Contradiction)
            };
        }
        let after = when.after.ok_or(UnattributedReason::NoTime)?;
        let mut candidates = self.between(after..=when.before.unwrap_or(Tsc(u64::MAX)));
        let owner = candidates.next().ok_or(UnattributedReason::NoSwitch)?;
        if candidates.all(|other| same_thread(other, owner)) {
            Ok(owner)
        } else {
            Err(UnattributedReason::SwitchBetweenStamps)
        }
    }

    /// All whose flow it may be.
    pub fn possible(&self, when: &When) -> impl Iterator<Item = &'a Execution> + use<'a> {
        let (first, last) = when.inside.unwrap_or((
            when.after.unwrap_or_default(),
            when.before.unwrap_or(Tsc(u64::MAX)),
        ));
        self.between(first..=last)
    }
}

fn same_thread(one: &Execution, other: &Execution) -> bool {
    (one.pid, one.tid) == (other.pid, other.tid)
}
