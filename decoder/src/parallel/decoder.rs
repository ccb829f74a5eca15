//! The threads that decode one trace.

use super::error::ParallelError;
use super::forest_worker::ForestWorker;
use super::merge::HistoryMerger;
use super::scheduler::{Scheduler, Task};
use super::segment_output::{DecodedSegment, OutputRecorder, SegmentOutput};
use super::table_delta::PathTableCursor;
use crate::decode_cache_pool::CacheScope;
use crate::engine::native::{DecodeCache, Native};
use crate::meter::Meter;
use crate::trace_tail::TraceTail;
use crate::{Canceled, Config, DecodeCachePool, Forest, Functions, History, HistoryBuilder, Image};
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

/// The inputs of a parallel decode.
pub(crate) struct ParallelDecoder<'a> {
    pub trace: TraceTail<'a>,
    /// The code, which does not change.
    pub image: &'a Arc<Image>,
    pub config: &'a Config,
    pub meter: &'a Meter<'a>,
}

impl ParallelDecoder<'_> {
    /// Decodes the trace on `jobs` threads, in segments of at least `min_len` bytes. Returns its
    /// history, and its forest if functions are given.
    pub fn decode(
        &self,
        builder: HistoryBuilder,
        functions: Option<&dyn Functions>,
        pool: &DecodeCachePool,
        jobs: NonZeroUsize,
        min_len: usize,
    ) -> Result<(History, Option<Forest>), ParallelError> {
        let splitter = Native
            .psb_splitter(self.trace.bytes, self.config, min_len)
            .ok_or(ParallelError::Discontinuous)?;
        let resolver = Native
            .timestamp_resolver(self.config)
            .ok_or(ParallelError::Discontinuous)?;
        let scope = self.scope();
        let caches: Vec<DecodeCache> = (0..jobs.get()).map(|_| pool.take(&scope)).collect();
        let merger = HistoryMerger::new(builder, resolver, functions.is_some());
        let scheduler = Scheduler::new(splitter, merger, functions.map(ForestWorker::new), jobs);
        let mut engines = caches.into_iter().enumerate();
        let first = engines.next();
        thread::scope(|threads| {
            for (engine, cache) in engines {
                let scheduler = &scheduler;
                threads.spawn(move || self.work(engine, scheduler, cache, pool));
            }
            // This thread is the first.
            if let Some((engine, cache)) = first {
                self.work(engine, &scheduler, cache, pool);
            }
        });
        let (merger, worker) = scheduler.finish()?;
        let history = merger.finish();
        let forest = worker.map(|worker| worker.finish(&history));
        Ok((history, forest))
    }

    /// The work loop of a thread.
    fn work(&self, engine: usize, scheduler: &Scheduler<'_, '_>, cache: DecodeCache, pool: &DecodeCachePool) {
        let _alarm = PanicGuard(scheduler);
        let output = RefCell::new(SegmentOutput::default());
        let stopped = || scheduler.is_stopped() || self.meter.watch().is_canceled();
        let mut recorder = OutputRecorder::new(&output, self.trace.offset as u64, &stopped);
        let image = &**self.image;
        let decoder = Native.segment_decoder(self.trace.bytes, image, self.config, &mut recorder, cache);
        let Some(mut decoder) = decoder else {
            return scheduler.fail(ParallelError::Discontinuous);
        };
        let mut cursor = PathTableCursor::default();
        while let Some(task) = scheduler.next(engine == 0) {
            match task {
                Task::GrowForest(mut worker, delta) => match worker.grow(delta, self.meter.watch()) {
                    Ok(output) => scheduler.finish_forest_task(worker, output),
                    Err(error) => return scheduler.fail(error),
                },
                Task::Merge(mut merger, done) => {
                    let offset = done.to.unwrap_or(self.trace.bytes.len()) as u64;
                    let merged = merger.merge(*done);
                    match merged.and_then(|merged| self.report(offset).map(|()| merged)) {
                        Ok(merged) => scheduler.finish_merge(merger, merged),
                        Err(error) => return scheduler.fail(error),
                    }
                }
                Task::Decode(number, segment, mut empty) => {
                    let log = std::mem::take(&mut empty.log);
                    output.replace(empty);
                    let Ok((result, log)) = decoder.decode(&segment, log) else {
                        return scheduler.fail(ParallelError::Canceled);
                    };
                    let mut output = output.take();
                    output.log = log;
                    output.table_delta = Some(cursor.take_delta(&decoder.paths()));
                    let done = DecodedSegment {
                        engine,
                        output,
                        result,
                        to: segment.to,
                    };
                    scheduler.deliver(number, done);
                }
            }
        }
        pool.put(self.scope(), decoder.into_cache());
    }

    fn scope(&self) -> CacheScope {
        CacheScope::of_process(self.image, self.config)
    }

    fn report(&self, offset: u64) -> Result<(), ParallelError> {
        self.meter
            .report(offset)
            .map_err(|Canceled| ParallelError::Canceled)
    }
}

/// Stops the other threads if one panics, so that the panic propagates.
struct PanicGuard<'a, 'j, 't>(&'a Scheduler<'j, 't>);

impl Drop for PanicGuard<'_, '_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(ParallelError::Canceled);
        }
    }
}
