//! Splits a processor's trace into threads by context switches and timestamps.
//!
//! The trace of a processor is decoded once, and cut into pieces wherever another thread could have
//! started. These are the places where tracing was disabled, or the flow was lost. A piece is
//! attributed to a thread only if that is certain. Either a timestamp in it is in an execution of
//! the thread, or all executions between the times around it are of that thread. These times are
//! stamps, and the ends of the parts that perf saved ([`AuxEnd`](crate::AuxEnd)). The idle task
//! runs no user code, and is skipped. Other pieces are counted and reported with a reason.

mod merge;
mod owner;
mod pieces;

pub(crate) use merge::merge;

use crate::aux_ends::AuxEnds;
use crate::decode_cache_pool::CacheScope;
use crate::engine::native::{FlowTimes, Native};
use crate::meter::{Meter, Metered};
use crate::switches::executions;
use crate::trace_tail::TraceTail;
use crate::{Canceled, Config, DecodeCachePool, Engine, Execution, Gap, History, Image, Switch};
use backtrail_pt::{Cpu, Pid, Tid};
use owner::Owners;
use pieces::{Cutter, Piece, SelectedImage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result for one processor's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuReport {
    /// The processor.
    pub cpu: Cpu,
    /// The number of instructions decoded.
    pub instructions: u64,
    /// The number of instructions attributed to a thread's history.
    pub attributed: u64,
    /// The number of decode errors as libipt counts them.
    pub errors: u64,
    /// The number of PSB packets at which decoding could start.
    pub psb_blocks: usize,
    /// The number of these made while a thread ran, by thread.
    pub psb_blocks_of: BTreeMap<Tid, usize>,
    /// The number of continuous executions by thread, including the idle task (thread 0).
    pub executions_of: BTreeMap<Tid, usize>,
    /// The flow that is in no history, by reason.
    pub unattributed: BTreeMap<UnattributedReason, Unattributed>,
    /// Losses of flow that are in no history, because no thread of the trace certainly ran.
    pub lost: Vec<Gap>,
}

impl CpuReport {
    /// Returns the number of executions of all threads.
    #[must_use]
    pub fn executions(&self) -> usize {
        self.executions_of.values().sum()
    }
}

/// Flow that could not be attributed to a thread of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unattributed {
    /// The number of instructions.
    pub instructions: u64,
    /// The number of uninterrupted stretches of flow.
    pub pieces: u64,
}

/// The reason why flow could not be attributed to a thread of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UnattributedReason {
    /// The trace has no time before it.
    NoTime,
    /// A context switch happened between the times around it.
    SwitchBetweenStamps,
    /// No switch record covers it.
    NoSwitch,
    /// A process that is not part of this trace ran.
    ForeignProcess(Pid),
    /// The timestamps in it belong to executions of two threads.
    Contradiction,
    /// The flow was decoded with the code of another process before a stamp determined its process.
    OtherCode,
}

/// A processor's trace, decoded and cut.
pub(crate) struct CpuTrace {
    cpu: Cpu,
    /// The whole trace as one history.
    history: History,
    pieces: Vec<Piece>,
    executions: Vec<Execution>,
    report: CpuReport,
}

/// A processor's trace before it is decoded.
pub(crate) struct CpuInput<'a> {
    pub cpu: Cpu,
    pub trace: TraceTail<'a>,
    pub switches: &'a [Switch],
    pub aux_ends: AuxEnds,
    pub meter: Meter<'a>,
}

/// Decodes a processor's trace with the code of the processes that ran, by an engine or, for
/// `None`, by the native one.
pub(crate) fn run(
    input: &CpuInput<'_>,
    images: &BTreeMap<Pid, Arc<Image>>,
    config: &Config,
    engine: Option<&dyn Engine>,
    caches: &DecodeCachePool,
) -> Result<CpuTrace, Canceled> {
    let (cpu, trace) = (input.cpu, input.trace);
    let executions = executions(input.switches);
    let mut report = CpuReport {
        cpu,
        ..CpuReport::default()
    };
    for execution in &executions {
        *report.executions_of.entry(execution.tid).or_default() += 1;
    }
    let owners = Owners::new(&executions);
    let memory = SelectedImage::new(images);
    let disabled = Native::disabled_intervals(trace.bytes, config);
    let flow_times = match memory.changes() {
        true => Native::flow_times(trace.bytes, trace.offset as u64, config),
        false => FlowTimes::default(),
    };
    let mut cutter = Cutter::new(&owners, &input.aux_ends, &memory, &disabled, flow_times);
    let mut sink = Metered {
        sink: &mut cutter,
        offset: trace.offset as u64,
        meter: &input.meter,
    };
    match engine {
        // The caches of changing code are valid at one time only.
        None if memory.changes() => Native.decode(trace.bytes, &memory, config, &mut sink),
        None => caches.with_cache(CacheScope::of_all(images, config), |cache| {
            Native.decode_with_cache(trace.bytes, &memory, config, &mut sink, cache)
        }),
        Some(engine) => engine.decode(trace.bytes, &memory, config, &mut sink),
    }?;
    let (history, pieces) = cutter.finish();
    let psbs = Native::psb_stamps(trace.bytes, config);
    report.psb_blocks = psbs.len();
    for execution in psbs.into_iter().flatten().filter_map(|at| owners.at(at)) {
        *report.psb_blocks_of.entry(execution.tid).or_default() += 1;
    }
    (report.instructions, report.errors) = (history.len(), history.errors());
    Ok(CpuTrace {
        cpu,
        history,
        pieces,
        executions,
        report,
    })
}
