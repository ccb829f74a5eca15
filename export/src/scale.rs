//! From instructions to moments.

use crate::{Error, Result};
use backtrail_debugger::session::Thread;
use backtrail_debugger::time::Timebase;
use backtrail_decoder::History;
use backtrail_pt::Tsc;

/// The unit of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Ticks of the time stamp counter: the trace does not say how long they are.
    Ticks,
    /// Instructions of the thread.
    Instructions,
}

impl Unit {
    /// Its name in the plural.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Ticks => "TSC ticks",
            Self::Instructions => "instructions",
        }
    }
}

/// A clock that begins at 0 where the earliest thread does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub unit: Unit,
    base: Timebase,
    /// The moment called 0, in the unit.
    pub start: u64,
}

impl Scale {
    /// By the times of the threads; `None`: none has any.
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

    /// By instructions, of each thread for itself.
    pub fn of_instructions() -> Self {
        Self {
            unit: Unit::Instructions,
            base: Timebase::default(),
            start: 0,
        }
    }

    /// Checks that a thread has moments in this unit.
    pub fn covers(&self, thread: &Thread) -> Result<()> {
        match self.unit == Unit::Instructions || thread.history.first_stamp().is_some() {
            true => Ok(()),
            false => Err(Error::NoTime(thread.tid)),
        }
    }

    /// When instruction `index` began.
    pub fn begins(&self, history: &History, index: u64) -> u64 {
        self.moment(history, index, history.interpolated_departure(index))
    }

    /// When the instruction before `index` had ended.
    pub fn ends(&self, history: &History, index: u64) -> u64 {
        self.moment(history, index, history.interpolated_arrival(index))
    }

    /// Events before the first time stamp of a thread are drawn at that time stamp.
    fn moment(&self, history: &History, index: u64, tsc: Option<Tsc>) -> u64 {
        if self.unit == Unit::Instructions {
            return index;
        }
        let known = tsc.or_else(|| history.first_stamp());
        known.map_or(0, |tsc| self.at(tsc))
    }

    /// When a time stamp was taken, on a clock of time.
    pub fn at(&self, tsc: Tsc) -> u64 {
        self.raw(tsc).saturating_sub(self.start)
    }

    fn raw(&self, tsc: Tsc) -> u64 {
        self.base
            .conversion
            .map_or(tsc.0, |conversion| conversion.nanos(tsc).0)
    }
}
