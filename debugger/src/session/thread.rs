//! A thread of a session: its history, and how places in it are named.

use super::{CallName, Process};
use crate::coverage::Coverage;
use crate::error::{Error, Result};
use crate::lines::Statements;
use crate::replay::ThreadReplay;
use crate::stack::CoreStackCache;
use backtrail_decoder::{Call, CallId, Entered, Forest, History, Position};
use backtrail_pt::{Tid, Tsc};
use std::cell::OnceCell;

/// A thread and what it executed.
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// Its name (`comm`), if known.
    pub name: Option<String>,
    /// The executed instructions; empty if only the core has the thread.
    pub history: History,
    /// The number of its process.
    pub(super) process: usize,
    /// The calls, found on first use.
    pub(super) forest: OnceCell<Forest>,
    /// The execution counts of its lines, once computed.
    pub(super) coverage: OnceCell<Coverage>,
    /// The instructions of its history that belong to statements.
    pub(crate) statements: Statements,
    pub(crate) core_stack: CoreStackCache,
    /// The replay of recorded values, made on first use.
    pub(crate) replay: OnceCell<Option<ThreadReplay>>,
    gaps: Vec<u64>,
    /// Decoding did not begin where the trace does: positions are counted from the end.
    pub(super) from_end: bool,
    /// There is older history, which is not decoded yet.
    pub(super) is_partial: bool,
}

/// How the positions of a thread are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PositionCount {
    tid: Tid,
    /// The number of instructions of its history.
    len: u64,
    from_end: bool,
}

impl PositionCount {
    /// Returns the position before instruction `index` of the history.
    pub(crate) fn position(self, index: u64) -> Position {
        match self.from_end {
            true => Position::from_end(self.tid, self.len.saturating_sub(index)),
            false => Position::new(self.tid, index),
        }
    }
}

impl Thread {
    pub(super) fn new(history: History, name: Option<String>, process: usize) -> Self {
        let mut gaps: Vec<u64> = history
            .gaps()
            .map(|(index, _)| index)
            .filter(|&index| index > 0)
            .collect();
        gaps.dedup();
        Self {
            tid: history.tid(),
            name,
            history,
            process,
            forest: OnceCell::new(),
            coverage: OnceCell::new(),
            statements: Statements::default(),
            core_stack: CoreStackCache::default(),
            replay: OnceCell::new(),
            gaps,
            from_end: false,
            is_partial: false,
        }
    }

    /// Returns the line of this thread in `backtrail info --digest`: the number of instructions and
    /// decode errors, and the digest of the instructions in hexadecimal.
    #[must_use]
    pub fn digest_line(&self) -> String {
        format!(
            "thread {} instructions {} errors {} digest {:016x}",
            self.tid,
            self.history.len(),
            self.history.errors(),
            self.history.digest()
        )
    }

    /// The position before instruction `index` of its history.
    #[must_use]
    pub fn position(&self, index: u64) -> Position {
        self.positions().position(index)
    }

    /// Returns how its positions are counted.
    pub(crate) fn positions(&self) -> PositionCount {
        PositionCount {
            tid: self.tid,
            len: self.history.len(),
            from_end: self.from_end,
        }
    }

    /// The index of a position in its history.
    ///
    /// # Errors
    /// When it has no such position, or may have it in what is not decoded yet.
    pub fn index_of(&self, position: Position) -> Result<u64> {
        if position.is_from_start() {
            self.needs_beginning()?;
        }
        let len = self.history.len();
        if let Some(index) = position.index(len) {
            return Ok(index);
        }
        self.needs_beginning()?;
        Err(Error::NoPosition {
            position,
            start: self.position(0),
            end: self.position(len),
        })
    }

    /// The index from which on it may have been that time, in TSC ticks; `None`: history begins
    /// later.
    ///
    /// # Errors
    /// When that may be in what is not decoded yet.
    pub fn index_at(&self, tsc: Tsc) -> Result<Option<u64>> {
        let index = self.history.index_at(tsc);
        // The time may equal that before the first stamp, because a repeated stamp is left out.
        let before = index.and_then(|index| index.checked_sub(1));
        if before.and_then(|before| self.history.time(before)).is_none() {
            self.needs_beginning()?;
        }
        Ok(index)
    }

    /// Checks that the beginning of the history is decoded.
    ///
    /// # Errors
    ///
    /// [`Error::Earlier`] if it is not decoded yet.
    pub fn needs_beginning(&self) -> Result<()> {
        match self.is_partial {
            true => Err(Error::Earlier),
            false => Ok(()),
        }
    }

    /// Older history is there to be decoded.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// All of its trace was decoded at once, from the start on.
    #[must_use]
    pub fn is_decoded_at_once(&self) -> bool {
        !self.from_end
    }

    /// Returns whether history that is not decoded yet has the beginning of a call.
    #[must_use]
    pub fn is_cut_off(&self, call: &Call) -> bool {
        self.is_partial && begins_unseen(call)
    }

    /// Returns the name of a call of the forest.
    ///
    /// If positions are counted from the end, its first instruction names it. Returns `None` if the
    /// name depends on history that is not decoded yet.
    #[must_use]
    pub fn name_of(&self, forest: &Forest, id: CallId) -> Option<CallName> {
        let call = forest.call(id);
        let begins = matches!(
            call.entered,
            Entered::Call { .. } | Entered::TailCall { .. } | Entered::Signal { .. }
        );
        if self.from_end && begins {
            return Some(CallName::FromEnd(self.history.len().saturating_sub(call.first)));
        }
        (!self.is_partial).then(|| CallName::Number(id.number()))
    }

    /// The call of this name; `None`: there is none.
    ///
    /// # Errors
    /// When it may be in what is not decoded yet.
    pub fn call_named(&self, forest: &Forest, name: CallName) -> Result<Option<CallId>> {
        match name {
            CallName::Number(number) => {
                self.needs_beginning()?;
                Ok(forest.id(number))
            }
            CallName::FromEnd(count) => {
                let first = self.index_of(Position::from_end(self.tid, count))?;
                Ok(forest.call_at(first).filter(|&id| forest.call(id).first == first))
            }
        }
    }

    /// Before which instructions history is missing, ascending, its start left out.
    #[must_use]
    pub fn gaps(&self) -> &[u64] {
        &self.gaps
    }
}

impl Process {
    /// Instruction `index` of a thread's history, decoded; `None`: its bytes are not known.
    pub(crate) fn decoded(&self, thread: &Thread, index: u64) -> Option<iced_x86::Instruction> {
        let executed = thread.history.instruction(index)?;
        self.decoded_at(thread.history.version(index), executed.pc, executed.len)
    }
}

/// A call whose beginning the history does not have: it may be before what is decoded.
pub(crate) fn begins_unseen(call: &Call) -> bool {
    call.first == 0
        || matches!(
            call.entered,
            Entered::Unknown | Entered::Resumed | Entered::Adopted
        )
}
