//! Decodes whole traces to the histories and calls of their threads.

mod thread;

use crate::aux_ends::AuxEnds;
use crate::meter::Meter;
use crate::parallel::pool;
use crate::split::{self, CpuInput};
use crate::trace_tail::TraceTail;
use crate::{
    Canceled, Config, DecodeCachePool, Decoded, Engine, Forest, Functions, History, Image, Input, Watch,
};
use backtrail_pt::{Pid, Tid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use thread::Buffer;

/// Decodes traces. A new decoder uses one thread and decodes all of each trace, without calls.
///
/// # Examples
///
/// ```
/// use backtrail_decoder::{Config, Decoder};
/// use std::collections::BTreeMap;
/// use std::num::NonZeroUsize;
///
/// let config = Config::default();
/// let decoder = Decoder::new(&config).jobs(NonZeroUsize::MIN);
/// let decoded = decoder.decode(&[], &BTreeMap::new())?;
/// assert!(decoded.threads.is_empty());
/// # Ok::<(), backtrail_decoder::Canceled>(())
/// ```
#[derive(Clone, Copy)]
pub struct Decoder<'a> {
    pub(crate) config: &'a Config,
    /// Another engine; `None`: the native one.
    pub(crate) engine: Option<&'a dyn Engine>,
    jobs: NonZeroUsize,
    segment: usize,
    last: Option<u64>,
    functions: &'a (dyn Fn(Tid) -> Option<&'a dyn Functions> + Sync),
    caches: Option<&'a DecodeCachePool>,
    watch: Watch<'a>,
}

impl<'a> Decoder<'a> {
    /// A size that distributes evenly, but is large enough for the caches to fill.
    pub const SEGMENT: usize = 1 << 20;

    /// Returns a decoder for traces of this configuration.
    #[must_use]
    pub fn new(config: &'a Config) -> Self {
        Self {
            config,
            engine: None,
            jobs: NonZeroUsize::MIN,
            segment: Self::SEGMENT,
            last: None,
            functions: &|_| None,
            caches: None,
            watch: Watch::none(),
        }
    }

    /// Uses up to `jobs` threads. The result is the same.
    #[must_use]
    pub fn jobs(self, jobs: NonZeroUsize) -> Self {
        Self { jobs, ..self }
    }

    /// Sets the size in bytes of the segments that threads decode; the default is
    /// [`Self::SEGMENT`].
    #[must_use]
    pub fn segment(self, segment: usize) -> Self {
        Self { segment, ..self }
    }

    /// Decodes only about the last `last` bytes of each trace; `None`: all.
    #[must_use]
    pub fn last(self, last: Option<u64>) -> Self {
        Self { last, ..self }
    }

    /// Finds the calls of the threads for which `functions` returns the functions of their code.
    #[must_use]
    pub fn functions(self, functions: &'a (dyn Fn(Tid) -> Option<&'a dyn Functions> + Sync)) -> Self {
        Self { functions, ..self }
    }

    /// Takes decode caches from a pool, and returns them to it. Without one, caches are used only
    /// for one decode.
    #[must_use]
    pub fn caches(self, pool: &'a DecodeCachePool) -> Self {
        Self {
            caches: Some(pool),
            ..self
        }
    }

    /// Sets the observer of the progress, which can also cancel.
    #[must_use]
    pub fn watch(self, watch: Watch<'a>) -> Self {
        Self { watch, ..self }
    }

    /// Decodes with another engine, on one thread for each trace; to compare engines.
    #[must_use]
    pub fn engine(self, engine: &'a dyn Engine) -> Self {
        Self {
            engine: Some(engine),
            ..self
        }
    }

    /// Decodes all inputs. `images` are the processes whose threads are extracted from per-CPU
    /// traces.
    ///
    /// A thread with several inputs gets one history, in the order of the inputs, with gaps
    /// between.
    ///
    /// # Errors
    ///
    /// Only if [`Self::watch`] canceled the decode. Trace that cannot be decoded becomes a gap.
    pub fn decode(&self, inputs: &[Input], images: &BTreeMap<Pid, Arc<Image>>) -> Result<Decoded, Canceled> {
        let own = DecodeCachePool::default();
        let caches = self.caches.unwrap_or(&own);
        let done = AtomicU64::new(0);
        let tails: Vec<TraceTail<'_>> = inputs
            .iter()
            .map(|input| TraceTail::new(input.trace(), self.last))
            .collect();
        let total = tails.iter().map(|tail| tail.bytes.len() as u64).sum();
        let meter = || Meter::new(&self.watch, &done, total);
        let mut threads: BTreeMap<Tid, Vec<Buffer<'_>>> = BTreeMap::new();
        let mut cpus = Vec::new();
        for (input, trace) in inputs.iter().zip(tails) {
            match input {
                Input::Thread { tid, image, .. } => threads.entry(*tid).or_default().push(Buffer {
                    trace,
                    image,
                    meter: meter(),
                }),
                Input::Cpu {
                    cpu,
                    switches,
                    aux_ends,
                    ..
                } => cpus.push(CpuInput {
                    cpu: *cpu,
                    trace,
                    switches,
                    aux_ends: AuxEnds::new(aux_ends),
                    meter: meter(),
                }),
            }
        }
        // Long traces use all threads, one trace after another. Each of the others uses one thread.
        let (long, short): (Vec<_>, Vec<_>) = threads.into_iter().partition(|(tid, buffers)| {
            matches!(&**buffers, [buffer] if thread::parallel_decoder(self, *tid, buffer).is_some())
        });
        let thread = |(tid, buffers): (Tid, Vec<Buffer<'_>>)| thread::decode(self, caches, tid, &buffers);
        let mut found = long.into_iter().map(thread).collect::<Result<Vec<_>, _>>()?;
        found.extend(
            pool::map(self.jobs, short, thread)
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?,
        );
        let cpus = pool::map(self.jobs, cpus, |input| {
            split::run(&input, images, self.config, self.engine, caches)
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
        self.find_calls(&mut decoded)?;
        Ok(decoded)
    }

    /// Finds the wanted calls that were not found while decoding.
    fn find_calls(&self, decoded: &mut Decoded) -> Result<(), Canceled> {
        for history in &decoded.threads {
            let tid = history.tid();
            if let Some(functions) = (self.functions)(tid)
                && !decoded.forests.contains_key(&tid)
            {
                decoded
                    .forests
                    .insert(tid, Forest::build(history, functions, &self.watch)?);
            }
        }
        Ok(())
    }
}
