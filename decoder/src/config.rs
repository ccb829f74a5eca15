//! What a decoder must be told of the machine and the settings that made the trace.

use backtrail_pt::{Avma, CpuModel, TimingParams};
use std::ops::Range;

/// How the trace was made. The default knows nothing, which decodes, without time refinement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The processor, for its errata; `None`: none are worked around.
    pub cpu: Option<CpuModel>,
    /// Its clocks.
    pub timing: TimingParams,
    /// The IP filters the trace was made with (SDM volume 3, `IA32_RTIT_ADDRn_A/B`); at most
    /// [`Config::MAX_FILTERS`], as many as the hardware's interface has.
    pub filters: Vec<AddressFilter>,
    /// What a return does to the calls when its packet tells where it goes.
    pub told_returns: ToldReturns,
}

/// What a near return that is not compressed, so that TIP tells its target, does to the calls that compressed ones return from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToldReturns {
    /// It takes the innermost away, as each near return does (SDM volume 3, "Indirect Transfer Compression for Returns (RET)"; so does perf).
    #[default]
    Pop,
    /// It leaves all, as in libipt: to compare with that.
    Keep,
}

impl Config {
    /// The most address filters there can be: `IA32_RTIT_CTL` has fields for four.
    pub const MAX_FILTERS: usize = 4;
}

/// One IP filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressFilter {
    /// The addresses it is about.
    pub range: Range<Avma>,
    /// What happens there.
    pub kind: FilterKind,
}

/// `IA32_RTIT_CTL.ADDRn_CFG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// Only code in the range is traced.
    Filter,
    /// Tracing stops when code in the range runs.
    Stop,
}
