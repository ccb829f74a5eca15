//! One recording from beginning to end.

use crate::clock::{self, Calibration, Whose};
use crate::descriptors::RaisedLimit;
use crate::error::{Error, Result};
use crate::options::{Engine, Output, Pin, Progress, RecordOptions, Target};
use crate::outcome::Outcome;
use crate::ptrace;
use crate::save;
use crate::session::{Crashes, Destination, ROOT_GONE, Session, Settings, Shared};
use crate::waker::Waker;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::Overhead;
use backtrail_pt::{EncoderOptions, Pid};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

/// How often the clock and the caller's wishes are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How often progress is told, in ticks.
const PROGRESS_TICKS: u32 = 10;

/// Records as `options` say, until the program ends or recording is to end, and writes the bundle.
///
/// The caller's thread only minds the time; the tracing is done by a thread that this starts, since
/// ptrace binds tracees to a thread.
///
/// # Errors
/// When the program cannot be started or attached to, or the bundle cannot be written. A program that
/// fails is no error.
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
    let job = Job {
        target: options.target,
        randomize: options.randomize_addresses,
        follow: options.follow,
        golden: options.golden,
        ring: options.ring,
        engine: options.engine,
        pin: options.pin,
        cache: options.cache,
        all_wide: options.all_wide,
        fine_time: options.fine_time,
        compress_returns: options.compress_returns,
        output: options.output,
    };
    let shared = Shared::default();
    let waker = Waker::default();
    let begun = Instant::now();
    thread::scope(|scope| {
        let tracer = scope.spawn(|| {
            waker.adopt_current();
            let outcome = job.run(&shared);
            waker.release();
            outcome
        });
        let mut ticks = 0u32;
        while !tracer.is_finished() {
            thread::park_timeout(TICK);
            let program = shared.root.load(Ordering::Acquire);
            if program > 0
                && let Some(started) = started.take()
            {
                started(Pid(program as u32));
            }
            if stop.load(Ordering::Relaxed) || duration.is_some_and(|limit| begun.elapsed() >= limit) {
                shared.stop.store(true, Ordering::Relaxed);
                waker.wake();
            }
            if let Some(signals) = &signals {
                pass_on(signals, &shared);
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

/// Sends signals on to the program.
fn pass_on(signals: &Receiver<i32>, shared: &Shared) {
    let program = shared.root.load(Ordering::Acquire);
    // Before it is started they wait.
    while program != 0
        && let Ok(signal) = signals.try_recv()
    {
        match program {
            ROOT_GONE => shared.stop.store(true, Ordering::Relaxed),
            pid => ptrace::signal(pid, signal),
        }
    }
}

/// What the tracing thread needs.
struct Job<'a> {
    target: Target,
    randomize: bool,
    follow: bool,
    golden: bool,
    ring: Option<usize>,
    engine: Engine,
    pin: Pin,
    cache: u64,
    fine_time: bool,
    all_wide: bool,
    compress_returns: bool,
    output: Output<'a>,
}

impl Job<'_> {
    fn run(self, shared: &Shared) -> Result<Outcome> {
        let calibration = Calibration::start();
        let encoder = EncoderOptions {
            timing: Some(calibration.timing(self.fine_time)),
            compress_returns: self.compress_returns,
            ..EncoderOptions::default()
        };
        let settings = Settings {
            follow: self.follow,
            golden: self.golden,
            ring: self.ring,
            encoder,
            engine: self.engine,
            pin: self.pin,
            cache: self.cache,
            all_wide: self.all_wide,
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
        let mut session = Session::new(settings, shared, destination, limit);
        let ran = session
            .begin(&self.target, self.randomize)
            .and_then(|()| session.run())
            .map_err(|error| session.explain(error));
        let failure = match ran {
            Err(error) if error.is_of_running_program() && session.has_begun() => {
                session.give_up(&error);
                Some(error.to_string())
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
            program_cpu: session.ours().then(|| clock::cpu_time(Whose::Children)),
            recorder_cpu: clock::cpu_time(Whose::Ours),
            stops: session.stops,
        };
        let (ending, gaps) = (session.ending, session.gaps);
        let instructions = (self.engine == Engine::Step).then_some(session.instructions);
        let limit = session.descriptor_limit();
        let saved = save::save(session, calibration.params(), calibration.conversion(), overhead)
            .map_err(|error| error.explained(limit))?;
        Ok(Outcome {
            ending,
            threads: saved.threads,
            instructions,
            bytes: saved.bytes,
            dropped: saved.dropped,
            gaps,
            bundle: path,
            failure,
            golden: saved.golden,
        })
    }
}
