//! The functions of which a history has complete calls.

use crate::calls::Calls;
use crate::error::Result;
use backtrail_decoder::{Call, CallId, Entered, Left, Stage, Watch};
use backtrail_pt::Avma;
use rustc_hash::FxHashMap;

/// The number of calls between two checks for cancellation.
const OFTEN: usize = 4096;

/// The complete calls of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteCalls {
    /// The entry of the function.
    pub function: Avma,
    /// The newest call.
    pub newest: CallId,
    /// The number of calls.
    pub calls: u64,
}

impl Calls<'_> {
    /// Returns the functions that were called and that returned, those with the newest calls first.
    /// At most `functions` are returned, and the newest `counted` calls are read.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn complete(
        &self,
        (functions, counted): (usize, usize),
        watch: &Watch<'_>,
    ) -> Result<Vec<CompleteCalls>> {
        let forest = self.forest();
        let mut found: Vec<CompleteCalls> = Vec::new();
        let mut numbers: FxHashMap<Avma, usize> = FxHashMap::default();
        for (at, newest) in forest.ids().rev().take(counted).enumerate() {
            if at % OFTEN == 0 {
                watch.report(Stage::Measure, at as u64, forest.len() as u64)?;
            }
            let call = forest.call(newest);
            if !is_complete(&call) {
                continue;
            }
            let function = call.function;
            if let Some(known) = numbers.get(&function).and_then(|number| found.get_mut(*number)) {
                known.calls += 1;
            } else if found.len() < functions {
                let _ = numbers.insert(function, found.len());
                found.push(CompleteCalls {
                    function,
                    newest,
                    calls: 1,
                });
            }
        }
        Ok(found)
    }
}

/// Returns whether the history has a call from its first instruction to its return.
fn is_complete(call: &Call) -> bool {
    matches!(call.entered, Entered::Call { .. } | Entered::TailCall { .. }) && call.left == Left::Return
}
