//! Converts instructions to timestamps.

use crate::{Error, Result};
use backtrail_debugger::session::Thread;
use backtrail_debugger::time::Timebase;
use backtrail_decoder::History;
use backtrail_pt::Tsc;

/// The unit of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Ticks of the timestamp counter. The trace does not state their duration.
    Ticks,
    /// Instructions executed by the thread.
    Instructions,
}

impl Unit {
    /// Returns the unit's name in the plural.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Ticks => "TSC ticks",
            Self::Instructions => "instructions",
        }
    }
}

/// A clock that starts at 0 with the earliest thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub unit: Unit,
    base: Timebase,
    /// The time of 0, in the unit.
    pub start: u64,
}

impl Scale {
    /// Builds a clock from the threads' timestamps. Returns `None` if no thread has any.
    pub fn of_times<'a>(base: &Timebase, threads: impl Iterator<Item = &'a Thread>) -> Option<Self> {
        let unit = match base.conversion {
            Some(_) => Unit::Nanoseconds,
            None => Unit::Ticks,
        };
        let mut scale = Self {
            unit,
            base: *base,
            start: 0,
        };
        let firsts = threads.filter_map(|thread| thread.history.first_stamp());
        scale.start = firsts.map(|tsc| scale.raw(tsc)).min()?;
        Some(scale)
    }

    /// Builds a clock that counts instructions of each thread separately.
    pub fn of_instructions() -> Self {
        Self {
            unit: Unit::Instructions,
            base: Timebase::default(),
            start: 0,
        }
    }

    /// Checks that a thread has timestamps of this clock.
    pub fn covers(&self, thread: &Thread) -> Result<()> {
        match self.unit == Unit::Instructions || thread.history.first_stamp().is_some() {
            true => Ok(()),
            false => Err(Error::NoTime(thread.tid)),
        }
    }

    /// Returns when instruction `index` began.
    pub fn begins(&self, history: &History, index: u64) -> u64 {
        self.time_of(history, index, history.interpolated_departure(index))
    }

    /// Returns when the instruction before `index` ended.
    pub fn ends(&self, history: &History, index: u64) -> u64 {
        self.time_of(history, index, history.interpolated_arrival(index))
    }

    /// Returns the time of an instruction. Before a thread's first timestamp, it is that timestamp.
    fn time_of(&self, history: &History, index: u64, tsc: Option<Tsc>) -> u64 {
        if self.unit == Unit::Instructions {
            return index;
        }
        let known = tsc.or_else(|| history.first_stamp());
        known.map_or(0, |tsc| self.at(tsc))
    }

    /// Returns the time of a TSC value, on a clock of time.
    pub fn at(&self, tsc: Tsc) -> u64 {
        self.raw(tsc).saturating_sub(self.start)
    }

    fn raw(&self, tsc: Tsc) -> u64 {
        self.base
            .conversion
            .map_or(tsc.0, |conversion| conversion.nanos(tsc).0)
    }
}
