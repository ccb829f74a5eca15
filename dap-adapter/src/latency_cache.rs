//! The call latencies that the client requested last, from which it reads page by page.

use backtrail_debugger::latency::Latencies;
use serde::Deserialize;

/// The latencies of a function, with the arguments of the request that measured them.
pub struct CachedLatencies {
    /// The function, as the client named it.
    pub function: String,
    /// Whether the client requested lengths in instructions.
    pub instructions: bool,
    /// The order of the calls.
    pub order: Order,
    /// Whether the trace has no time for these calls.
    pub no_time: bool,
    /// The latencies.
    pub latencies: Latencies,
}

/// The order of calls in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By time, thread by thread.
    #[default]
    Time,
    /// The longest first.
    Length,
}
