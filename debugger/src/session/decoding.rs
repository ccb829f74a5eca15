//! Decodes a session's traces: at first only what came last, the rest when it is asked for.

use super::SymbolFunctions;
use backtrail_decoder::{
    Canceled, Config, DecodeCachePool, Decoded, Decoder, Engine, Functions, Image, Input, Progress, Stage,
    Watch,
};
use backtrail_pt::{Pid, Tid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The traces to decode, and the options.
pub(super) struct DecodeInput {
    pub inputs: Vec<Input>,
    pub images: BTreeMap<Pid, Arc<Image>>,
    pub config: Config,
    /// Another engine; `None`: the decoder's own.
    pub engine: Option<&'static dyn Engine>,
    pub jobs: Option<NonZeroUsize>,
    /// The decoder's cached knowledge of the code.
    pub knowledge: DecodeCachePool,
    /// The thread whose calls are found at the same time.
    pub calls_of: Option<(Tid, SymbolFunctions)>,
}

impl DecodeInput {
    /// Decodes about the last `last` bytes of each trace; `None` decodes all.
    pub fn decode(&self, last: Option<u64>, watch: &Watch<'_>) -> Result<Decoded, Canceled> {
        let functions = |tid: Tid| match &self.calls_of {
            Some((wanted, functions)) if *wanted == tid => Some(functions as &dyn Functions),
            _ => None,
        };
        let processors = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let decoder = Decoder::new(&self.config)
            .jobs(self.jobs.unwrap_or_else(processors))
            .last(last)
            .functions(&functions)
            .caches(&self.knowledge)
            .watch(*watch);
        let decoder = match self.engine {
            Some(engine) => decoder.engine(engine),
            None => decoder,
        };
        decoder.decode(&self.inputs, &self.images)
    }

    /// The threads that lose the beginning of their history when only so much of each trace is
    /// decoded, and nothing else of it. Out of the traces of processors, and of several buffers, a
    /// thread may lose pieces in the middle.
    pub fn shortened(&self, last: u64) -> impl Iterator<Item = Tid> {
        let long = self.inputs.iter().filter(move |input| input.trace_len() > last);
        long.filter_map(|input| match input {
            Input::Thread { tid, .. } => Some(*tid).filter(|&tid| self.has_one_buffer(tid)),
            Input::Cpu { .. } => None,
        })
    }

    /// Every trace that is longer is that of a thread, and all there is of it.
    pub fn shortens_cleanly(&self, last: u64) -> bool {
        let mut long = self.inputs.iter().filter(|input| input.trace_len() > last);
        long.all(|input| matches!(input, Input::Thread { tid, .. } if self.has_one_buffer(*tid)))
    }

    fn has_one_buffer(&self, wanted: Tid) -> bool {
        let of_it = |input: &&Input| match input {
            Input::Thread { tid, .. } => *tid == wanted,
            Input::Cpu { .. } => true,
        };
        self.inputs.iter().filter(of_it).count() == 1
    }
}

/// The older history, which is not decoded yet.
pub(super) struct UndecodedHistory {
    source: Arc<DecodeInput>,
    /// The bytes of each trace to decode; `None` means all.
    last: Option<u64>,
    ahead: Option<BackgroundDecoder>,
}

/// A thread that decodes it.
struct BackgroundDecoder {
    thread: JoinHandle<Result<Decoded, Canceled>>,
    state: Arc<AheadState>,
}

/// The state that the decoding thread shares.
#[derive(Default)]
struct AheadState {
    cancel: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl UndecodedHistory {
    /// The interval between two progress reports to a waiting user.
    const PERIOD: Duration = Duration::from_millis(5);

    pub fn new(source: Arc<DecodeInput>, last: Option<u64>) -> Self {
        Self {
            source,
            last,
            ahead: None,
        }
    }

    /// Begins, in the background.
    pub fn begin(&mut self) {
        let (source, last) = (Arc::clone(&self.source), self.last);
        self.ahead.get_or_insert_with(|| {
            let state = Arc::new(AheadState::default());
            let shared = Arc::clone(&state);
            let thread = thread::spawn(move || {
                let progress = |progress: Progress| {
                    shared.done.store(progress.done, Ordering::Relaxed);
                    shared.total.store(progress.total, Ordering::Relaxed);
                };
                let watch = Watch {
                    cancel: &shared.cancel,
                    progress: &progress,
                };
                source.decode(last, &watch)
            });
            BackgroundDecoder { thread, state }
        });
    }

    /// Returns whether decoding is complete.
    pub fn is_ready(&self) -> bool {
        self.ahead
            .as_ref()
            .is_some_and(|ahead| ahead.thread.is_finished())
    }

    /// Gives it once it is decoded. Canceled, it can be asked for again.
    pub fn wait(&mut self, watch: &Watch<'_>) -> Result<Decoded, Canceled> {
        let Some(ahead) = &self.ahead else {
            return self.source.decode(self.last, watch);
        };
        while !ahead.thread.is_finished() {
            let state = &ahead.state;
            let (done, total) = (&state.done, &state.total);
            watch.report(
                Stage::Decode,
                done.load(Ordering::Relaxed),
                total.load(Ordering::Relaxed),
            )?;
            thread::sleep(Self::PERIOD);
        }
        let decoded = self.ahead.take().map(|ahead| ahead.thread.join());
        match decoded {
            Some(Ok(decoded)) => decoded,
            // The decoding thread panicked. Decoding is repeated here, where the panic is visible.
            _ => self.source.decode(self.last, watch),
        }
    }
}

impl Drop for UndecodedHistory {
    fn drop(&mut self) {
        if let Some(ahead) = &self.ahead {
            ahead.state.cancel.store(true, Ordering::Relaxed);
        }
    }
}
