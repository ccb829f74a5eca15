//! Runs one recording from beginning to end.

use crate::attributes;
use crate::clock::{self, Calibration, CpuTimeScope};
use crate::descriptors::RaisedLimit;
use crate::destination::{Crashes, Destination};
use crate::error::{Error, Result};
use crate::options::{
    Engine, Output, Pin, Progress, RecordOptions, Target, TranslationDirectory, ValueOptions,
};
use crate::outcome::Outcome;
use crate::program_filter::ProgramFilter;
use crate::ptrace;
use crate::save;
use crate::session::{ProgramStatus, Session, Settings, SharedState};
use crate::translate::CodeStore;
use crate::waker::Waker;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::Overhead;
use backtrail_pt::{EncoderOptions, Pid};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

/// The interval at which the time limit and the stop flag are checked.
const TICK: Duration = Duration::from_millis(20);
/// The interval of progress reports, in ticks.
const PROGRESS_TICKS: u32 = 10;

/// Records until the program ends or recording is stopped, and writes the bundle.
///
/// The calling thread only watches the time. Another thread traces, because ptrace binds tracees to
/// a thread.
///
/// # Errors
/// Fails if the program cannot be started or attached to, or if the bundle cannot be written. A
/// program that fails is not an error.
pub fn record(options: RecordOptions<'_>) -> Result<Outcome> {
    let RecordOptions {
        stop,
        duration,
        mut progress,
        mut started,
        signals,
        ..
    } = options;
    if let (Output::Crashes(_), None) = (&options.output, options.ring) {
        return Err(Error::NoRing);
    }
    if options.heap && options.engine == Engine::Step {
        return Err(Error::HeapOfSteps);
    }
    let job = TracingJob {
        target: options.target,
        randomize: options.randomize_addresses,
        follow: options.follow,
        only: options.only,
        golden: options.golden,
        ring: options.ring,
        engine: options.engine,
        pin: options.pin,
        cache: options.cache,
        translations: options.translations,
        all_superblocks: options.all_superblocks,
        heap: options.heap,
        values: options.values,
        standard_error: options.standard_error && options.engine == Engine::Translate,
        fine_time: options.fine_time,
        compress_returns: options.compress_returns,
        output: options.output,
    };
    let shared = SharedState::default();
    let waker = Waker::default();
    let begun = Instant::now();
    thread::scope(|scope| {
        let tracer = scope.spawn(|| {
            waker.set_current();
            let outcome = job.run(&shared);
            waker.release();
            outcome
        });
        let mut ticks = 0u32;
        while !tracer.is_finished() {
            thread::park_timeout(TICK);
            if let ProgramStatus::Running(pid) = shared.program.status()
                && let Some(started) = started.take()
            {
                started(Pid(pid as u32));
            }
            if stop.load(Ordering::Relaxed) || duration.is_some_and(|limit| begun.elapsed() >= limit) {
                shared.stop.store(true, Ordering::Relaxed);
                waker.wake();
            }
            if let Some(signals) = &signals {
                forward_signals(signals, &shared);
            }
            ticks = ticks.wrapping_add(1);
            if ticks.is_multiple_of(PROGRESS_TICKS)
                && let Some(progress) = &mut progress
            {
                progress(Progress {
                    instructions: shared.instructions.load(Ordering::Relaxed),
                    bytes: shared.bytes.load(Ordering::Relaxed),
                    threads: shared.threads.load(Ordering::Relaxed),
                });
            }
        }
        let failed = || Error::System {
            action: "trace",
            source: std::io::Error::other("the tracing thread failed"),
        };
        tracer.join().unwrap_or_else(|_| Err(failed()))
    })
}

/// Forwards signals to the program.
fn forward_signals(signals: &Receiver<i32>, shared: &SharedState) {
    let program = shared.program.status();
    // Signals wait until the program has started.
    while program != ProgramStatus::NotStarted
        && let Ok(signal) = signals.try_recv()
    {
        match program {
            ProgramStatus::Running(pid) => ptrace::signal(pid, signal),
            ProgramStatus::NotStarted | ProgramStatus::Ended => shared.stop.store(true, Ordering::Relaxed),
        }
    }
}

/// The parameters of the tracing thread.
struct TracingJob<'a> {
    target: Target,
    randomize: bool,
    follow: bool,
    only: ProgramFilter,
    golden: bool,
    ring: Option<usize>,
    engine: Engine,
    pin: Pin,
    cache: u64,
    fine_time: bool,
    all_superblocks: bool,
    heap: bool,
    values: Option<ValueOptions>,
    standard_error: bool,
    compress_returns: bool,
    translations: Option<TranslationDirectory>,
    output: Output<'a>,
}

impl TracingJob<'_> {
    /// Returns the store for translations, if more than one process can use them.
    fn code_store(&self) -> Option<Arc<CodeStore>> {
        let is_useful = self.engine == Engine::Translate && (self.follow || self.translations.is_some());
        let directory = self.translations.clone();
        // Without the thread of the store, each process translates its own code.
        let store = is_useful.then(|| CodeStore::start(directory).ok())?;
        store.map(Arc::new)
    }

    fn run(self, shared: &SharedState) -> Result<Outcome> {
        // Before this thread is pinned to the program's processor.
        let store = self.code_store();
        let calibration = Calibration::start();
        let encoder = EncoderOptions {
            timing: Some(calibration.timing(self.fine_time)),
            compress_returns: self.compress_returns,
            ..EncoderOptions::default()
        };
        let settings = Settings {
            follow: self.follow,
            only: self.only,
            golden: self.golden,
            ring: self.ring,
            encoder,
            engine: self.engine,
            pin: self.pin,
            cache: self.cache,
            all_superblocks: self.all_superblocks,
            heap: self.heap,
            values: self.values,
            standard_error: self.standard_error,
            emulates_dumpable: !attributes::may_read_undumpable(),
        };
        let limit = RaisedLimit::raise();
        let (destination, path) = match self.output {
            Output::Bundle { path, overwrite } => {
                let writer = Writer::create(&path, overwrite)
                    .map_err(|error| Error::from(error).explained(limit.now()))?;
                (Destination::Bundle(writer), Some(path))
            }
            Output::Crashes(sink) => (Destination::Crashes(Crashes::new(sink, calibration)), None),
        };
        let begun = Instant::now();
        let mut session = Session::new(settings, shared, destination, limit, store);
        let ran = session
            .begin(&self.target, self.randomize)
            .and_then(|()| session.run())
            .map_err(|error| session.explain(error));
        let failure = match ran {
            Err(error) if error.is_of_running_program() && session.has_begun() => {
                session.give_up(&error);
                Some(error.to_string())
            }
            Err(error @ Error::DoesNotStop(_)) => {
                session.give_up(&error);
                session.unpin();
                return Err(error);
            }
            ran => {
                session.unpin();
                ran?;
                None
            }
        };
        session.unpin();
        session.release_reserve();
        let overhead = Overhead {
            wall: u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
            program_cpu: session
                .owns_program()
                .then(|| clock::cpu_time(CpuTimeScope::Children)),
            recorder_cpu: clock::cpu_time(CpuTimeScope::Recorder),
            stops: session.stops,
        };
        let (ending, gaps, processes) = (session.ending, session.gaps, session.counts);
        let instructions = (self.engine == Engine::Step).then_some(session.instructions);
        let limit = session.descriptor_limit();
        let (destination, recording) = session.into_recording();
        let saved = match destination {
            Destination::Bundle(writer) => {
                let (timing, tsc) = (calibration.params(), calibration.conversion());
                save::save(recording, writer, timing, tsc, overhead)
                    .map_err(|error| error.explained(limit))?
            }
            Destination::Crashes(crashes) => crashes.saved,
        };
        Ok(Outcome {
            ending,
            threads: saved.threads,
            instructions,
            bytes: saved.bytes,
            dropped: saved.dropped,
            gaps,
            processes,
            bundle: path,
            failure,
            golden: saved.golden,
        })
    }
}
