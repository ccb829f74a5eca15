//! The open events of a recording, before it begins.

use crate::clock::{monotonic, thread_time};
use crate::event::SampledEvent;
use crate::heap;
use crate::kernel_walker::KernelWalker;
use crate::options::{StackMethod, Target};
use crate::reader::ReaderThread;
use crate::sampler::{Rings, Sampler, SamplerOptions};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The memory of the tables in the kernel.
const KERNEL_TABLE_BUDGET: usize = 32 << 20;

/// The eBPF programs, or the reason why there are none.
pub(crate) type Walker = std::result::Result<KernelWalker, String>;

/// The wish for events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventOptions<'a> {
    /// The programs and events.
    pub sampler: SamplerOptions<'a>,
    /// The way in which stacks are walked.
    pub stack_method: StackMethod,
    /// The processor time that recording may take, in percent of all processors.
    pub cpu_budget: f64,
}

/// Disabled events, the thread that reads their rings, and the programs that walk stacks.
#[derive(Debug)]
pub(crate) struct OpenEvents {
    pub sampler: Arc<Sampler>,
    pub reader: ReaderThread,
    pub walker: Walker,
    pub frequency: u64,
    pub cpu_budget: f64,
    /// Sentences about events that are missing.
    pub notes: Vec<String>,
    /// The processor time that opening took.
    pub opening: Duration,
}

impl OpenEvents {
    /// Opens events.
    ///
    /// # Errors
    ///
    /// Those of [`Sampler::open`], and [`Error::NoEbpf`].
    pub fn open(options: &EventOptions<'_>) -> Result<Self> {
        let began = thread_time();
        let (sampler, mut rings) = Sampler::open(&options.sampler)?;
        let walker = attach_walker(options, &sampler, &mut rings)?;
        heap::return_free_pages();
        Ok(Self {
            notes: notes(options.sampler.events, &sampler),
            sampler,
            reader: ReaderThread::start(rings, monotonic)?,
            walker,
            frequency: options.sampler.frequency,
            cpu_budget: options.cpu_budget,
            opening: thread_time().saturating_sub(began),
        })
    }
}

/// Attaches eBPF programs that walk stacks.
fn attach_walker(options: &EventOptions<'_>, sampler: &Sampler, rings: &mut Rings) -> Result<Walker> {
    let budget = match options.sampler.target {
        Target::All | Target::Cgroup(_) => KERNEL_TABLE_BUDGET,
        Target::Process(_) | Target::Program(_) => KERNEL_TABLE_BUDGET / 2,
    };
    let is_wanted = options.stack_method != StackMethod::Copy && sampler.walked_events().next().is_some();
    let attached = match is_wanted {
        true => KernelWalker::attach(sampler, rings, budget),
        false => Err("not asked for".to_owned()),
    };
    match attached {
        Err(reason) if options.stack_method == StackMethod::Ebpf => Err(Error::NoEbpf(reason)),
        attached => Ok(attached),
    }
}

/// Returns sentences about events that this machine or user cannot sample.
fn notes(wanted: &[SampledEvent], sampler: &Sampler) -> Vec<String> {
    let mut notes = Vec::new();
    if !sampler.has_kernel() {
        notes.push("the kernel was not sampled, because this user may not do that".to_owned());
    }
    if wanted.contains(&SampledEvent::Cycles) && !sampler.events().contains(&SampledEvent::Cycles) {
        notes
            .push("this machine does not count cycles; the samples are of processor time instead".to_owned());
    }
    let has_wakeups = |event: &SampledEvent| matches!(event, SampledEvent::Wakeups(_));
    if wanted.contains(&SampledEvent::OffCpu) && !sampler.events().iter().any(has_wakeups) {
        notes.push(
            "the threads that end waits were not recorded, because this user may not read tracepoints"
                .to_owned(),
        );
    }
    notes
}
