//! The history of one thread out of its buffers.

use super::{Plan, Tail};
use crate::image::Passing;
use crate::knowledge::Scope;
use crate::meter::{Meter, Metered};
use crate::parallel::{Crew, Failed};
use crate::{Canceled, Event, Forest, GapCause, History, HistoryBuilder, Image, Knowledge, Runs, Sink};
use backtrail_pt::{Avma, Cofi, Tid};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A buffer of a thread.
pub(super) struct Buffer<'a> {
    pub trace: Tail<'a>,
    /// The code of its process.
    pub image: &'a Arc<Image>,
    pub meter: Meter<'a>,
}

/// Decodes a thread's buffers, with a gap between each two. With its history comes the forest, where that
/// was made on the way.
pub(super) fn decode(
    plan: &Plan<'_>,
    knowledge: &Knowledge,
    tid: Tid,
    buffers: &[Buffer<'_>],
) -> Result<(History, Option<Forest>), Canceled> {
    if let [buffer] = buffers
        && let Some(crew) = crew(plan, tid, buffer)
    {
        let functions = (plan.functions)(tid);
        let mut builder = HistoryBuilder::new(tid);
        builder.expect(buffer.trace.bytes.len());
        match crew.decode(builder, functions, knowledge, plan.jobs, plan.segment) {
            Ok(decoded) => return Ok(decoded),
            Err(Failed::Canceled) => return Err(Canceled),
            // What the flow is behind a PSB shows only when it is decoded in order.
            Err(Failed::Apart) => {}
        }
    }
    let mut builder = HistoryBuilder::new(tid);
    builder.expect(buffers.iter().map(|buffer| buffer.trace.bytes.len()).sum());
    for (number, buffer) in buffers.iter().enumerate() {
        if number > 0 {
            // What happened between is not known.
            builder.event(Event::Lost {
                cause: GapCause::NoTrace,
                offset: 0,
                error: false,
            });
        }
        add(plan, knowledge, &mut builder, tid, buffer)?;
    }
    Ok((builder.finish(), None))
}

/// Who decodes a buffer in segments; `None`: it is to be decoded in order.
pub(super) fn crew<'a>(plan: &'a Plan<'_>, tid: Tid, buffer: &'a Buffer<'_>) -> Option<Crew<'a>> {
    let native = plan.engine.native()?;
    let pays = plan.jobs.get() > 1 && buffer.trace.bytes.len() / 2 >= plan.segment;
    let changes = || Passing::is_needed(buffer.image, tid);
    (pays && !changes()).then_some(Crew {
        native,
        trace: buffer.trace,
        image: buffer.image,
        config: plan.config,
        meter: &buffer.meter,
    })
}

/// Adds to a history what a buffer tells, decoded in order.
fn add(
    plan: &Plan<'_>,
    knowledge: &Knowledge,
    builder: &mut HistoryBuilder,
    tid: Tid,
    buffer: &Buffer<'_>,
) -> Result<(), Canceled> {
    let code = Passing::new(buffer.image, tid);
    let mut sink = Metered {
        sink: &mut Versioned {
            builder,
            code: code.as_ref(),
        },
        offset: buffer.trace.offset as u64,
        meter: &buffer.meter,
    };
    let (trace, config) = (buffer.trace.bytes, plan.config);
    match (&code, plan.engine.native()) {
        (Some(code), _) => plan.engine.decode(trace, code, config, &mut sink),
        (None, Some(native)) => {
            let scope = Scope::of_process(buffer.image, config);
            knowledge.with(scope, |learnt| {
                native.decode_knowing(trace, &**buffer.image, config, &mut sink, learnt)
            })
        }
        (None, None) => plan.engine.decode(trace, &**buffer.image, config, &mut sink),
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
