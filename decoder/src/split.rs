//! A processor's trace split into threads.

use backtrail_pt::{Cpu, Pid, Tid};
use std::collections::BTreeMap;

/// What became of one processor's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuReport {
    /// The processor.
    pub cpu: Cpu,
    /// Instructions decoded of it.
    pub instructions: u64,
    /// Those that a thread's history has.
    pub attributed: u64,
    /// Decode errors as libipt counts them.
    pub errors: u64,
    /// PSB packets found.
    pub psb_blocks: usize,
    /// Of those, how many began while a thread ran, by thread.
    pub psb_blocks_of: BTreeMap<Tid, usize>,
    /// Continuous executions by thread, the idle task (thread 0) included.
    pub executions_of: BTreeMap<Tid, usize>,
    /// What no history has, by reason.
    pub unattributed: BTreeMap<UnattributedReason, Unattributed>,
}

impl CpuReport {
    /// Continuous executions of all threads.
    #[must_use]
    pub fn executions(&self) -> usize {
        self.executions_of.values().sum()
    }
}

/// Flow that could not be given to a thread of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unattributed {
    /// Instructions.
    pub instructions: u64,
    /// Stretches of flow without interruption.
    pub runs: u64,
}

/// Why flow could not be given to a thread of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnattributedReason {
    /// The trace has no time stamp before it.
    NoTime,
    /// A context switch happened between the time stamps around it.
    SwitchBetweenStamps,
    /// No switch record says who ran.
    NoSwitch,
    /// A process that is not of this trace ran.
    ForeignProcess(Pid),
    /// The time stamps in it are of two threads' executions.
    Contradiction,
}

use crate::trace::Span;
use crate::{Canceled, Config, Decoded, Engine, Image, Switch};
use std::sync::Arc;

/// A processor's trace, decoded.
pub(crate) struct CpuTrace {
    report: CpuReport,
}

pub(crate) fn run(
    cpu: Cpu,
    _trace: &[u8],
    switches: &[Switch],
    _images: &BTreeMap<Pid, Arc<Image>>,
    _config: &Config,
    _engine: &dyn Engine,
    _progress: Span<'_>,
) -> Result<CpuTrace, Canceled> {
    let mut report = CpuReport {
        cpu,
        ..CpuReport::default()
    };
    for execution in crate::switches::executions(switches) {
        *report.executions_of.entry(execution.tid).or_default() += 1;
    }
    Ok(CpuTrace { report })
}

pub(crate) fn join(cpus: Vec<CpuTrace>, _images: &BTreeMap<Pid, Arc<Image>>, decoded: &mut Decoded) {
    decoded.cpus = cpus.into_iter().map(|cpu| cpu.report).collect();
}
