//! Decodes the buffers of one thread to its history.

use crate::decode_cache_pool::CacheScope;
use crate::engine::native::{FlowTimes, Native};
use crate::image::VersionedImage;
use crate::meter::{Meter, Metered};
use crate::parallel::{ParallelDecoder, ParallelError};
use crate::trace_tail::TraceTail;
use crate::{
    Canceled, DecodeCachePool, Decoder, Event, Forest, GapCause, History, HistoryBuilder, Image, PathIdx,
    PathTable, Sink, Version,
};
use backtrail_pt::{Avma, Cofi, Tid};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

/// A buffer of a thread.
pub(super) struct Buffer<'a> {
    pub trace: TraceTail<'a>,
    /// The code of its process.
    pub image: &'a Arc<Image>,
    pub meter: Meter<'a>,
}

/// Decodes the buffers of a thread, with gaps between them. Also returns the forest, if it was
/// built with the history.
pub(super) fn decode(
    decoder: &Decoder<'_>,
    caches: &DecodeCachePool,
    tid: Tid,
    buffers: &[Buffer<'_>],
) -> Result<(History, Option<Forest>), Canceled> {
    if let [buffer] = buffers
        && let Some(parallel_decoder) = parallel_decoder(decoder, tid, buffer)
    {
        let functions = (decoder.functions)(tid);
        let mut builder = HistoryBuilder::new(tid);
        builder.reserve(buffer.trace.bytes.len());
        match parallel_decoder.decode(builder, functions, caches, decoder.jobs, decoder.segment) {
            Ok(decoded) => return Ok(decoded),
            Err(ParallelError::Canceled) => return Err(Canceled),
            // Only a sequential decode determines the flow after this PSB.
            Err(ParallelError::Discontinuous) => {}
        }
    }
    let mut builder = HistoryBuilder::new(tid);
    builder.reserve(buffers.iter().map(|buffer| buffer.trace.bytes.len()).sum());
    for (number, buffer) in buffers.iter().enumerate() {
        if number > 0 {
            // The execution between the buffers is unknown.
            builder.event(Event::Lost {
                cause: GapCause::NoTrace,
                offset: 0,
            });
        }
        add(decoder, caches, &mut builder, tid, buffer)?;
    }
    Ok((builder.finish(), None))
}

/// Returns a parallel decoder for a buffer; `None`: it must be decoded sequentially.
pub(super) fn parallel_decoder<'a>(
    decoder: &'a Decoder<'_>,
    tid: Tid,
    buffer: &'a Buffer<'_>,
) -> Option<ParallelDecoder<'a>> {
    let is_native = decoder.engine.is_none();
    let pays = decoder.jobs.get() > 1 && buffer.trace.bytes.len() / 2 >= decoder.segment;
    let changes = || VersionedImage::is_needed(buffer.image, tid);
    (is_native && pays && !changes()).then_some(ParallelDecoder {
        trace: buffer.trace,
        image: buffer.image,
        config: decoder.config,
        meter: &buffer.meter,
    })
}

/// Decodes a buffer sequentially and adds it to a history.
fn add(
    decoder: &Decoder<'_>,
    caches: &DecodeCachePool,
    builder: &mut HistoryBuilder,
    tid: Tid,
    buffer: &Buffer<'_>,
) -> Result<(), Canceled> {
    let code = VersionedImage::new(buffer.image, tid);
    let (trace, config, offset) = (buffer.trace.bytes, decoder.config, buffer.trace.offset as u64);
    let is_timed = code.as_ref().is_some_and(VersionedImage::is_timed);
    let mut sink = Metered {
        sink: &mut VersionedSink {
            builder,
            code: code.as_ref(),
            times: is_timed.then(|| Native::flow_times(trace, offset, config)),
        },
        offset,
        meter: &buffer.meter,
    };
    match (&code, decoder.engine) {
        (Some(code), engine) => engine.unwrap_or(&Native).decode(trace, code, config, &mut sink),
        (None, Some(engine)) => engine.decode(trace, &**buffer.image, config, &mut sink),
        (None, None) => {
            let scope = CacheScope::of_process(buffer.image, config);
            caches.with_cache(scope, |cache| {
                Native.decode_with_cache(trace, &**buffer.image, config, &mut sink, cache)
            })
        }
    }
}

/// A sink for a thread's history. If the code changes, it selects the version where flow starts.
struct VersionedSink<'a> {
    builder: &'a mut HistoryBuilder,
    code: Option<&'a VersionedImage<'a>>,
    /// The times of the flow, if the version depends on them.
    times: Option<FlowTimes>,
}

impl VersionedSink<'_> {
    /// Returns the versions that flow from an offset on may be of.
    fn versions_at(&self, code: &VersionedImage<'_>, offset: u64) -> RangeInclusive<Version> {
        match &self.times {
            Some(times) => {
                let (after, before) = times.around(offset);
                code.versions_between(after, before)
            }
            None => {
                let version = code.version_at(offset);
                version..=version
            }
        }
    }
}

impl Sink for VersionedSink<'_> {
    fn begin(&mut self) {
        self.builder.begin();
    }

    fn paths(&mut self, table: &PathTable<'_>, executed: &[PathIdx]) {
        self.builder.paths(table, executed);
    }

    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.builder.instruction(at, len, cofi);
    }

    fn event(&mut self, event: Event) {
        if let (Some(code), Event::Sync { offset } | Event::FlowBegins { offset }) = (self.code, &event)
            && let Some(changed) = code.go_to(self.versions_at(code, *offset))
        {
            self.builder.change_code(code.version(), &changed);
        }
        let event = match (event, self.code) {
            (Event::Lost { cause, offset }, Some(code)) => Event::Lost {
                cause: cause.in_code(code),
                offset,
            },
            (event, _) => event,
        };
        self.builder.event(event);
    }

    fn progress(&mut self, offset: u64) -> ControlFlow<()> {
        self.builder.progress(offset)
    }
}
