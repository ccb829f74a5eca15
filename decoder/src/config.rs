//! The machine and the settings with which a trace was made.

use backtrail_pt::{Avma, CpuModel, TimingParams};
use std::ops::Range;

/// The configuration of a trace. The default decodes without errata and without refined times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The processor, for its errata; `None`: no workarounds.
    pub cpu: Option<CpuModel>,
    /// Its clock parameters.
    pub timing: TimingParams,
    /// The IP filters of the trace (SDM volume 3, `IA32_RTIT_ADDRn_A/B`); at most
    /// [`Config::MAX_FILTERS`], the limit of the hardware interface.
    pub filters: Vec<AddressFilter>,
    /// The effect of an uncompressed return on the return stack.
    pub uncompressed_returns: UncompressedReturns,
    /// The place at which decoding resumes where the code does not fit the trace.
    pub resync: Resync,
}

/// The effect of an uncompressed near return, whose target is in a TIP packet, on the return stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UncompressedReturns {
    /// Pops the innermost call, as every near return does (SDM volume 3, "Indirect Transfer
    /// Compression for Returns (RET)"; so does perf).
    #[default]
    Pop,
    /// Keeps all calls, as in libipt; for comparisons with libipt.
    Keep,
}

/// The place at which decoding resumes where the code does not fit the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resync {
    /// The next packet with an address of the flow, as in libipt 2.3 and perf. Where another
    /// instruction than that of the code disabled tracing, the next TIP.PGE. In any case, no PSB
    /// after the flow is skipped.
    #[default]
    NextAddress,
    /// The next PSB after all packets that were read ahead, as in libipt 2.1; for comparisons with
    /// libipt.
    NextPsb,
}

impl Config {
    /// The most address filters: `IA32_RTIT_CTL` has fields for four.
    pub const MAX_FILTERS: usize = 4;
}

/// One IP filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressFilter {
    /// The addresses of the filter.
    pub range: Range<Avma>,
    /// The effect of the filter.
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
