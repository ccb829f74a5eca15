//! A recording: its events with their rings, and the file that their samples go to.

use crate::address::{CodeBranch, CodeFrame};
use crate::budget::Budget;
use crate::clock::{Clock, monotonic};
use crate::event::{SampledEvent, Wakeup};
use crate::generated_code::GeneratedCode;
use crate::host::Host;
use crate::kernel_walker::{KernelWalker, WalkerChanges};
use crate::off_cpu::{OffCpu, Wait, Waker};
use crate::open_events::{OpenEvents, Walker};
use crate::reader::{Batch, ReaderThread};
use crate::sampled_time::{self, ProcessorTime};
use crate::sampler::Sampler;
use crate::segment::RecordingFile;
use crate::segment_ids::{Code, NamedThread, SegmentIds};
use crate::stack_walker::StackWalker;
use crate::summary::{Progress, Summary};
use crate::walked_sample::WalkedSample;
use crate::{Error, Result};
use backtrail_perf::record::RecordEvent;
use backtrail_perf::sample::Sample as RingSample;
use backtrail_profile::{BranchStack, EventId, Label, LabelValue, Profile, Sample};
use backtrail_pt::{Cpu, Pid, Tid};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// A recording that is taken.
pub(crate) struct Recording {
    sampler: Arc<Sampler>,
    reader: ReaderThread,
    kernel_walker: Walker,
    file: RecordingFile,
    clock: Clock,
    frequency: u64,
    generated: GeneratedCode,
    walker: StackWalker,
    off_cpu: OffCpu,
    ids: SegmentIds,
    budget: Budget,
    began: Instant,
    /// The time until which all records were read from the rings.
    drained: u64,
    /// The time until which no record can come any more.
    complete: u64,
    samples: u64,
    lost: u64,
    block_lost: u64,
    /// The processes that had been read before.
    read_before: u64,
    notes: Vec<String>,
    /// The processor time of all samples in nanoseconds.
    sampled: u64,
}

impl Recording {
    /// Returns a recording of disabled events.
    pub fn new(events: OpenEvents, file: RecordingFile, clock: Clock, host: &Host) -> Self {
        let OpenEvents {
            sampler,
            reader,
            walker,
            frequency,
            cpu_budget,
            notes,
            ..
        } = events;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let now = monotonic();
        Self {
            sampler,
            reader,
            kernel_walker: walker,
            file,
            clock,
            frequency,
            generated: GeneratedCode::default(),
            walker: StackWalker::default(),
            off_cpu: OffCpu::default(),
            ids: SegmentIds::default(),
            budget: Budget::new(cpu_budget, cpus, frequency),
            began: Instant::now(),
            drained: now,
            complete: now,
            samples: 0,
            lost: 0,
            block_lost: 0,
            read_before: host.tasks.processes_read(),
            notes: notes.into_iter().chain(host.kernel.note()).collect(),
            sampled: 0,
        }
    }

    /// Begins to take samples.
    ///
    /// # Errors
    ///
    /// Those of [`Sampler::enable`].
    pub fn enable(&self) -> Result<()> {
        self.sampler.enable()
    }

    /// Begins to watch the generated code of a process that may end soon.
    pub fn watch(&mut self, pid: Pid) {
        self.generated.watch(pid);
    }

    /// Returns the next records. `None`: there are none within `time`.
    ///
    /// # Errors
    ///
    /// Those of reading the rings.
    pub fn receive(&mut self, time: Duration) -> Result<Option<Batch>> {
        let Some(batch) = self.reader.receive(time)? else {
            return Ok(None);
        };
        // A ring that was read before another one may lack a record of the batch's own time.
        self.complete = std::mem::replace(&mut self.drained, batch.until);
        Ok(Some(batch))
    }

    /// Ends to take samples, and returns the last records.
    ///
    /// # Errors
    ///
    /// Those of reading the rings.
    pub fn stop(&mut self) -> Result<Vec<Batch>> {
        // The threads of a process that ended have no events to disable.
        let _ = self.sampler.disable();
        let batches = self.reader.finish()?;
        self.drained = batches.last().map_or(self.drained, |batch| batch.until);
        self.complete = u64::MAX;
        Ok(batches)
    }

    /// Returns the time until which all records are known.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// Returns the time of the last reading of the rings.
    pub fn drained(&self) -> u64 {
        self.drained
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the program that walks stacks, if there is one.
    pub fn kernel_walker(&mut self) -> Option<&mut KernelWalker> {
        self.kernel_walker.as_mut().ok()
    }

    /// Gives changes of the host to the program that walks stacks.
    pub fn update_walker(&mut self, changes: &WalkerChanges, host: &Host) {
        if let Ok(walker) = &mut self.kernel_walker {
            walker.tables.update(changes, &host.tasks, &host.modules);
        }
    }

    /// Lowers or raises the rate by the processor time that was used.
    ///
    /// # Errors
    ///
    /// The kernel refuses the rate.
    pub fn keep_budget(&mut self, used: Duration, elapsed: Duration) -> Result<()> {
        let Some(frequency) = self.budget.update(used, elapsed) else {
            return Ok(());
        };
        if let Ok(walker) = &self.kernel_walker {
            let set = walker.set_frequency(&self.sampler, frequency);
            set.map_err(|error| Error::Call { call: "bpf", error })?;
        }
        self.sampler.set_frequency(frequency, monotonic())
    }

    /// Returns the state.
    pub fn progress(&self) -> Progress {
        Progress {
            elapsed: self.began.elapsed(),
            samples: self.samples,
            lost: self.lost,
            bytes: self.file.written(),
            removed_files: self.file.removed(),
        }
    }

    /// Adds a sample of the kernel.
    ///
    /// # Errors
    ///
    /// Those of adding to a table.
    pub fn sample(&mut self, host: &mut Host, event: usize, sample: &RingSample, time: u64) -> Result<()> {
        let Some((pid, tid)) = sample.pid.zip(sample.tid) else {
            return Ok(());
        };
        if let Some(SampledEvent::Wakeups(tracepoint)) = self.sampler.events().get(event) {
            let wakeup = tracepoint.parse(&sample.payload);
            if let Some(wakeup) = wakeup.filter(|wakeup| self.off_cpu.is_waiting(wakeup.woken)) {
                self.wake(host, wakeup, sample, (pid, tid), time);
            }
            return Ok(());
        }
        host.look_up(pid);
        let frames = self.walker.walk(sample, &host.tasks, &mut host.modules);
        if let Ok(walker) = &mut self.kernel_walker {
            walker.tables.want(pid, frames.last() != Some(&CodeFrame::Lost));
        }
        let weight = sample.period.unwrap_or(0);
        let labels = self.labels(host, pid, &[], time);
        if !sample.branches.is_empty() {
            let branches = StackWalker::branches(sample, &host.tasks, &host.modules);
            let new = NewSample {
                event,
                weight: weight.max(1),
                time,
                pid,
                tid,
                cpu: sample.cpu,
                frames,
                branches,
                labels,
            };
            return self.add(host, new);
        }
        self.stack(
            host,
            event,
            (pid, tid, sample.cpu),
            weight,
            (frames, labels),
            time,
        )
    }

    /// Adds a sample whose stack an eBPF program has walked.
    ///
    /// # Errors
    ///
    /// Those of adding to a table.
    pub fn walked(&mut self, host: &mut Host, event: usize, walked: &WalkedSample, time: u64) -> Result<()> {
        let sample = &walked.sample;
        let Some((pid, tid)) = sample.pid.zip(sample.tid) else {
            return Ok(());
        };
        let frames = self
            .walker
            .frames(walked, &host.tasks, &host.modules, &mut host.python);
        let weight = walked.stack.head.weight;
        let labels = self.labels(host, pid, &walked.stack.context, time);
        self.stack(
            host,
            event,
            (pid, tid, sample.cpu),
            weight,
            (frames, labels),
            time,
        )
    }

    /// Returns the labels of a sample, by the thread's context that an eBPF program has copied.
    fn labels(&self, host: &mut Host, pid: Pid, context: &[u8], time: u64) -> Vec<(String, String)> {
        if self.kernel_walker.is_ok() {
            host.contexts.look_up(pid, monotonic());
        }
        host.contexts.labels(pid, time, context)
    }

    /// Adds a sample with its frames, or begins a wait.
    fn stack(
        &mut self,
        host: &mut Host,
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
        let new = NewSample {
            event,
            weight: weight.max(1),
            time,
            pid,
            tid,
            cpu,
            frames,
            branches: Vec::new(),
            labels,
        };
        self.add(host, new)
    }

    /// Notes what ended a wait.
    fn wake(
        &mut self,
        host: &mut Host,
        wakeup: Wakeup,
        sample: &RingSample,
        (pid, tid): (Pid, Tid),
        time: u64,
    ) {
        let waker = match wakeup.by_interrupt {
            true => Waker::Interrupt,
            false => {
                host.look_up(pid);
                Waker::Thread {
                    pid,
                    tid,
                    cpu: sample.cpu,
                    frames: self.walker.walk(sample, &host.tasks, &mut host.modules),
                    time,
                }
            }
        };
        self.off_cpu.wake(wakeup.woken, waker);
    }

    /// Applies a record that is no sample. Each recording gets those of its own rings, and the
    /// changes of processes.
    ///
    /// # Errors
    ///
    /// Those of adding to a table.
    pub fn other(&mut self, host: &mut Host, event: &RecordEvent, time: u64) -> Result<()> {
        match event {
            RecordEvent::Lost { count } => {
                self.lost = self.lost.saturating_add(*count);
                self.block_lost = self.block_lost.saturating_add(*count);
            }
            RecordEvent::Switch(switch) => {
                if let Some((wait, length)) = self.off_cpu.switch(switch.tid, switch.direction, time) {
                    self.add_wait(host, wait, length)?;
                }
            }
            RecordEvent::Comm { pid, exec: true, .. } => self.generated.execute(*pid, time),
            RecordEvent::Exit { tid, .. } => self.off_cpu.end(*tid),
            _ => {}
        }
        Ok(())
    }

    /// Adds a sample of a wait, and one of the thread that ended it.
    fn add_wait(&mut self, host: &mut Host, wait: Wait, length: u64) -> Result<()> {
        let event = |wanted: fn(&SampledEvent) -> bool| self.sampler.events().iter().position(wanted);
        let waits = event(|event| *event == SampledEvent::OffCpu).unwrap_or(0);
        let wakeups = event(|event| matches!(event, SampledEvent::Wakeups(_))).unwrap_or(0);
        let mut named = |tid: Tid| format!("{} ({tid})", host.tasks.name(tid));
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
        let waited = NewSample {
            event: waits,
            weight: length,
            time: wait.since,
            pid: wait.pid,
            tid: wait.tid,
            cpu: wait.cpu,
            frames: wait.frames,
            branches: Vec::new(),
            labels,
        };
        self.add(host, waited)?;
        waking.map_or(Ok(()), |waking| self.add(host, waking))
    }

    /// Adds a sample to the segment.
    fn add(&mut self, host: &mut Host, new: NewSample) -> Result<()> {
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
        if self.sampler.events().get(new.event) == Some(&SampledEvent::Cpu) {
            self.sampled = self.sampled.saturating_add(new.weight);
        }
        for frame in &new.frames {
            if let Some(address) = frame.user_address() {
                let dump = host.tasks.jitdump(new.pid);
                self.generated.hit(new.pid, address, dump);
            }
        }
        let code = Code {
            modules: &host.modules,
            kernel: &host.kernel,
            python: &host.python,
        };
        let stack = self.ids.stack(profile, &new.frames, code)?;
        let thread = NamedThread {
            pid: new.pid,
            tid: new.tid,
            process_name: host.tasks.name(Tid(new.pid.0)),
            name: host.tasks.name(new.tid),
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

    /// Writes the samples since the last block.
    ///
    /// # Errors
    ///
    /// Those of writing the file.
    pub fn write_block(&mut self, is_last: bool) -> Result<()> {
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

    /// Returns a sentence if much of a program's processor time has no samples.
    fn note_of_time(&self, used: ProcessorTime) -> Option<String> {
        let is_sampled = self.sampler.events().contains(&SampledEvent::Cpu);
        let used = used.of(self.sampler.has_kernel());
        let sampled = Duration::from_nanos(self.sampled);
        let period = Duration::from_nanos(Sampler::period(&SampledEvent::Cpu, self.frequency));
        sampled_time::note(sampled, used, period).filter(|_| is_sampled)
    }

    /// Writes the last block. Every record must have been processed. `used` is the processor time
    /// of the program, if one was started.
    ///
    /// # Errors
    ///
    /// Those of writing the file.
    pub fn finish(mut self, host: &mut Host, used: Option<ProcessorTime>) -> Result<Summary> {
        let waits: Vec<_> = self.off_cpu.finish(self.drained).collect();
        for (wait, length) in waits {
            self.add_wait(host, wait, length)?;
        }
        let mut last = Vec::new();
        if let Some(frequency) = self.budget.lowered_to() {
            last.push(format!(
                "the rate was lowered to {frequency} samples a second, to stay within the budget of processor time"
            ));
        }
        last.extend(used.and_then(|used| self.note_of_time(used)));
        last.extend(self.generated.note());
        last.extend(host.notes());
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
            processes_read: host.tasks.processes_read().saturating_sub(self.read_before),
            program: None,
            notes: self.notes,
        })
    }
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
