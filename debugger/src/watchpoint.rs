//! Watchpoints: expressions whose memory is followed through the history.

use crate::replay::{AccessFilter, MemoryRange};
use backtrail_pt::{Avma, Pid, Tid};
use backtrail_symbolizer::Unknown;
use backtrail_values::Ty;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// The accesses at which a watchpoint hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchKind {
    /// Writes that change the value: `watch`.
    Change,
    /// Reads: `rwatch`.
    Read,
    /// Reads and writes: `awatch`.
    Access,
}

impl WatchKind {
    /// Returns the accesses to search for.
    pub(crate) const fn filter(self) -> AccessFilter {
        match self {
            Self::Change => AccessFilter::Writes,
            Self::Read => AccessFilter::Reads,
            Self::Access => AccessFilter::All,
        }
    }

    /// Returns GDB's name of such a watchpoint.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Change => "watchpoint",
            Self::Read => "read watchpoint",
            Self::Access => "access watchpoint",
        }
    }
}

/// A watched expression. Its names mean what they meant where it was set.
#[derive(Clone)]
pub struct Watchpoint {
    /// The expression.
    pub expression: String,
    /// The accesses at which it hits.
    pub kind: WatchKind,
    /// The process whose memory it is.
    pub process: Pid,
    /// The call in which its variables exist. `None`: they always exist.
    pub scope: Option<WatchScope>,
    /// The value at an address, whatever the expression means later: `watch -l`.
    pub(crate) location: Option<(Ty, u64)>,
    pub(crate) names: NameScope,
    pub(crate) registers: FrameRegisters,
    /// The variable may be in registers, which change in its frame alone.
    pub(crate) is_in_registers: bool,
    /// The memory on which the value depends at the position of the search.
    pub(crate) ranges: Vec<MemoryRange>,
}

impl fmt::Debug for Watchpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchpoint")
            .field("expression", &self.expression)
            .field("kind", &self.kind)
            .field("ranges", &self.ranges)
            .finish_non_exhaustive()
    }
}

/// The call in which the variables of an expression exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchScope {
    /// The thread.
    pub tid: Tid,
    /// The instructions of the call.
    pub instructions: Range<u64>,
    /// Whether the history has the beginning of the call.
    pub has_start: bool,
    /// The function, if known.
    pub function: Option<String>,
}

/// The place in the code at which names are looked up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameScope {
    pub look_up: Option<Avma>,
    pub pc: Option<u64>,
    pub level: usize,
    /// The thread, and the instruction whose modules are meant.
    pub at: (Tid, u64),
}

/// The registers of a frame that an expression reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameRegisters {
    pub general: BTreeMap<u16, Result<u64, Unknown>>,
    pub cfa: Option<Result<u64, Unknown>>,
    pub thread_pointer: Option<Result<(u64, Option<Avma>), Unknown>>,
    pub entry_values: BTreeMap<u16, Result<u64, Unknown>>,
}

/// A value at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedValue {
    /// The text.
    pub text: String,
    /// The bytes. `None`: they are unknown.
    pub bytes: Option<Vec<u8>>,
}

/// An access to a watched expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WatchHit {
    /// The expression.
    pub expression: String,
    /// The accesses at which it hits.
    pub kind: WatchKind,
    /// The position of the instruction.
    pub position: String,
    /// The value before the instruction.
    pub old: String,
    /// The value after it.
    pub new: String,
}

impl WatchHit {
    /// Returns whether the instruction changed the value.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.old != self.new
    }
}
