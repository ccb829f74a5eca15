//! A processor's trace split into threads, by context switches and time stamps.
//!
//! The trace of a processor is decoded once, and cut into pieces wherever another thread could have
//! come: where tracing was off, and where flow was lost. A piece belongs to a thread when that is
//! certain: a time stamp in it lies in an execution of the thread, or all executions between the
//! stamps around it are of that one thread. The idle task runs no user code, and is passed over.
//! What is not certain is given to nobody, counted, and reported with its reason.

mod join;
mod owner;
mod pieces;
mod psb;

pub(crate) use join::join;

use crate::engine::native::Native;
use crate::knowledge::Scope;
use crate::meter::{Meter, Metered};
use crate::switches::executions;
use crate::trace::Tail;
use crate::{Canceled, Execution, Gap, History, Image, Knowledge, Plan, Switch};
use backtrail_pt::{Cpu, Pid, Tid};
use owner::Owners;
use pieces::{Cutter, Piece, Selected};
use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// PSB packets at which decoding could begin.
    pub psb_blocks: usize,
    /// Of those, how many were made while a thread ran, by thread.
    pub psb_blocks_of: BTreeMap<Tid, usize>,
    /// Continuous executions by thread, the idle task (thread 0) included.
    pub executions_of: BTreeMap<Tid, usize>,
    /// What no history has, by reason.
    pub unattributed: BTreeMap<UnattributedReason, Unattributed>,
    /// Where flow was lost that was no thread's of the trace, or not certainly: no history has these.
    pub lost: Vec<Gap>,
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
    pub pieces: u64,
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
    /// It was decoded with the code of another process before a stamp told whose it is.
    OtherCode,
}

/// A processor's trace, decoded and cut.
pub(crate) struct CpuTrace {
    cpu: Cpu,
    /// All of it, as if it were one thread's.
    history: History,
    pieces: Vec<Piece>,
    executions: Vec<Execution>,
    report: CpuReport,
}

/// Decodes a processor's trace, with the code of the process that runs.
pub(crate) fn run(
    cpu: Cpu,
    trace: Tail<'_>,
    switches: &[Switch],
    images: &BTreeMap<Pid, Arc<Image>>,
    plan: &Plan<'_>,
    knowledge: &Knowledge,
    meter: &Meter<'_>,
) -> Result<CpuTrace, Canceled> {
    let executions = executions(switches);
    let mut report = CpuReport {
        cpu,
        ..CpuReport::default()
    };
    for execution in &executions {
        *report.executions_of.entry(execution.tid).or_default() += 1;
    }
    let owners = Owners::new(&executions);
    let memory = Selected::new(images);
    let pauses = Native::pauses(trace.bytes, plan.config);
    let mut cutter = Cutter::new(&owners, &memory, &pauses);
    let mut sink = Metered {
        sink: &mut cutter,
        offset: trace.offset as u64,
        meter,
    };
    match plan.engine.native() {
        Some(native) => knowledge.with(Scope::of_all(images, plan.config), |learnt| {
            native.decode_knowing(trace.bytes, &memory, plan.config, &mut sink, learnt)
        }),
        None => plan.engine.decode(trace.bytes, &memory, plan.config, &mut sink),
    }?;
    let (history, pieces) = cutter.finish();
    let psbs = psb::stamps(trace.bytes);
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
