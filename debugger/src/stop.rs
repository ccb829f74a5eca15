//! The reason why a move ended.

use crate::watchpoint::WatchHit;
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
    /// At an access to a watched expression: before it in a move backward, after it in a move
    /// forward.
    Watchpoint {
        /// The number of the watchpoint; 0: a search for one write.
        number: u32,
        /// The access.
        hit: WatchHit,
    },
    /// The variables of a watched expression do not exist beyond this position.
    WatchScope {
        /// The number of the watchpoint.
        number: u32,
        /// The expression.
        expression: String,
        /// The function in which they exist.
        #[serde(skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
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
