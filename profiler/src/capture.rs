//! Takes a recording: the loop that moves samples from the rings to the file.

use crate::address::{CodeBranch, CodeFrame};
use crate::budget::Budget;
use crate::clock::{Clock, monotonic, processor_time};
use crate::event::{SampledEvent, Wakeup};
use crate::generated_code::GeneratedCode;
use crate::heap;
use crate::kernel::Kernel;
use crate::kernel_walker::KernelWalker;
use crate::modules::Modules;
use crate::off_cpu::{OffCpu, Wait, Waker};
use crate::options::{RecordOptions, RecordingOutput, StackMethod, Target};
use crate::program::{ProgramEnd, RunningProgram, WaitingProgram};
use crate::python::PythonCode;
use crate::reader::{Batch, ReaderThread};
use crate::record_queue::RecordQueue;
use crate::sampler::{RingRecord, Rings, Sampler, SamplerOptions};
use crate::segment::RecordingFile;
use crate::segment_ids::{Code, NamedThread, SegmentIds};
use crate::stack_walker::StackWalker;
use crate::tasks::Tasks;
use crate::thread_context::ThreadContexts;
use crate::walked_sample::WalkedSample;
use crate::{Error, Result};
use backtrail_perf::record::{Record, RecordEvent};
use backtrail_perf::sample::Sample as RingSample;
use backtrail_process::status;
use backtrail_profile::{BranchStack, EventId, Label, LabelValue, Profile, Sample};
use backtrail_pt::{Cpu, Pid, Tid};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for samples.
const WAIT: Duration = Duration::from_millis(100);
/// The time between blocks.
const BLOCK: Duration = Duration::from_millis(900);
/// The memory of all unwind tables.
const TABLE_BUDGET: usize = 40 << 20;
/// The memory of the tables in the kernel.
const KERNEL_TABLE_BUDGET: usize = 32 << 20;

/// The state of a recording, about once a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The time since the start.
    pub elapsed: Duration,
    /// The number of samples.
    pub samples: u64,
    /// The number of records that the kernel dropped.
    pub lost: u64,
    /// The number of bytes written.
    pub bytes: u64,
    /// The number of files that were removed to keep a spool below its limit.
    pub removed_files: u64,
}

/// The result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The state at the end.
    pub progress: Progress,
    /// The number of stacks of programs.
    pub stacks: u64,
    /// The number of those that do not reach the start of their thread.
    pub incomplete: u64,
    /// The number of stacks that an eBPF program walked. The kernel copied the others.
    pub walked: u64,
    /// The reason why no eBPF program walks stacks. `None`: one does.
    pub no_ebpf: Option<String>,
    /// The reason why the rings were read without real-time priority. `None`: they were with it.
    pub no_priority: Option<String>,
    /// The end of the program, if one was started.
    pub program: Option<ProgramEnd>,
    /// Sentences about what the recording lacks.
    pub notes: Vec<String>,
}

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
    heap::return_large_blocks();
    let waiting = match &options.target {
        Target::Program(arguments) => Some(WaitingProgram::start(arguments)?),
        _ => None,
    };
    let (sampler, mut rings) = Sampler::open(&SamplerOptions {
        target: &options.target,
        program: waiting.as_ref().map(WaitingProgram::pid),
        events: &options.events,
        frequency: options.frequency,
    })?;
    let walker = attach_walker(options, &sampler, &mut rings)?;
    heap::return_free_pages();
    let clock = Clock::now();
    let start = clock.unix(monotonic());
    let file = RecordingFile::open(&options.output, start)?;
    let reader = ReaderThread::start(rings, monotonic)?;
    let mut capture = Capture::new(options, (sampler, reader, walker), file, clock);
    let mut program = match waiting {
        // The events begin with its `execve`.
        Some(waiting) => {
            capture.generated.watch(waiting.pid());
            Some(waiting.release().inspect_err(|_| capture.remove_empty(options))?)
        }
        None => {
            capture.sampler.enable()?;
            capture.look_up_running(&options.target);
            None
        }
    };
    let looped = capture.run(options, program.as_mut(), stop, progress);
    let ended = program.as_mut().and_then(RunningProgram::terminate);
    looped?;
    capture.finish(ended)
}

/// Attaches eBPF programs that walk stacks.
fn attach_walker(options: &RecordOptions, sampler: &Sampler, rings: &mut Rings) -> Result<Walker> {
    let budget = match options.target {
        Target::All | Target::Cgroup(_) => KERNEL_TABLE_BUDGET,
        Target::Process(_) | Target::Program(_) => KERNEL_TABLE_BUDGET / 2,
    };
    let is_wanted = options.stack_method != StackMethod::Copy && sampler.walked_events().next().is_some();
    let attached = match is_wanted {
        true => KernelWalker::attach(sampler, rings, budget),
        false => Err("not asked for".to_owned()),
    };
    match attached {
        Err(reason) if options.stack_method == StackMethod::Ebpf => Err(Error::NoEbpf(reason)),
        attached => Ok(attached),
    }
}

/// The eBPF programs, or the reason why there are none.
type Walker = std::result::Result<KernelWalker, String>;

/// A sample before it gets the ids of a segment.
struct NewSample {
    event: usize,
    weight: u64,
    time: u64,
    pid: Pid,
    tid: Tid,
    cpu: Option<Cpu>,
    frames: Vec<CodeFrame>,
    /// The last branches, the newest first.
    branches: Vec<CodeBranch>,
    /// The labels, by key.
    labels: Vec<(String, String)>,
}

struct Capture {
    sampler: Arc<Sampler>,
    reader: ReaderThread,
    file: RecordingFile,
    clock: Clock,
    frequency: u64,
    queue: RecordQueue<RingRecord>,
    /// The time until which all records are in the queue or processed.
    drained: u64,
    modules: Modules,
    tasks: Tasks,
    kernel: Kernel,
    generated: GeneratedCode,
    walker: StackWalker,
    kernel_walker: Walker,
    python: PythonCode,
    contexts: ThreadContexts,
    off_cpu: OffCpu,
    ids: SegmentIds,
    budget: Budget,
    began: Instant,
    samples: u64,
    lost: u64,
    block_lost: u64,
    notes: Vec<String>,
}

impl Capture {
    fn new(
        options: &RecordOptions,
        (sampler, reader, kernel_walker): (Arc<Sampler>, ReaderThread, Walker),
        file: RecordingFile,
        clock: Clock,
    ) -> Self {
        let mut modules = Modules::new(TABLE_BUDGET);
        let mut tasks = Tasks::default();
        let mut notes = Vec::new();
        let mut kernel = Kernel::default();
        if sampler.has_kernel() {
            kernel = tasks.map_kernel(&mut modules);
            notes.extend(kernel.note());
        } else {
            notes.push("the kernel was not sampled, because this user may not do that".to_owned());
        }
        if options.events.contains(&SampledEvent::Cycles) && !sampler.events().contains(&SampledEvent::Cycles)
        {
            notes.push(
                "this machine does not count cycles; the samples are of processor time instead".to_owned(),
            );
        }
        let has_wakeups = |event: &SampledEvent| matches!(event, SampledEvent::Wakeups(_));
        if options.events.contains(&SampledEvent::OffCpu) && !sampler.events().iter().any(has_wakeups) {
            notes.push(
                "the threads that end waits were not recorded, because this user may not read tracepoints"
                    .to_owned(),
            );
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            sampler,
            reader,
            file,
            clock,
            frequency: options.frequency,
            queue: RecordQueue::default(),
            drained: monotonic(),
            modules,
            tasks,
            kernel,
            generated: GeneratedCode::default(),
            walker: StackWalker::default(),
            kernel_walker,
            python: PythonCode::default(),
            contexts: ThreadContexts::default(),
            off_cpu: OffCpu::default(),
            ids: SegmentIds::default(),
            budget: Budget::new(options.cpu_budget, cpus, options.frequency),
            began: Instant::now(),
            samples: 0,
            lost: 0,
            block_lost: 0,
            notes,
        }
    }

    /// Removes a recording of a program that did not start.
    fn remove_empty(&self, options: &RecordOptions) {
        if let RecordingOutput::File { path, .. } = &options.output {
            // If this fails, an empty recording stays.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Reads the mappings of processes that run already.
    fn look_up_running(&mut self, target: &Target) {
        match target {
            Target::Process(pid) => self.tasks.look_up(*pid, &mut self.modules),
            Target::All => {
                let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
                let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
                for pid in pids {
                    self.tasks.look_up(Pid(pid), &mut self.modules);
                }
            }
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
        let mut last_used = processor_time().saturating_sub(self.first_looks());
        loop {
            let elapsed = self.began.elapsed();
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
            if let Some(batch) = self.reader.receive(left.min(WAIT))? {
                self.process_batch(batch)?;
            }
            let since = last_block.elapsed();
            if since >= BLOCK {
                last_block = Instant::now();
                self.write_block(false)?;
                // A lower rate does not make the first reading of a file cheaper.
                let used = processor_time().saturating_sub(self.first_looks());
                if let Some(frequency) = self.budget.update(used.saturating_sub(last_used), since) {
                    self.set_frequency(frequency)?;
                }
                last_used = used;
                for pid in self.tasks.forget_ended() {
                    self.python.forget(pid);
                }
                progress(self.progress());
            }
        }
    }

    fn set_frequency(&self, frequency: u64) -> Result<()> {
        if let Ok(walker) = &self.kernel_walker {
            let set = walker.set_frequency(&self.sampler, frequency);
            set.map_err(|error| Error::Call { call: "bpf", error })?;
        }
        self.sampler.set_frequency(frequency, monotonic())
    }

    /// Returns the processor time that went into reading the files and mappings of processes.
    fn first_looks(&self) -> Duration {
        self.modules.reading() + self.tasks.reading()
    }

    fn progress(&self) -> Progress {
        Progress {
            elapsed: self.began.elapsed(),
            samples: self.samples,
            lost: self.lost,
            bytes: self.file.written(),
            removed_files: self.file.removed(),
        }
    }

    /// Processes the records of the time before the last batch. A ring that was read before another
    /// one may lack a record of the batch's own time.
    fn process_batch(&mut self, batch: Batch) -> Result<()> {
        for (time, record) in batch.records {
            self.queue.push(time, record);
        }
        let complete = std::mem::replace(&mut self.drained, batch.until);
        self.process(complete)?;
        if let Ok(walker) = &mut self.kernel_walker {
            walker.tables.update(&mut self.tasks, &mut self.modules);
            for (pid, slot) in self.contexts.take_changed() {
                walker.tables.set_slot(pid, slot);
            }
        }
        Ok(())
    }

    fn process(&mut self, until: u64) -> Result<()> {
        let records: Vec<_> = self.queue.take_until(until).collect();
        for (time, record) in records {
            match record {
                RingRecord::Sample(event, sample) => self.sample(event, &sample, time)?,
                RingRecord::Walked(event, walked) => self.walked(event, &walked, time)?,
                RingRecord::Code(_, code) => self.python.add(&code),
                RingRecord::Other(record) => self.other(&record, time)?,
            }
        }
        Ok(())
    }

    fn sample(&mut self, event: usize, sample: &RingSample, time: u64) -> Result<()> {
        let Some((pid, tid)) = sample.pid.zip(sample.tid) else {
            return Ok(());
        };
        if let Some(SampledEvent::Wakeups(tracepoint)) = self.sampler.events().get(event) {
            let wakeup = tracepoint.parse(&sample.payload);
            if let Some(wakeup) = wakeup.filter(|wakeup| self.off_cpu.is_waiting(wakeup.woken)) {
                self.wake(wakeup, sample, (pid, tid), time);
            }
            return Ok(());
        }
        self.tasks.look_up(pid, &mut self.modules);
        let frames = self.walker.walk(sample, &self.tasks, &mut self.modules);
        if let Ok(walker) = &mut self.kernel_walker {
            walker.tables.want(pid, frames.last() != Some(&CodeFrame::Lost));
        }
        let weight = sample.period.unwrap_or(0);
        let labels = self.labels(pid, &[], time);
        if !sample.branches.is_empty() {
            let branches = StackWalker::branches(sample, &self.tasks, &self.modules);
            return self.add(NewSample {
                event,
                weight: weight.max(1),
                time,
                pid,
                tid,
                cpu: sample.cpu,
                frames,
                branches,
                labels,
            });
        }
        self.stack(event, (pid, tid, sample.cpu), weight, (frames, labels), time)
    }

    /// Adds a sample whose stack an eBPF program has walked.
    fn walked(&mut self, event: usize, walked: &WalkedSample, time: u64) -> Result<()> {
        let sample = &walked.sample;
        let Some((pid, tid)) = sample.pid.zip(sample.tid) else {
            return Ok(());
        };
        let frames = self
            .walker
            .frames(walked, &self.tasks, &self.modules, &mut self.python);
        let weight = walked.stack.head.weight;
        let labels = self.labels(pid, &walked.stack.context, time);
        self.stack(event, (pid, tid, sample.cpu), weight, (frames, labels), time)
    }

    /// Returns the labels of a sample, by the thread's context that an eBPF program has copied.
    fn labels(&mut self, pid: Pid, context: &[u8], time: u64) -> Vec<(String, String)> {
        if self.kernel_walker.is_ok() {
            self.contexts.look_up(pid, monotonic());
        }
        self.contexts.labels(pid, time, context)
    }

    /// Adds a sample with its frames, or begins a wait.
    fn stack(
        &mut self,
        event: usize,
        (pid, tid, cpu): (Pid, Tid, Option<Cpu>),
        weight: u64,
        (frames, labels): (Vec<CodeFrame>, Vec<(String, String)>),
        time: u64,
    ) -> Result<()> {
        if self.sampler.events().get(event) == Some(&SampledEvent::OffCpu) {
            self.off_cpu.leave(Wait {
                pid,
                tid,
                cpu,
                frames,
                since: time,
                waker: None,
                labels,
            });
            return Ok(());
        }
        self.add(NewSample {
            event,
            weight: weight.max(1),
            time,
            pid,
            tid,
            cpu,
            frames,
            branches: Vec::new(),
            labels,
        })
    }

    /// Notes what ended a wait.
    fn wake(&mut self, wakeup: Wakeup, sample: &RingSample, (pid, tid): (Pid, Tid), time: u64) {
        let waker = match wakeup.by_interrupt {
            true => Waker::Interrupt,
            false => {
                self.tasks.look_up(pid, &mut self.modules);
                Waker::Thread {
                    pid,
                    tid,
                    cpu: sample.cpu,
                    frames: self.walker.walk(sample, &self.tasks, &mut self.modules),
                    time,
                }
            }
        };
        self.off_cpu.wake(wakeup.woken, waker);
    }

    fn other(&mut self, record: &Record, time: u64) -> Result<()> {
        match &record.event {
            RecordEvent::Lost { count } => {
                self.lost = self.lost.saturating_add(*count);
                self.block_lost = self.block_lost.saturating_add(*count);
            }
            RecordEvent::Switch(switch) => {
                if let Some((wait, length)) = self.off_cpu.switch(switch.tid, switch.direction, time) {
                    self.add_wait(wait, length)?;
                }
            }
            RecordEvent::Comm { pid, exec: true, .. } => {
                self.generated.execute(*pid, time);
                self.contexts.forget(*pid);
                self.tasks.apply(record, &mut self.modules);
            }
            RecordEvent::Exit { pid, tid } => {
                self.off_cpu.end(*tid);
                if pid.0 == tid.0 {
                    self.contexts.forget(*pid);
                }
                self.tasks.apply(record, &mut self.modules);
            }
            _ => self.tasks.apply(record, &mut self.modules),
        }
        Ok(())
    }

    /// Adds a sample of a wait, and one of the thread that ended it.
    fn add_wait(&mut self, wait: Wait, length: u64) -> Result<()> {
        let event = |wanted: fn(&SampledEvent) -> bool| self.sampler.events().iter().position(wanted);
        let waits = event(|event| *event == SampledEvent::OffCpu).unwrap_or(0);
        let wakeups = event(|event| matches!(event, SampledEvent::Wakeups(_))).unwrap_or(0);
        let mut named = |tid: Tid| format!("{} ({tid})", self.tasks.name(tid));
        let mut labels = wait.labels;
        let mut waking = None;
        match wait.waker {
            None => {}
            Some(Waker::Interrupt) => labels.push(("waker".to_owned(), "interrupt".to_owned())),
            Some(Waker::Thread {
                pid,
                tid,
                cpu,
                frames,
                time,
            }) => {
                labels.push(("waker".to_owned(), named(tid)));
                waking = Some(NewSample {
                    event: wakeups,
                    weight: length,
                    time,
                    pid,
                    tid,
                    cpu,
                    frames,
                    branches: Vec::new(),
                    labels: vec![("woken".to_owned(), named(wait.tid))],
                });
            }
        }
        self.add(NewSample {
            event: waits,
            weight: length,
            time: wait.since,
            pid: wait.pid,
            tid: wait.tid,
            cpu: wait.cpu,
            frames: wait.frames,
            branches: Vec::new(),
            labels,
        })?;
        waking.map_or(Ok(()), |waking| self.add(waking))
    }

    /// Adds a sample to the segment.
    fn add(&mut self, new: NewSample) -> Result<()> {
        let (segment, number) = self.file.segment();
        let profile = &mut segment.profile;
        let is_new = self.ids.begin(number, || {
            add_events(profile, self.sampler.events(), self.frequency)
        })?;
        if is_new {
            self.generated.begin_segment();
        }
        let Some(event) = self.ids.event(new.event) else {
            return Ok(());
        };
        for frame in &new.frames {
            if let Some(address) = frame.user_address() {
                let dump = self.tasks.jitdump(new.pid);
                self.generated.hit(new.pid, address, dump);
            }
        }
        let code = Code {
            modules: &self.modules,
            kernel: &self.kernel,
            python: &self.python,
        };
        let stack = self.ids.stack(profile, &new.frames, code)?;
        let thread = NamedThread {
            pid: new.pid,
            tid: new.tid,
            process_name: self.tasks.name(Tid(new.pid.0)),
            name: self.tasks.name(new.tid),
        };
        let thread = self.ids.thread(profile, thread)?;
        let mut labels = Vec::new();
        for (key, value) in &new.labels {
            labels.push(Label {
                key: profile.string(key)?,
                value: LabelValue::Text(profile.string(value)?),
            });
        }
        let labels = profile.label_set(labels)?;
        profile.samples.push(Sample {
            event,
            weight: i64::try_from(new.weight).unwrap_or(i64::MAX),
            stack,
            time: Some(self.clock.unix(new.time)),
            thread: Some(thread),
            cpu: new.cpu,
            labels,
        });
        if !new.branches.is_empty() {
            let branches = self.ids.branches(profile, &new.branches, code)?;
            profile.branch_stacks.push(BranchStack { stack, branches });
        }
        self.samples += 1;
        Ok(())
    }

    fn write_block(&mut self, is_last: bool) -> Result<()> {
        let removed = match self.file.removed() {
            0 => None,
            count => Some(format!(
                "{count} files of the spool were removed before they were sent, because it reached its limit"
            )),
        };
        let (segment, _) = self.file.segment();
        let clock = self.clock;
        self.generated
            .add_to_block(segment, is_last, monotonic, |time| clock.unix(time))?;
        if segment.blocks() == 0 {
            segment.profile.notes.clone_from(&self.notes);
            segment.profile.notes.extend(removed);
        }
        let lost = std::mem::take(&mut self.block_lost);
        self.file.write_block(self.clock.unix(self.drained), lost)
    }

    fn finish(mut self, program: Option<ProgramEnd>) -> Result<Summary> {
        // The threads of a process that ended have no events to disable.
        let _ = self.sampler.disable();
        for batch in self.reader.finish()? {
            self.process_batch(batch)?;
        }
        self.process(u64::MAX)?;
        let waits: Vec<_> = self.off_cpu.finish(self.drained).collect();
        for (wait, length) in waits {
            self.add_wait(wait, length)?;
        }
        let mut last = Vec::new();
        if let Some(frequency) = self.budget.lowered_to() {
            last.push(format!(
                "the rate was lowered to {frequency} samples a second, to stay within the budget of processor time"
            ));
        }
        if self.modules.excluded() > 0 {
            last.push(format!(
                "the unwind tables of {} files exceed the memory for tables; stacks end there",
                self.modules.excluded()
            ));
        }
        last.extend(self.generated.note());
        last.extend(self.python.note());
        last.extend(self.modules.python_notes());
        self.notes.extend(last.iter().cloned());
        let (segment, _) = self.file.segment();
        if segment.blocks() > 0 {
            segment.profile.notes.extend(last);
        }
        self.write_block(true)?;
        self.file.complete()?;
        Ok(Summary {
            progress: self.progress(),
            stacks: self.walker.stacks,
            incomplete: self.walker.incomplete,
            walked: self.walker.walked,
            no_ebpf: self.kernel_walker.as_ref().err().cloned(),
            no_priority: self.reader.no_priority().map(str::to_owned),
            program,
            notes: self.notes,
        })
    }
}

/// Returns whether all threads of a process have ended. Its parent may not have waited for it.
fn has_ended(pid: Pid) -> bool {
    let pid = i32::try_from(pid.0).unwrap_or(-1);
    status::has_ended(pid) && status::threads(pid).into_iter().all(status::has_ended)
}

/// Adds the events to a segment, the last one of the user last, which views show first. Returns
/// their ids by their indexes in the sampler.
fn add_events(
    profile: &mut Profile,
    events: &[SampledEvent],
    frequency: u64,
) -> Result<HashMap<usize, EventId>> {
    let mut order: Vec<_> = events.iter().enumerate().collect();
    order.sort_by_key(|(_, event)| !matches!(event, SampledEvent::Wakeups(_)));
    let mut ids = HashMap::new();
    for (index, event) in order {
        let period = Sampler::period(event, frequency);
        ids.insert(index, profile.event(event.name(), event.unit(), period)?);
    }
    Ok(ids)
}
