//! The program counter of a thread at a position.

use crate::session::{Session, Thread};
use backtrail_pt::Avma;

/// Returns the program counter before instruction `index`; at the end of history, as the core or
/// the trace has it.
#[must_use]
pub fn pc_at(session: &Session, thread: &Thread, index: u64) -> Option<Avma> {
    if index < thread.history.len() {
        return thread.history.pc(index);
    }
    session
        .end_registers(thread.tid)
        .map(|registers| registers.pc())
        .or_else(|| thread.history.pc(index))
}
