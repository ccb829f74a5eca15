//! Takes recordings: the loop that moves samples from the rings to the files.
//!
//! The first recording observes the changes of processes. Recordings on request share its view of
//! them, so that the records of all rings are processed in the order of time.

use crate::clock::{Clock, monotonic, processor_time};
use crate::heap;
use crate::host::Host;
use crate::open_events::{EventOptions, OpenEvents};
use crate::options::{RecordOptions, RecordingOutput, Target};
use crate::program::{RunningProgram, WaitingProgram};
use crate::reader::Batch;
use crate::record_queue::RecordQueue;
use crate::recording::Recording;
use crate::requested::{OpenRequest, Requests, requests};
use crate::sampled_time::ProcessorTime;
use crate::sampler::{RingRecord, SamplerOptions};
use crate::segment::RecordingFile;
use crate::summary::{Progress, Summary};
use crate::{Error, Result};
use backtrail_perf::record::{Record, RecordEvent};
use backtrail_process::status;
use backtrail_pt::Pid;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The longest wait for samples.
const WAIT: Duration = Duration::from_millis(100);
/// The time between blocks.
const BLOCK: Duration = Duration::from_millis(900);

/// Records until the program or process ends, the time is over, or `stop` is set. `progress` is
/// called about once a second.
///
/// # Errors
///
/// The reason why nothing can be recorded, or why the recording ended early.
pub fn record(
    options: &RecordOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary> {
    let (_, none) = requests();
    record_with_requests(options, none, stop, progress)
}

/// Records as [`record`], and takes further recordings on request. The target must be
/// [`Target::All`] for that.
///
/// # Errors
///
/// Those of [`record`]. A failure of a request fails the request alone.
pub fn record_with_requests(
    options: &RecordOptions,
    requests: Requests,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary> {
    heap::return_large_blocks();
    let before = ProcessorTime::of_children();
    let waiting = match &options.target {
        Target::Program(arguments) => Some(WaitingProgram::start(arguments)?),
        _ => None,
    };
    let events = OpenEvents::open(&EventOptions {
        sampler: SamplerOptions {
            target: &options.target,
            program: waiting.as_ref().map(WaitingProgram::pid),
            events: &options.events,
            frequency: options.frequency,
            sideband: true,
        },
        stack_method: options.stack_method,
        cpu_budget: options.cpu_budget,
    })?;
    let clock = Clock::now();
    let file = RecordingFile::open(&options.output, clock.unix(monotonic()))?;
    let host = Host::new(events.sampler.has_kernel());
    let mut capture = Capture {
        first: Recording::new(events, file, clock, &host),
        host,
        queue: RecordQueue::default(),
        requests,
        requested: BTreeMap::new(),
        next: FIRST,
        opening: Duration::ZERO,
    };
    let mut program = match waiting {
        // The events begin with its `execve`.
        Some(waiting) => {
            capture.first.watch(waiting.pid());
            Some(waiting.release().inspect_err(|_| remove_empty(options))?)
        }
        None => {
            capture.first.enable()?;
            capture.look_up_running(&options.target);
            None
        }
    };
    let looped = capture.run(options, program.as_mut(), stop, progress);
    let ended = program.as_mut().and_then(RunningProgram::terminate);
    looped?;
    let used = ended.map(|_| ProcessorTime::of_children().since(before));
    let summary = capture.finish(used)?;
    Ok(Summary {
        program: ended,
        ..summary
    })
}

/// Removes a recording of a program that did not start.
fn remove_empty(options: &RecordOptions) {
    if let RecordingOutput::File { path, .. } = &options.output {
        // If this fails, an empty recording stays.
        let _ = std::fs::remove_file(path);
    }
}

/// The number of a recording. Each request has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RecordingNumber(u64);

/// The number of the first recording.
const FIRST: RecordingNumber = RecordingNumber(0);

/// A recording on request.
struct Requested {
    recording: Recording,
    duration: Duration,
    /// The time until which the first recording must be processed. `None`: samples are taken.
    end: Option<u64>,
    reply: Sender<Result<Summary>>,
}

struct Capture {
    host: Host,
    queue: RecordQueue<(RecordingNumber, RingRecord)>,
    first: Recording,
    requests: Requests,
    requested: BTreeMap<RecordingNumber, Requested>,
    /// The number of the last request.
    next: RecordingNumber,
    /// The processor time that opening the events of requests took.
    opening: Duration,
}

impl Capture {
    /// Reads the mappings of processes that run already.
    fn look_up_running(&mut self, target: &Target) {
        match target {
            Target::Process(pid) => self.host.look_up(*pid),
            Target::All => self.host.look_up_all(),
            Target::Cgroup(_) | Target::Program(_) => {}
        }
    }

    fn run(
        &mut self,
        options: &RecordOptions,
        mut program: Option<&mut RunningProgram>,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let mut last_block = Instant::now();
        let mut last_used = self.used();
        loop {
            let elapsed = self.first.elapsed();
            let left = options
                .duration
                .map_or(WAIT, |duration| duration.saturating_sub(elapsed));
            let is_over = stop.load(Ordering::Relaxed)
                || left.is_zero()
                || program.as_mut().is_some_and(|program| program.end().is_some())
                || matches!(&options.target, Target::Process(pid) if has_ended(*pid));
            if is_over {
                return Ok(());
            }
            if let Some(batch) = self.first.receive(left.min(WAIT))? {
                self.add(FIRST, batch);
                self.receive_requested();
                self.process_complete()?;
            }
            self.end_requested();
            while let Some(request) = self.requests.take() {
                self.begin(request);
            }
            let since = last_block.elapsed();
            if since >= BLOCK {
                last_block = Instant::now();
                self.write_blocks()?;
                // A lower rate does not make the first reading of a file cheaper.
                let used = self.used();
                self.keep_budget(used.saturating_sub(last_used), since)?;
                last_used = used;
                self.host.forget_ended();
                progress(self.first.progress());
            }
        }
    }

    /// Returns the processor time of recording, without that of first looks.
    fn used(&self) -> Duration {
        processor_time().saturating_sub(self.host.first_looks() + self.opening)
    }

    fn keep_budget(&mut self, used: Duration, elapsed: Duration) -> Result<()> {
        self.first.keep_budget(used, elapsed)?;
        self.each_requested(|_, recording| recording.keep_budget(used, elapsed));
        Ok(())
    }

    fn write_blocks(&mut self) -> Result<()> {
        self.first.write_block(false)?;
        self.each_requested(|_, recording| recording.write_block(false));
        Ok(())
    }

    /// Calls a function for each recording on request, and ends those for which it fails.
    fn each_requested(&mut self, mut each: impl FnMut(&mut Host, &mut Recording) -> Result<()>) {
        let failed: Vec<_> = self
            .requested
            .iter_mut()
            .filter_map(|(number, requested)| {
                let error = each(&mut self.host, &mut requested.recording).err()?;
                Some((*number, error))
            })
            .collect();
        for (number, error) in failed {
            self.fail(number, error);
        }
    }

    /// Ends a request without a recording.
    fn fail(&mut self, number: RecordingNumber, error: Error) {
        if let Some(requested) = self.requested.remove(&number) {
            // The sender of the request may have gone.
            let _ = requested.reply.send(Err(error));
        }
    }

    /// Begins a recording on request.
    fn begin(&mut self, request: OpenRequest) {
        self.opening += request.events.opening;
        // The new program gets all that is known, and so must not get changes from before.
        self.update_walkers();
        let mut recording = Recording::new(request.events, request.file, request.clock, &self.host);
        let sampled = match self.first.kernel_walker() {
            Some(walker) => walker.tables.processes().collect(),
            None => Vec::new(),
        };
        recording.update_walker(&self.host.all(sampled), &self.host);
        if let Err(error) = recording.enable() {
            let _ = request.reply.send(Err(error));
            return;
        }
        self.next.0 += 1;
        let requested = Requested {
            recording,
            duration: request.duration,
            end: None,
            reply: request.reply,
        };
        self.requested.insert(self.next, requested);
    }

    /// Takes the records of recordings on request.
    fn receive_requested(&mut self) {
        let numbers: Vec<_> = self.requested.keys().copied().collect();
        for number in numbers {
            while let Some(Requested {
                recording, end: None, ..
            }) = self.requested.get_mut(&number)
            {
                match recording.receive(Duration::ZERO) {
                    Ok(Some(batch)) => self.add(number, batch),
                    Ok(None) => break,
                    Err(error) => self.fail(number, error),
                }
            }
        }
    }

    /// Stops the recordings on request whose time is over, and completes those whose records are
    /// processed.
    fn end_requested(&mut self) {
        let complete = self.first.complete();
        let numbers: Vec<_> = self.requested.keys().copied().collect();
        for number in numbers {
            let Some(requested) = self.requested.get(&number) else {
                continue;
            };
            match requested.end {
                None if requested.recording.elapsed() >= requested.duration => self.stop(number),
                Some(end) if complete >= end => self.complete(number),
                _ => {}
            }
        }
    }

    /// Ends to take the samples of a request.
    fn stop(&mut self, number: RecordingNumber) {
        let Some(requested) = self.requested.get_mut(&number) else {
            return;
        };
        match requested.recording.stop() {
            Ok(batches) => {
                requested.end = Some(requested.recording.drained());
                for batch in batches {
                    self.add(number, batch);
                }
            }
            Err(error) => self.fail(number, error),
        }
    }

    /// Completes the file of a request, and answers.
    fn complete(&mut self, number: RecordingNumber) {
        if let Some(requested) = self.requested.remove(&number) {
            let summary = requested.recording.finish(&mut self.host, None);
            // The sender of the request may have gone.
            let _ = requested.reply.send(summary);
        }
    }

    fn add(&mut self, number: RecordingNumber, batch: Batch) {
        for (time, record) in batch.records {
            self.queue.push(time, (number, record));
        }
    }

    /// Processes the records of the time that all rings were read for.
    fn process_complete(&mut self) -> Result<()> {
        let requested = self.requested.values();
        let requested = requested.map(|requested| requested.recording.complete());
        let complete = requested.fold(self.first.complete(), u64::min);
        self.process(complete)?;
        self.update_walkers();
        Ok(())
    }

    fn update_walkers(&mut self) {
        let Host { tasks, modules, .. } = &mut self.host;
        let requested = self.requested.values_mut();
        let recordings = requested.map(|requested| &mut requested.recording);
        for recording in recordings.chain([&mut self.first]) {
            if let Some(walker) = recording.kernel_walker() {
                walker.tables.build(tasks, modules);
            }
        }
        let changes = self.host.take_changes();
        let requested = self.requested.values_mut();
        let recordings = requested.map(|requested| &mut requested.recording);
        for recording in recordings.chain([&mut self.first]) {
            recording.update_walker(&changes, &self.host);
        }
    }

    fn process(&mut self, until: u64) -> Result<()> {
        let records: Vec<_> = self.queue.take_until(until).collect();
        for (time, (number, record)) in records {
            match self.process_record(number, record, time) {
                Err(error) if number != FIRST => self.fail(number, error),
                processed => processed?,
            }
        }
        Ok(())
    }

    fn process_record(&mut self, number: RecordingNumber, record: RingRecord, time: u64) -> Result<()> {
        let host = &mut self.host;
        let recording = match self.requested.get_mut(&number) {
            Some(requested) => &mut requested.recording,
            None if number == FIRST => &mut self.first,
            // The request has failed.
            None => return Ok(()),
        };
        match record {
            RingRecord::Sample(event, sample) => recording.sample(host, event, &sample, time),
            RingRecord::Walked(event, walked) => recording.walked(host, event, &walked, time),
            RingRecord::Code(_, code) => {
                host.python.add(&code);
                Ok(())
            }
            RingRecord::Other(Record {
                event: event @ (RecordEvent::Lost { .. } | RecordEvent::Switch(_)),
                ..
            }) => recording.other(host, &event, time),
            RingRecord::Other(record) => self.change(&record, time),
        }
    }

    /// Applies a change of a process or thread, which concerns all recordings.
    fn change(&mut self, record: &Record, time: u64) -> Result<()> {
        self.first.other(&mut self.host, &record.event, time)?;
        self.each_requested(|host, recording| recording.other(host, &record.event, time));
        self.host.apply(record);
        Ok(())
    }

    fn finish(mut self, used: Option<ProcessorTime>) -> Result<Summary> {
        let numbers: Vec<_> = self.requested.keys().copied().collect();
        for number in &numbers {
            self.stop(*number);
        }
        for batch in self.first.stop()? {
            self.add(FIRST, batch);
        }
        self.process(u64::MAX)?;
        for number in numbers {
            self.complete(number);
        }
        self.first.finish(&mut self.host, used)
    }
}

/// Returns whether all threads of a process have ended. Its parent may not have waited for it.
fn has_ended(pid: Pid) -> bool {
    let pid = i32::try_from(pid.0).unwrap_or(-1);
    status::has_ended(pid) && status::threads(pid).into_iter().all(status::has_ended)
}
