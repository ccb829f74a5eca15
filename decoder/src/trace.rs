//! All of a trace: the histories of its threads.

mod tail;
mod thread;

use crate::meter::Meter;
use crate::parallel::pool;
use crate::split::{self, CpuReport};
use crate::{Bytes, Canceled, Config, Engine, Forest, Functions, History, Image, Knowledge, Switch, Watch};
use backtrail_pt::{Cpu, Pid, Tid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
pub(crate) use tail::Tail;
use thread::Buffer;

/// One buffer of PT bytes and what is known of it.
#[derive(Clone)]
pub enum Input {
    /// The trace of one thread.
    Thread {
        /// The thread.
        tid: Tid,
        /// Its packets.
        trace: Bytes,
        /// The code of its process.
        image: Arc<Image>,
    },
    /// The trace of one processor, which ran any threads.
    Cpu {
        /// The processor.
        cpu: Cpu,
        /// Its packets.
        trace: Bytes,
        /// Its context switches, in order.
        switches: Vec<Switch>,
    },
}

/// The threads of a trace.
#[derive(Debug, Default)]
pub struct Decoded {
    /// One history a thread, by thread.
    pub threads: Vec<History>,
    /// The calls of the threads for which [`Plan::functions`] tells functions.
    pub forests: BTreeMap<Tid, Forest>,
    /// One report a processor, where the trace is by processor.
    pub cpus: Vec<CpuReport>,
}

/// How a trace is decoded.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// How it was made.
    pub config: &'a Config,
    /// By what.
    pub engine: &'a dyn Engine,
    /// By how many threads at most.
    pub jobs: NonZeroUsize,
    /// How many bytes a thread takes at once of a trace that several decode.
    pub segment: usize,
    /// Of each trace only about so many bytes, the newest; `None`: all of them.
    pub last: Option<u64>,
    /// Where functions lie in the code of a thread; `None`: its calls are not wanted.
    pub functions: &'a (dyn Fn(Tid) -> Option<&'a dyn Functions> + Sync),
    /// What was learnt of the code, and where what is learnt is kept; `None`: it is for this decode alone.
    pub knowledge: Option<&'a Knowledge>,
}

impl<'a> Plan<'a> {
    /// Few enough to share a trace out evenly, and so many that a thread knows most of the code when it begins.
    pub const SEGMENT: usize = 1 << 20;

    /// By one thread.
    #[must_use]
    pub fn new(config: &'a Config, engine: &'a dyn Engine) -> Self {
        Self {
            config,
            engine,
            jobs: NonZeroUsize::MIN,
            segment: Self::SEGMENT,
            last: None,
            functions: &|_| None,
            knowledge: None,
        }
    }
}

/// Decodes all inputs by one thread: see [`decode_by`].
pub fn decode(
    inputs: &[Input],
    images: &BTreeMap<Pid, Arc<Image>>,
    config: &Config,
    engine: &dyn Engine,
    watch: &Watch<'_>,
) -> Result<Decoded, Canceled> {
    decode_by(&Plan::new(config, engine), inputs, images, watch)
}

/// Decodes all inputs. `images` are the processes whose threads are wanted out of per-CPU traces.
///
/// A thread with several inputs gets one history, in the order of the inputs, with a gap between.
pub fn decode_by(
    plan: &Plan<'_>,
    inputs: &[Input],
    images: &BTreeMap<Pid, Arc<Image>>,
    watch: &Watch<'_>,
) -> Result<Decoded, Canceled> {
    let own = Knowledge::default();
    let knowledge = plan.knowledge.unwrap_or(&own);
    let done = AtomicU64::new(0);
    let tails: Vec<Tail<'_>> = inputs
        .iter()
        .map(|input| Tail::new(input.trace(), plan.last))
        .collect();
    let total = tails.iter().map(|tail| tail.bytes.len() as u64).sum();
    let meter = || Meter::new(watch, &done, total);
    let mut threads: BTreeMap<Tid, Vec<Buffer<'_>>> = BTreeMap::new();
    let mut cpus = Vec::new();
    for (input, trace) in inputs.iter().zip(tails) {
        match input {
            Input::Thread { tid, image, .. } => threads.entry(*tid).or_default().push(Buffer {
                trace,
                image,
                meter: meter(),
            }),
            Input::Cpu { cpu, switches, .. } => cpus.push((*cpu, trace, switches, meter())),
        }
    }
    // What is long by itself takes all threads, one after the other; of the rest, each takes one.
    let (long, short): (Vec<_>, Vec<_>) = threads.into_iter().partition(
        |(tid, buffers)| matches!(&**buffers, [buffer] if thread::crew(plan, *tid, buffer).is_some()),
    );
    let thread = |(tid, buffers): (Tid, Vec<Buffer<'_>>)| thread::decode(plan, knowledge, tid, &buffers);
    let mut found = long.into_iter().map(thread).collect::<Result<Vec<_>, _>>()?;
    found.extend(
        pool::map(plan.jobs, short, thread)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?,
    );
    let cpus = pool::map(plan.jobs, cpus, |(cpu, trace, switches, meter)| {
        split::run(cpu, trace, switches, images, plan, knowledge, &meter)
    });
    let mut decoded = Decoded::default();
    for (history, forest) in found {
        decoded
            .forests
            .extend(forest.map(|forest| (history.tid(), forest)));
        decoded.threads.push(history);
    }
    split::join(cpus.into_iter().collect::<Result<_, _>>()?, images, &mut decoded);
    decoded.threads.sort_by_key(History::tid);
    for history in &decoded.threads {
        let tid = history.tid();
        if let Some(functions) = (plan.functions)(tid)
            && !decoded.forests.contains_key(&tid)
        {
            decoded
                .forests
                .insert(tid, Forest::build(history, functions, watch)?);
        }
    }
    Ok(decoded)
}

impl Input {
    /// How many bytes of packets it has.
    #[must_use]
    pub fn trace_len(&self) -> u64 {
        self.trace().len() as u64
    }

    /// The packets.
    fn trace(&self) -> &[u8] {
        match self {
            Self::Thread { trace, .. } | Self::Cpu { trace, .. } => (**trace).as_ref(),
        }
    }
}
