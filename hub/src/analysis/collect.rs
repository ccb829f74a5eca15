//! Collects the parts of an analysis from an opened bundle.

use super::branches::line_branches;
use super::calls::{LAST, edges, last_steps};
use super::exact_calls::exact_calls;
use super::modules::{Modules, is_library_source};
use super::panic_message::panic_message;
use super::redaction::Redaction;
use super::result::{
    Access, Analysis, Cause, GapView, InterruptedBy, Snapshot, SourceCheck, SourceView, VERSION,
};
use super::stacks::{bounded, bounded_name, crashed, others};
use backtrail_bundle::manifest::{Collected, Manifest, Source};
use backtrail_console::views;
use backtrail_debugger::coverage::counts;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::session::Session;
use backtrail_debugger::stack::Stack;
use backtrail_debugger::timeline::chart::{self, ChartRequest, Timeline};
use backtrail_debugger::{Error, Result, Watch, abort_message, fault, signal};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time limit of the last lines.
const LINES: Duration = Duration::from_secs(20);
/// The number of last lines, if more of them take too long.
const FEW: usize = 12;
/// The time limit of these.
const FEW_LINES: Duration = Duration::from_secs(20);
/// The time limit of another part.
const PART: Duration = Duration::from_secs(20);
/// The lines before and after the faulting one.
const AROUND: u32 = 9;
/// The most gaps in a result.
const GAPS: usize = 200;
/// The most notes in a result.
const NOTES: usize = 100;
/// The most labels in a result.
const LABELS: usize = 128;
/// The columns of a timeline.
const COLUMNS: usize = 500;
/// The call levels of a timeline.
const LEVELS: usize = 32;
/// The most calls in a timeline.
const CALLS: usize = 8000;
/// The most threads in a timeline.
const THREADS: usize = 64;
/// The parts of the trace before the crash that have timelines of their own.
const PARTS: [i64; 4] = [1, 10, 100, 1000];

/// Returns the analysis of an opened bundle.
///
/// # Errors
/// Fails if the bundle has no thread or a part of it is malformed.
pub(super) fn collect(session: Session, redactions: &[Redaction], watch: &Watch<'_>) -> Result<Analysis> {
    let mut navigator = Navigator::new(session)?;
    navigator.bound_sources();
    let with_values = !redactions.contains(&Redaction::Values);
    let (crashed, modules, threads, more_threads) = stacks(&mut navigator, with_values, watch)?;
    let mut parts = Parts {
        watch,
        left_out: Vec::new(),
    };
    let steps = match parts.get("200 last lines", LINES, |watch| {
        last_steps(&mut navigator, LAST, watch)
    }) {
        Some(steps) => Some(steps),
        None => parts.get("last lines", FEW_LINES, |watch| {
            last_steps(&mut navigator, FEW, watch)
        }),
    };
    let steps = steps.unwrap_or_default();
    let edges = parts.get("call edges", PART, |watch| edges(&navigator, watch));
    let exact = parts.get("exact calls", PART, |watch| exact_calls(&navigator, watch));
    let branches = parts.get("branches", PART, |watch| line_branches(&navigator, watch));
    let timelines = parts.get("timelines", PART, |watch| timelines(&mut navigator, watch));
    let source = parts.get("source lines", PART, |watch| source(&navigator, watch));
    let (gaps, more_gaps) = gaps(&navigator)?;
    let mut cause = cause(&navigator, with_values, watch)?;
    cause.message = cause.message.or_else(|| panic_message(&crashed.frames));
    let session = navigator.session();
    let manifest = session.bundle().map(backtrail_bundle::Bundle::manifest);
    let notes = session.notes().iter().chain(&parts.left_out);
    Ok(Analysis {
        version: VERSION,
        program: session.program().map(bounded_name),
        cause,
        crashed,
        threads,
        more_threads,
        source: source.flatten(),
        calls: steps.calls,
        lines: steps.lines,
        before_lines: steps.before,
        edges: edges.unwrap_or_default(),
        exact_calls: exact.unwrap_or_default(),
        branches: branches.unwrap_or_default(),
        gaps,
        more_gaps,
        modules,
        timelines: timelines.unwrap_or_default(),
        labels: labels(session),
        resource: manifest
            .and_then(|manifest| manifest.meta.context.as_ref())
            .map(|context| attributes(&context.resource))
            .unwrap_or_default(),
        snapshot: manifest.map(snapshot).unwrap_or_default(),
        notes: notes.take(NOTES).map(|note| bounded_name(note)).collect(),
        command_line: manifest
            .filter(|_| !redactions.contains(&Redaction::Arguments))
            .map(|manifest| {
                let words = manifest.meta.command_line.iter().take(NOTES);
                words.map(|word| bounded(word)).collect()
            }),
    })
}

/// Collects parts that a result can lack. Each has a time limit.
struct Parts<'a> {
    watch: &'a Watch<'a>,
    /// A sentence for each part that is left out.
    left_out: Vec<String>,
}

impl Parts<'_> {
    /// Returns a part, or notes the reason for which it is left out.
    fn get<T>(
        &mut self,
        name: &str,
        limit: Duration,
        find: impl FnOnce(&Watch<'_>) -> Result<T>,
    ) -> Option<T> {
        let (start, is_late) = (Instant::now(), AtomicBool::new(false));
        let progress = |progress| {
            (self.watch.progress)(progress);
            if start.elapsed() > limit {
                is_late.store(true, Ordering::Relaxed);
            }
        };
        let watch = Watch {
            cancel: &is_late,
            progress: &progress,
        };
        match find(&watch) {
            Ok(found) => return Some(found),
            Err(Error::Canceled) => self.left_out.push(format!(
                "the {name} are left out: they take more than {} seconds",
                limit.as_secs()
            )),
            Err(error) => self.left_out.push(format!("the {name} are left out: {error}")),
        }
        None
    }
}

type Stacks = (
    super::result::StackView,
    Vec<super::result::ModuleView>,
    Vec<super::result::StackView>,
    usize,
);

/// Returns the crashed stack, the modules, the other stacks, and the number of further threads.
fn stacks(navigator: &mut Navigator, with_values: bool, watch: &Watch<'_>) -> Result<Stacks> {
    let session = navigator.session();
    let views = Modules::of(session).views();
    let thread = navigator.thread()?;
    let (others, more) = others(session, thread, &Modules::of(session), watch)?;
    let crashed = crashed(navigator, with_values, watch)?;
    Ok((crashed, views, others, more))
}

fn cause(navigator: &Navigator, with_values: bool, watch: &Watch<'_>) -> Result<Cause> {
    let session = navigator.session();
    let stack = navigator.known_stack(super::stacks::FRAMES, watch)?;
    let handler = views::handler(navigator, &stack, watch)?.map(|handler| InterruptedBy {
        handler: handler.handler.as_deref().map(bounded_name),
        position: handler.position,
        interrupted: handler.interrupted.as_deref().map(bounded_name),
    });
    let Some(fatal) = session.crash() else {
        let thread = session.core().and_then(|core| core.crashed_thread());
        let info = thread.and_then(|thread| thread.siginfo);
        let ending = session
            .ending()
            .map(|ending| signal::describe_ending(ending, info));
        return Ok(Cause {
            description: ending.unwrap_or_else(|| "the trace does not end in a crash".to_owned()),
            handler,
            ..Cause::default()
        });
    };
    Ok(Cause {
        signal: fatal.signal,
        code: fatal.code,
        name: signal::name(fatal.signal),
        description: signal::describe(fatal),
        meaning: signal::cause(fatal.signal, fatal.code).map(str::to_owned),
        fault_address: fatal.fault_address.map(|address| address.0),
        pc: Some(fatal.pc.0),
        stack_pointer: session.end_registers(fatal.tid).map(|registers| registers.rsp),
        access: fault::access(session).map(|access| match access {
            fault::Access::Read => Access::Read,
            fault::Access::Write => Access::Write,
            fault::Access::ReadWrite => Access::ReadWrite,
            fault::Access::Execute => Access::Execute,
        }),
        message: abort_message::abort_message(session)
            .filter(|_| with_values)
            .map(|message| bounded(&message)),
        handler,
    })
}

/// Returns the lines around the crash with their execution counts.
fn source(navigator: &Navigator, watch: &Watch<'_>) -> Result<Option<SourceView>> {
    let stack = navigator.known_stack(super::stacks::FRAMES, watch)?;
    let modules = Modules::of(navigator.session());
    // The program's own code says more than that of the C library.
    let own = Stack {
        frames: stack
            .frames
            .iter()
            .filter(|frame| modules.is_own(frame.pc))
            .filter(|frame| !frame.file.as_deref().is_some_and(is_library_source))
            .cloned()
            .collect(),
        ..stack.clone()
    };
    let found = views::source_around(navigator, &own, AROUND);
    let Some(found) = found.or_else(|| views::source_around(navigator, &stack, AROUND)) else {
        return Ok(None);
    };
    let Some(current) = found.current else {
        return Ok(None);
    };
    let thread = navigator.thread()?;
    let process = navigator.session().process(thread);
    let lines: Option<Vec<String>> = found.marked_lines().map(|lines| lines.map(bounded).collect());
    let coverage = match thread.history.is_empty() {
        true => None,
        false => navigator.session().coverage(thread, watch).ok(),
    };
    let executions = coverage.zip(process).map(|(coverage, process)| {
        let count = lines.as_ref().map_or(0, Vec::len);
        counts(coverage, process, &found.file, found.first, count)
    });
    Ok(Some(SourceView {
        file: bounded_name(&found.file),
        first: found.first,
        current,
        bundled: lines
            .is_some()
            .then(|| check_of(navigator, &found.file))
            .flatten(),
        lines,
        executions: executions.unwrap_or_default(),
    }))
}

/// Returns the check of a file whose text is the bundle's.
fn check_of(navigator: &Navigator, file: &str) -> Option<SourceCheck> {
    let source = navigator.bundled_source(file)?;
    Some(match source.verified {
        true => SourceCheck::Verified,
        false => SourceCheck::Unverified,
    })
}

fn gaps(navigator: &Navigator) -> Result<(Vec<GapView>, usize)> {
    let thread = navigator.thread()?;
    let all: Vec<_> = thread.history.gaps().collect();
    let skipped = all.len().saturating_sub(GAPS);
    let views = all.into_iter().skip(skipped).map(|(index, gap)| GapView {
        position: thread.position(index).to_string(),
        cause: bounded(&gap.cause.to_string()),
    });
    Ok((views.collect(), skipped))
}

/// Returns the timelines of the trace and of its last parts. A trace without history has none.
fn timelines(navigator: &mut Navigator, watch: &Watch<'_>) -> Result<Vec<Timeline>> {
    let mut found: Vec<Timeline> = Vec::new();
    if navigator.thread()?.history.is_empty() {
        return Ok(found);
    }
    for part in PARTS {
        let from = found.first().map(|whole| {
            let length = whole.end.saturating_sub(whole.begin) / part;
            whole.end.saturating_sub(length) as f64
        });
        let request = ChartRequest {
            from,
            to: None,
            columns: COLUMNS,
            levels: LEVELS,
        };
        let chart = navigator.with_earlier(watch, |navigator| {
            let (thread, index) = (navigator.thread()?, navigator.index());
            chart::timeline(navigator.session(), thread, index, request, watch)
        })?;
        // A shorter window would have no more detail.
        let is_finest = chart.to.saturating_sub(chart.from) < COLUMNS as i64;
        found.push(limited(chart));
        if is_finest {
            break;
        }
    }
    Ok(found)
}

/// Leaves out threads and deep calls beyond the limits.
fn limited(mut chart: Timeline) -> Timeline {
    chart
        .threads
        .sort_by_key(|thread| (!thread.crashed, thread.thread_id));
    chart.threads.truncate(THREADS);
    let mut room = CALLS;
    for thread in &mut chart.threads {
        // Calls are in the order of their levels.
        thread.calls.truncate(room);
        room -= thread.calls.len();
        for call in &mut thread.calls {
            call.function = bounded(&call.function);
        }
        let deepest = thread.calls.iter().map(|call| call.level + 1).max();
        thread.levels = deepest.unwrap_or(0);
    }
    chart
}

/// Returns the labels of the request that the crashed thread served.
fn labels(session: &Session) -> BTreeMap<String, String> {
    let thread = session.main_thread().map(|thread| thread.tid);
    let Some(request) = thread.and_then(|tid| session.request_of(tid)) else {
        return BTreeMap::new();
    };
    let mut labels = attributes(&request.attributes);
    if let Some(span) = &request.span {
        labels.insert("trace id".to_owned(), span.trace_id.to_string());
        labels.insert("span id".to_owned(), span.span_id.to_string());
    }
    labels
}

fn attributes(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let bounded = |(name, value): (&String, &String)| (bounded(name), bounded(value));
    all.iter().take(LABELS).map(bounded).collect()
}

fn snapshot(manifest: &Manifest) -> Snapshot {
    let meta = &manifest.meta;
    let none = Collected::default();
    let collected = meta.collected.as_ref().unwrap_or(&none);
    let cpu = &manifest.cpu;
    Snapshot {
        source: match meta.source {
            Source::Hardware => "hardware",
            Source::Software => "software",
            _ => "unknown",
        }
        .to_owned(),
        created_by: meta.created_by.as_deref().map(bounded),
        created_at: meta.created_at,
        host: meta.host.as_deref().map(bounded),
        kernel: meta.kernel.as_deref().map(bounded),
        cpu: Some(format!("{}/{}/{}", cpu.family, cpu.model, cpu.stepping)),
        trigger: Some(bounded(&collected.trigger)).filter(|trigger| !trigger.is_empty()),
        probe: collected.probe.as_deref().map(bounded),
        crash_to_reader: collected.crash_to_reader,
        crash_to_stop: collected.crash_to_stop,
        crash_to_held: collected.crash_to_held,
        held: collected.held,
        overwritten: collected.overwritten,
        history: meta.collected.as_ref().map(|collected| collected.history),
        missing: collected
            .missing
            .iter()
            .take(NOTES)
            .map(|text| bounded(text))
            .collect(),
    }
}
