//! All of a trace: the histories of its threads.

use crate::image::Passing;
use crate::parallel::{Crew, Failed, Joiner};
use crate::split::{self, CpuReport};
use crate::watch::Stage;
use crate::{
    Bytes, Canceled, Config, Engine, Event, GapCause, History, HistoryBuilder, Image, Memory, Runs, Sink,
    Switch, Watch,
};
use backtrail_pt::{Avma, Cofi, Cpu, Pid, Tid};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;

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
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// One history a thread, by thread.
    pub threads: Vec<History>,
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
    pub stretch: usize,
}

impl<'a> Plan<'a> {
    /// Few enough to share a trace out evenly, and so many that a thread knows most of the code when it begins.
    pub const STRETCH: usize = 1 << 20;

    /// By one thread.
    #[must_use]
    pub fn new(config: &'a Config, engine: &'a dyn Engine) -> Self {
        Self {
            config,
            engine,
            jobs: NonZeroUsize::MIN,
            stretch: Self::STRETCH,
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
    let total = inputs.iter().map(|input| input.trace().len() as u64).sum();
    let mut done = 0;
    let mut threads: BTreeMap<Tid, HistoryBuilder> = BTreeMap::new();
    let mut cpus = Vec::new();
    for input in inputs {
        let trace = input.trace();
        let progress = Span { watch, done, total };
        match input {
            Input::Thread { tid, image, .. } => {
                let earlier = threads.remove(tid).map(between_buffers);
                let builder = match earlier {
                    None => decode_thread(plan, *tid, trace, image, progress)?,
                    Some(earlier) => go_on(plan, earlier, *tid, trace, image, progress)?,
                };
                threads.insert(*tid, builder);
            }
            Input::Cpu { cpu, switches, .. } => {
                cpus.push(split::run(
                    *cpu,
                    trace,
                    switches,
                    images,
                    plan.config,
                    plan.engine,
                    progress,
                )?);
            }
        }
        done += trace.len() as u64;
    }
    let threads = threads.into_values().map(HistoryBuilder::finish).collect();
    let mut decoded = Decoded {
        threads,
        cpus: Vec::new(),
    };
    split::join(cpus, images, &mut decoded);
    decoded.threads.sort_by_key(History::tid);
    Ok(decoded)
}

/// The history of a thread out of its first buffer.
fn decode_thread(
    plan: &Plan<'_>,
    tid: Tid,
    trace: &[u8],
    image: &Image,
    span: Span<'_>,
) -> Result<HistoryBuilder, Canceled> {
    if let Some(native) = plan.engine.native()
        && plan.jobs.get() > 1
        && trace.len() / 2 >= plan.stretch
        && Passing::new(image, tid).is_none()
    {
        let crew = Crew {
            native,
            trace,
            memory: image,
            config: plan.config,
            watch: span.watch,
            done: span.done,
            total: span.total,
        };
        let joiner = Joiner::new(HistoryBuilder::new(tid));
        match crew.decode(joiner, plan.jobs, plan.stretch) {
            Ok(joiner) => return Ok(joiner.finish()),
            Err(Failed::Canceled) => return Err(Canceled),
            // What the flow is behind a PSB shows only when it is decoded in order.
            Err(Failed::Apart) => {}
        }
    }
    go_on(plan, HistoryBuilder::new(tid), tid, trace, image, span)
}

/// A thread's history with what a buffer adds, decoded in order.
fn go_on(
    plan: &Plan<'_>,
    mut builder: HistoryBuilder,
    tid: Tid,
    trace: &[u8],
    image: &Image,
    span: Span<'_>,
) -> Result<HistoryBuilder, Canceled> {
    let code = Passing::new(image, tid);
    let memory = code.as_ref().map_or(image as &dyn Memory, |code| code);
    let mut sink = Watched {
        sink: &mut Versioned {
            builder: &mut builder,
            code: code.as_ref(),
        },
        span,
    };
    plan.engine.decode(trace, memory, plan.config, &mut sink)?;
    Ok(builder)
}

/// What happened between two buffers of a thread is not known.
fn between_buffers(mut builder: HistoryBuilder) -> HistoryBuilder {
    builder.event(Event::Lost {
        cause: GapCause::NoTrace,
        offset: 0,
        error: false,
    });
    builder
}

impl Input {
    /// The packets.
    fn trace(&self) -> &[u8] {
        match self {
            Self::Thread { trace, .. } | Self::Cpu { trace, .. } => (**trace).as_ref(),
        }
    }
}

/// A thread's history in the making. Where its code changes, the version is chosen wherever flow begins.
struct Versioned<'a> {
    builder: &'a mut HistoryBuilder,
    code: Option<&'a Passing<'a>>,
}

impl Sink for Versioned<'_> {
    fn begin(&mut self) {
        self.builder.begin();
    }

    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        self.builder.runs(runs, executed);
    }

    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.builder.instruction(at, len, cofi);
    }

    fn event(&mut self, event: Event) {
        if let (Some(code), Event::Sync { offset } | Event::FlowBegins { offset }) = (self.code, &event) {
            let version = code.version_at(*offset);
            if let Some(changed) = code.go_to(version) {
                self.builder.change_code(version, &changed);
            }
        }
        self.builder.event(event);
    }

    fn progress(&mut self, offset: u64) -> ControlFlow<()> {
        self.builder.progress(offset)
    }
}

/// The part of all the bytes that one input is.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    watch: &'a Watch<'a>,
    done: u64,
    total: u64,
}

/// A sink whose work is watched.
pub(crate) struct Watched<'a, S> {
    pub sink: &'a mut S,
    pub span: Span<'a>,
}

impl<S: Sink> Sink for Watched<'_, S> {
    fn begin(&mut self) {
        self.sink.begin();
    }

    fn runs(&mut self, runs: &Runs<'_>, executed: &[u32]) {
        self.sink.runs(runs, executed);
    }

    fn instruction(&mut self, at: Avma, len: u8, cofi: Cofi) {
        self.sink.instruction(at, len, cofi);
    }

    fn event(&mut self, event: Event) {
        self.sink.event(event);
    }

    fn progress(&mut self, offset: u64) -> ControlFlow<()> {
        let Span { watch, done, total } = self.span;
        match watch.report(Stage::Decode, done.saturating_add(offset), total) {
            Ok(()) => ControlFlow::Continue(()),
            Err(Canceled) => ControlFlow::Break(()),
        }
    }
}
