//! The reason why a move ended.

use serde::Serialize;

/// The reason why a move ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReason {
    /// The verb is done.
    Done,
    /// Before the instruction of a breakpoint.
    Breakpoint {
        /// Its number.
        number: u32,
    },
    /// At the first instruction there is.
    HistoryStart,
    /// The end of the thread's history, after its last instruction.
    HistoryEnd {
        /// The history ends with this crash, before the faulting instruction.
        crash: Option<String>,
    },
    /// History is missing just before the position.
    Gap {
        /// Why.
        cause: String,
    },
    /// The user stopped the search; nothing moved.
    Canceled,
}
