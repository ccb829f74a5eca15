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

/// The values around an instruction.
#[derive(Clone, Debug)]
pub(crate) struct WatchedChange {
    /// The instruction. For a variable in registers: the instruction of its frame before the change
    /// was seen.
    pub at: u64,
    pub old: WatchedValue,
    pub new: WatchedValue,
}

impl WatchedChange {
    /// Returns whether the values differ, if both are known.
    pub fn has_changed(&self) -> Option<bool> {
        let values = self.old.bytes.as_ref().zip(self.new.bytes.as_ref());
        values.map(|(old, new)| old != new)
    }
}

/// The places that a search passed, at which accesses may have gone unseen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnseenAccesses {
    /// The position of the first one that the search met.
    pub position: String,
    /// The cause.
    pub cause: UnseenCause,
    /// The number of further ones.
    pub others: u64,
}

/// The cause of unseen accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnseenCause {
    /// A system call without known effects.
    Kernel,
    /// Values that were not recorded.
    Gap,
    /// Other processes that share the memory. The position is that of the mapping.
    Shared,
}

impl UnseenCause {
    const fn text(self) -> &'static str {
        match self {
            Self::Kernel => "the kernel may have written here",
            Self::Gap => "values are missing here",
            Self::Shared => "other processes may write this memory, which was mapped",
        }
    }
}

impl UnseenAccesses {
    /// Adds a place to those of a search.
    pub(crate) fn add(all: &mut Option<Self>, position: String, cause: UnseenCause) {
        match all {
            Some(all) if all.cause == UnseenCause::Shared && cause == UnseenCause::Shared => {}
            Some(all) => all.others = all.others.saturating_add(1),
            None => {
                *all = Some(Self {
                    position,
                    cause,
                    others: 0,
                });
            }
        }
    }

    /// Returns the cause without the position.
    #[must_use]
    pub fn reason(&self) -> String {
        let cause = self.cause.text();
        format!("{cause}{}", self.further())
    }

    fn further(&self) -> String {
        match self.others {
            0 => String::new(),
            1 => ", and at 1 more place".to_owned(),
            others => format!(", and at {others} more places"),
        }
    }
}

impl fmt::Display for UnseenAccesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = self.cause.text();
        write!(f, "{cause}, at {}{}", self.position, self.further())
    }
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
