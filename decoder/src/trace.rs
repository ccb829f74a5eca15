//! All of a trace: the histories of its threads.

use crate::image::Passing;
use crate::split::{self, CpuReport};
use crate::watch::Stage;
use crate::{
    Bytes, Canceled, Config, Engine, Event, GapCause, History, HistoryBuilder, Image, Memory, Runs, Sink,
    Switch, Watch,
};
use backtrail_pt::{Avma, Cofi, Cpu, Pid, Tid};
use std::collections::BTreeMap;
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

/// Decodes all inputs. `images` are the processes whose threads are wanted out of per-CPU traces.
///
/// A thread with several inputs gets one history, in the order of the inputs, with a gap between.
pub fn decode(
    inputs: &[Input],
    images: &BTreeMap<Pid, Arc<Image>>,
    config: &Config,
    engine: &dyn Engine,
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
                let mut builder = earlier.unwrap_or_else(|| HistoryBuilder::new(*tid));
                let code = Passing::new(image, *tid);
                let memory = code.as_ref().map_or(&**image as &dyn Memory, |code| code);
                let mut sink = Watched {
                    sink: &mut Versioned {
                        builder: &mut builder,
                        code: code.as_ref(),
                    },
                    span: progress,
                };
                engine.decode(trace, memory, config, &mut sink)?;
                threads.insert(*tid, builder);
            }
            Input::Cpu { cpu, switches, .. } => {
                cpus.push(split::run(
                    *cpu, trace, switches, images, config, engine, progress,
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
