//! Decodes a whole trace to the histories of its threads.

mod thread;

use crate::meter::Meter;
use crate::parallel::pool;
use crate::split::{self, CpuReport};
use crate::trace_tail::TraceTail;
use crate::{Bytes, Canceled, Config, DecodeCachePool, Engine, Forest, History, Image, Plan, Switch, Watch};
use backtrail_pt::{Cpu, Pid, Tid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use thread::Buffer;

/// A buffer of PT bytes with its metadata.
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
    /// The histories, by thread.
    pub threads: Vec<History>,
    /// The calls of the threads for which [`Plan::functions`] returns functions.
    pub forests: BTreeMap<Tid, Forest>,
    /// The reports by processor, if the trace is per processor.
    pub cpus: Vec<CpuReport>,
}

/// Decodes all inputs on one thread: see [`decode_by`].
pub fn decode(
    inputs: &[Input],
    images: &BTreeMap<Pid, Arc<Image>>,
    config: &Config,
    engine: &dyn Engine,
    watch: &Watch<'_>,
) -> Result<Decoded, Canceled> {
    decode_by(&Plan::new(config, engine), inputs, images, watch)
}

/// Decodes all inputs. `images` are the processes whose threads are extracted from per-CPU traces.
///
/// A thread with several inputs gets one history, in the order of the inputs, with gaps between.
pub fn decode_by(
    plan: &Plan<'_>,
    inputs: &[Input],
    images: &BTreeMap<Pid, Arc<Image>>,
    watch: &Watch<'_>,
) -> Result<Decoded, Canceled> {
    let own = DecodeCachePool::default();
    let caches = plan.caches.unwrap_or(&own);
    let done = AtomicU64::new(0);
    let tails: Vec<TraceTail<'_>> = inputs
        .iter()
        .map(|input| TraceTail::new(input.trace(), plan.last))
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
    // Long traces use all threads, one trace after another. Each of the others uses one thread.
    let (long, short): (Vec<_>, Vec<_>) = threads.into_iter().partition(
        |(tid, buffers)| matches!(&**buffers, [buffer] if thread::parallel_decoder(plan, *tid, buffer).is_some()),
    );
    let thread = |(tid, buffers): (Tid, Vec<Buffer<'_>>)| thread::decode(plan, caches, tid, &buffers);
    let mut found = long.into_iter().map(thread).collect::<Result<Vec<_>, _>>()?;
    found.extend(
        pool::map(plan.jobs, short, thread)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?,
    );
    let cpus = pool::map(plan.jobs, cpus, |(cpu, trace, switches, meter)| {
        split::run(cpu, trace, switches, images, plan, caches, &meter)
    });
    let mut decoded = Decoded::default();
    for (history, forest) in found {
        decoded
            .forests
            .extend(forest.map(|forest| (history.tid(), forest)));
        decoded.threads.push(history);
    }
    let (threads, cpus) = split::merge(cpus.into_iter().collect::<Result<_, _>>()?, images);
    decoded.threads.extend(threads);
    decoded.cpus = cpus;
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
    /// Returns the number of packet bytes.
    #[must_use]
    pub fn trace_len(&self) -> u64 {
        self.trace().len() as u64
    }

    /// Returns the packets.
    fn trace(&self) -> &[u8] {
        match self {
            Self::Thread { trace, .. } | Self::Cpu { trace, .. } => (**trace).as_ref(),
        }
    }
}
