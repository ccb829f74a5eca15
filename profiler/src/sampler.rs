//! Perf events that take samples, and the rings of their records.

use crate::cgroup;
use crate::event::{SampledEvent, WakeupTracepoint};
use crate::options::Target;
use crate::thinning::{Stretch, WantedPeriods};
use crate::walked_sample::WalkedSample;
use crate::{Error, Result};
use backtrail_bpf::{CodeEvent, SampleEvent};
use backtrail_perf::attr::Attr;
use backtrail_perf::cpu_list;
use backtrail_perf::event::{self, Event, Refusal};
use backtrail_perf::record::Record;
use backtrail_perf::ring::{self, Ring};
use backtrail_perf::sample::{PERF_RECORD_SAMPLE, Sample};
use backtrail_perf::sampling::{Counter, PROGRAM_OUTPUT, Rate, Sampling};
use backtrail_pt::{Cpu, Nanos, Pid, Tid};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const NANOS: u64 = 1_000_000_000;
const PAGE: usize = 4096;
/// The wait between readings of rings whose descriptors no longer wake up.
const HUNG_WAIT: Duration = Duration::from_millis(20);
/// The memory of all rings together.
const RINGS: usize = 1 << 25;
/// The memory that a reader keeps between two readings.
const BUFFER: usize = 1 << 20;

/// The size of a ring and the stack bytes of a sample, the best first. Without privileges, a user's
/// locked memory is limited (`kernel.perf_event_mlock_kb`, 516 KiB a processor).
const SIZES: [(usize, u32); 3] = [(1 << 22, 60 << 10), (1 << 19, 16 << 10), (1 << 17, 8 << 10)];
/// The stack bytes of a second of samples of one processor. The kernel copies them, and so does the
/// reader.
const STACK_BYTES_PER_SECOND: u64 = 16 << 20;
/// The most stack bytes of events that have a sample of each occurrence, which may be many.
const OCCURRENCE_STACK_BYTES: u32 = 16 << 10;
/// The fewest stack bytes of a sample.
const MIN_STACK_BYTES: u32 = 8 << 10;

/// A record of a ring.
#[derive(Debug)]
pub enum RingRecord {
    /// A sample of the event with this index in [`Sampler::events`].
    Sample(usize, Box<Sample>),
    /// A sample of the event with this index, whose stack an eBPF program has walked.
    Walked(usize, Box<WalkedSample>),
    /// A code object that later samples refer to, and its time.
    Code(Option<Nanos>, Box<CodeEvent>),
    /// A change of a process or thread, a context switch, or lost records.
    Other(Record),
}

/// Open events that write to one ring for each processor.
#[derive(Debug)]
pub struct Sampler {
    events: Vec<SampledEvent>,
    open: Vec<OpenEvent>,
    /// The index in `open` of the event that owns each ring.
    owners: Vec<usize>,
    indexes: HashMap<u64, usize>,
    sampling: Sampling,
    /// The ids of the events whose samples have branches.
    with_branches: HashSet<u64>,
    /// The period of timers.
    timer_period: u64,
    wanted: WantedPeriods,
}

/// The rings of a sampler. Another thread than that of the sampler may read them.
#[derive(Debug)]
pub struct Rings {
    sampler: Arc<Sampler>,
    rings: Vec<Ring>,
    buffer: Vec<u8>,
    walked: OutputIds,
    /// The stretches of each event, by the index of the ring.
    stretches: HashMap<(usize, usize), Stretch>,
}

/// The events by which eBPF programs write to the rings.
#[derive(Debug, Default)]
pub(crate) struct OutputIds {
    /// Their ids.
    pub ids: HashSet<u64>,
    /// The index of the event of each program in [`Sampler::events`].
    pub events: Vec<usize>,
}

/// The weight of a sample that the kernel made.
#[derive(Clone, Copy, Debug)]
enum SampleWeight {
    /// The kernel's own.
    Kernel,
    /// The period that was wanted then.
    AtTime,
    /// That of a stretch.
    Stretch(u64),
}

/// A sampler that is being opened.
struct Opening {
    sampler: Sampler,
    rings: Vec<Ring>,
}

#[derive(Debug)]
struct OpenEvent {
    event: Event,
    counter: Counter,
    /// The index in [`Sampler::events`].
    index: usize,
    cpu: Cpu,
}

/// The wish for samples that a sampler is opened with.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOptions<'a> {
    /// The programs that are sampled. A started program must wait for its `execve`.
    pub target: &'a Target,
    /// The process that becomes the program of [`Target::Program`].
    pub program: Option<Pid>,
    /// The events.
    pub events: &'a [SampledEvent],
    /// The samples a second of each busy processor.
    pub frequency: u64,
    /// Whether the rings have the changes of processes and threads, too.
    pub sideband: bool,
}

impl Sampler {
    /// Opens disabled events. Cycles that the machine cannot count become processor time. Without
    /// the permission to sample the kernel, only programs are sampled.
    ///
    /// # Errors
    ///
    /// [`Error::NotAllowed`], [`Error::NoEvent`] or [`Error::NoTarget`] with the reason.
    pub fn open(options: &SamplerOptions<'_>) -> Result<(Arc<Self>, Rings)> {
        let mut events = options.events.to_vec();
        if events.contains(&SampledEvent::OffCpu) {
            events.extend(WakeupTracepoint::find().ok().map(SampledEvent::Wakeups));
        }
        let is_wakeups = |event: &SampledEvent| matches!(event, SampledEvent::Wakeups(_));
        let mut kernel = true;
        let mut sizes = SIZES.into_iter();
        let mut size = sizes.next().unwrap_or((1 << 17, 8 << 10));
        loop {
            let error = match Opening::new(options, &events, kernel, size) {
                Ok(Opening { sampler, rings }) => {
                    let sampler = Arc::new(sampler);
                    let rings = Rings {
                        sampler: Arc::clone(&sampler),
                        rings,
                        buffer: Vec::new(),
                        walked: OutputIds::default(),
                        stretches: HashMap::new(),
                    };
                    return Ok((sampler, rings));
                }
                Err(error) => error,
            };
            match refusal(&error) {
                Some(Refusal::NoEvent | Refusal::Unsupported) if events.contains(&SampledEvent::Cycles) => {
                    let cpu = events.contains(&SampledEvent::Cpu);
                    events.retain(|event| *event != SampledEvent::Cycles);
                    if !cpu {
                        events.push(SampledEvent::Cpu);
                    }
                }
                // The payload needs more privileges than samples.
                Some(Refusal::NotAllowed) if events.iter().any(is_wakeups) => {
                    events.retain(|event| !is_wakeups(event));
                }
                Some(Refusal::NotAllowed) if kernel && !events.contains(&SampledEvent::OffCpu) => {
                    kernel = false
                }
                Some(Refusal::NotAllowed) => return Err(not_allowed(options.target)),
                None if matches!(error, Error::Perf(backtrail_perf::Error::Call { .. })) => {
                    size = sizes.next().ok_or(error)?;
                }
                _ => return Err(error),
            }
        }
    }

    /// Returns the events that are sampled.
    #[must_use]
    pub fn events(&self) -> &[SampledEvent] {
        &self.events
    }

    /// Returns the indexes of the events whose stacks an eBPF program may walk. Programs of
    /// tracepoints and uprobes would run for all processes.
    pub(crate) fn walked_events(&self) -> impl Iterator<Item = usize> {
        let events = self.events.iter().enumerate();
        let walked = events.filter(|(_, event)| {
            !matches!(
                event,
                SampledEvent::LastBranches
                    | SampledEvent::Tracepoint(_)
                    | SampledEvent::Uprobe(_)
                    | SampledEvent::Wakeups(_)
            )
        });
        walked.map(|(index, _)| index)
    }

    /// Returns the open events of a sampled event.
    pub(crate) fn open_events(&self, index: usize) -> impl Iterator<Item = &Event> {
        let open = self.open.iter().filter(move |open| open.index == index);
        open.map(|open| &open.event)
    }

    /// Returns the processors, and the event that owns the ring of each.
    pub(crate) fn ring_owners(&self) -> impl Iterator<Item = (Cpu, &Event)> {
        let owners = self.owners.iter().filter_map(|owner| self.open.get(*owner));
        owners.map(|open| (open.cpu, &open.event))
    }

    fn is_timer(&self, index: usize) -> bool {
        self.timer_period(index, 1).is_some()
    }

    /// Sets the weight of a sample.
    fn weigh(&self, sample: &mut Sample, weight: SampleWeight) {
        match weight {
            SampleWeight::Kernel => {}
            SampleWeight::AtTime => {
                let time = sample.time.map_or(0, |Nanos(time)| time);
                sample.period = Some(self.wanted.at(time).max(self.timer_period));
            }
            SampleWeight::Stretch(weight) => sample.period = Some(weight),
        }
    }

    /// Returns whether the kernel is sampled, too.
    #[must_use]
    pub fn has_kernel(&self) -> bool {
        self.sampling.kernel
    }

    /// Returns the weight of a sample of an event at a frequency, or 0 if the kernel decides.
    #[must_use]
    pub fn period(event: &SampledEvent, frequency: u64) -> u64 {
        match rate(&event.counter(), frequency) {
            // Their samples weigh the length of a wait.
            _ if matches!(event, SampledEvent::OffCpu | SampledEvent::Wakeups(_)) => 0,
            Rate::Period(period) => period,
            Rate::Frequency(_) => 0,
        }
    }

    /// Begins to take samples.
    ///
    /// # Errors
    ///
    /// [`Error::Perf`] if the kernel refuses.
    pub fn enable(&self) -> Result<()> {
        self.open.iter().try_for_each(|open| open.event.enable())?;
        Ok(())
    }

    /// Ends to take samples. The rings keep theirs.
    ///
    /// # Errors
    ///
    /// [`Error::Perf`] if the kernel refuses.
    pub fn disable(&self) -> Result<()> {
        self.open.iter().try_for_each(|open| open.event.disable())?;
        Ok(())
    }

    /// Changes the rate from a time on. Timers keep theirs, and fewer of their samples are taken.
    /// Counters that threads have inherited keep theirs, too.
    ///
    /// # Errors
    ///
    /// [`Error::Perf`] if the kernel refuses.
    pub fn set_frequency(&self, frequency: u64, time: u64) -> Result<()> {
        self.wanted.set(time, period_of(frequency));
        for OpenEvent { event, counter, .. } in &self.open {
            if let Rate::Frequency(value) = rate(counter, frequency) {
                event.set_period(value)?;
            }
        }
        Ok(())
    }

    /// Returns the period of a timer at a frequency. `None`: the event has no timer.
    pub(crate) fn timer_period(&self, index: usize, frequency: u64) -> Option<u64> {
        let counter = self.events.get(index)?.counter();
        (counter == Counter::CpuClock).then(|| period_of(frequency))
    }
}

impl Opening {
    fn new(
        options: &SamplerOptions<'_>,
        events: &[SampledEvent],
        kernel: bool,
        (ring_bytes, stack_bytes): (usize, u32),
    ) -> Result<Self> {
        let cpus = cpu_list::read(Path::new("/sys/devices/system/cpu/online"))?;
        let share = (RINGS / cpus.len().max(1)).max(PAGE);
        let ring_bytes = ring_bytes.min(1 << share.ilog2());
        let is_program = options.program.is_some();
        let affordable = u32::try_from(STACK_BYTES_PER_SECOND / options.frequency.max(1)).unwrap_or(u32::MAX);
        let stack_bytes = stack_bytes.min(affordable.max(MIN_STACK_BYTES)) & !7;
        let sampling = Sampling {
            counter: Counter::CpuClock,
            rate: Rate::Period(1),
            stack_bytes,
            kernel,
            inherit: !matches!(options.target, Target::All | Target::Cgroup(_)),
            enable_on_exec: is_program,
            sideband: options.sideband,
            switches: false,
            payload: events
                .iter()
                .any(|event| matches!(event, SampledEvent::Wakeups(_))),
            branches: false,
            watermark: (ring_bytes / 4) as u32,
        };
        let mut opening = Self {
            sampler: Sampler {
                events: events.to_vec(),
                open: Vec::new(),
                owners: Vec::new(),
                indexes: HashMap::new(),
                sampling,
                with_branches: HashSet::new(),
                timer_period: period_of(options.frequency),
                wanted: WantedPeriods::default(),
            },
            rings: Vec::new(),
        };
        let mut ring_of = HashMap::new();
        match (options.target, options.program) {
            (Target::All, _) => {
                opening.open_on(
                    &cpus,
                    event::Target::Everyone,
                    options.frequency,
                    &mut ring_of,
                    ring_bytes,
                )?;
            }
            (Target::Cgroup(path), _) => {
                let directory = cgroup::open(path)?;
                let target = event::Target::Cgroup(directory.as_fd());
                opening.open_on(&cpus, target, options.frequency, &mut ring_of, ring_bytes)?;
            }
            (&Target::Process(pid), _) | (Target::Program(_), Some(pid)) => {
                opening.open_process(pid, &cpus, options.frequency, &mut ring_of, ring_bytes)?;
            }
            (Target::Program(_), None) => {
                return Err(Error::NoTarget("the program is not started".to_owned()));
            }
        }
        Ok(opening)
    }

    /// Opens events of all threads of a process. Threads that start during that inherit the events
    /// of the thread that starts them, or are found by the next search.
    fn open_process(
        &mut self,
        pid: Pid,
        cpus: &[Cpu],
        frequency: u64,
        ring_of: &mut HashMap<Cpu, usize>,
        ring_bytes: usize,
    ) -> Result<()> {
        /// The most searches for new threads.
        const SEARCHES: usize = 5;
        let gone = || Error::NoTarget(format!("there is no process {pid}"));
        let raw = i32::try_from(pid.0).map_err(|_| gone())?;
        let mut known = HashSet::new();
        for _ in 0..SEARCHES {
            let threads = backtrail_process::status::threads(raw);
            let new: Vec<_> = threads.into_iter().filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let target = event::Target::Thread(Tid(tid.cast_unsigned()));
                match self.open_on(cpus, target, frequency, ring_of, ring_bytes) {
                    Err(error) if refusal(&error) == Some(Refusal::NoThread) => {}
                    opened => opened?,
                }
            }
        }
        match self.rings.is_empty() {
            true => Err(gone()),
            false => Ok(()),
        }
    }

    fn open_on(
        &mut self,
        cpus: &[Cpu],
        target: event::Target<'_>,
        frequency: u64,
        ring_of: &mut HashMap<Cpu, usize>,
        ring_bytes: usize,
    ) -> Result<()> {
        for cpu in cpus {
            for index in 0..self.sampler.events.len() {
                let Some(sampled) = self.sampler.events.get(index).cloned() else {
                    continue;
                };
                let stack_bytes = self.sampler.sampling.stack_bytes;
                let sampling = Sampling {
                    stack_bytes: match sampled {
                        SampledEvent::Tracepoint(_)
                        | SampledEvent::Uprobe(_)
                        | SampledEvent::OffCpu
                        | SampledEvent::Wakeups(_) => stack_bytes.min(OCCURRENCE_STACK_BYTES),
                        _ => stack_bytes,
                    },
                    counter: sampled.counter(),
                    rate: rate(&sampled.counter(), frequency),
                    sideband: self.sampler.sampling.sideband && index == 0,
                    switches: sampled == SampledEvent::OffCpu,
                    branches: sampled == SampledEvent::LastBranches,
                    // The branches are those of programs.
                    kernel: self.sampler.sampling.kernel && sampled != SampledEvent::LastBranches,
                    ..self.sampler.sampling.clone()
                };
                let opened = Event::open(
                    sampled.name(),
                    &Attr::sampling(&sampling),
                    target,
                    Some(*cpu),
                    None,
                );
                let event = opened.map_err(|error| named(error, &sampled))?;
                match ring_of.get(cpu) {
                    Some(owner) => {
                        if let Some(owner) = self.sampler.open.get(*owner) {
                            event.set_output(&owner.event)?;
                        }
                    }
                    None => {
                        self.rings.push(Ring::map(&event, ring_bytes / PAGE)?);
                        self.sampler.owners.push(self.sampler.open.len());
                        ring_of.insert(*cpu, self.sampler.open.len());
                    }
                }
                let id = event.id()?;
                if sampling.branches {
                    self.sampler.with_branches.insert(id);
                }
                self.sampler.indexes.insert(id, index);
                self.sampler.open.push(OpenEvent {
                    event,
                    counter: sampling.counter,
                    index,
                    cpu: *cpu,
                });
            }
        }
        Ok(())
    }
}

impl OutputIds {
    /// Returns whether a program wrote a sample.
    fn has(&self, body: &[u8]) -> bool {
        id_of(body).is_some_and(|id| self.ids.contains(&id))
    }
}

/// Returns the first word of a sample: the id of its event.
fn id_of(body: &[u8]) -> Option<u64> {
    body.first_chunk().map(|word| u64::from_ne_bytes(*word))
}

impl Rings {
    /// Reads the records of eBPF programs, too.
    pub(crate) fn read_walked(&mut self, ids: OutputIds) {
        self.walked = ids;
    }

    /// Waits until a ring is filled in part, or a time is over.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]. A signal is none: the wait ends.
    pub fn wait(&self, time: Duration) -> Result<()> {
        let sampler = &self.sampler;
        let owners = sampler.owners.iter().filter_map(|owner| sampler.open.get(*owner));
        let mut fds: Vec<_> = owners
            .map(|open| PollFd::new(open.event.as_fd(), PollFlags::POLLIN))
            .collect();
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => {
                return Err(Error::Call {
                    call: "poll",
                    error: error.into(),
                });
            }
        }
        // The events of threads that have ended hang up, and would end every wait.
        let hung = |fd: &PollFd<'_>| {
            fd.revents()
                .is_some_and(|found| found.contains(PollFlags::POLLHUP))
        };
        if fds.iter().any(hung) {
            std::thread::sleep(time.min(HUNG_WAIT));
        }
        Ok(())
    }

    /// Takes all records of all rings. Those of a ring are in the order of time.
    ///
    /// # Errors
    ///
    /// [`Error::Perf`] if the kernel's records are malformed.
    pub fn drain(&mut self, mut each: impl FnMut(RingRecord)) -> Result<()> {
        let sampling = &self.sampler.sampling;
        let (layout, sample_type) = (sampling.layout(), sampling.sample_type());
        let branches = Sampling {
            branches: true,
            ..sampling.clone()
        };
        let branches = branches.layout();
        let latest = self.sampler.wanted.at(u64::MAX);
        for (ring_index, ring) in self.rings.iter_mut().enumerate() {
            self.buffer.clear();
            ring.take(&mut self.buffer)?;
            for raw in ring::records(&self.buffer) {
                let raw = raw?;
                if raw.kind == PERF_RECORD_SAMPLE && self.walked.has(raw.body) {
                    let mut sample = Sample::parse(&raw, &PROGRAM_OUTPUT)?;
                    let payload = std::mem::take(&mut sample.payload);
                    if let Some(code) = CodeEvent::parse(&payload) {
                        each(RingRecord::Code(sample.time, Box::new(code)));
                        continue;
                    }
                    let stack = SampleEvent::parse(&payload);
                    let event = stack
                        .as_ref()
                        .and_then(|stack| self.walked.events.get(stack.head.program as usize));
                    if let (Some(event), Some(stack)) = (event.copied(), stack) {
                        each(RingRecord::Walked(
                            event,
                            Box::new(WalkedSample { sample, stack }),
                        ));
                    }
                } else if raw.kind == PERF_RECORD_SAMPLE {
                    let id = id_of(raw.body).unwrap_or(0);
                    let Some(event) = self.sampler.indexes.get(&id).copied() else {
                        continue;
                    };
                    let weight = match self.sampler.is_timer(event) {
                        false => SampleWeight::Kernel,
                        // The eBPF program has chosen it.
                        true if self.walked.events.contains(&event) => SampleWeight::AtTime,
                        true => {
                            let number = (self.stretches.len() + 1) as u64;
                            let stretch = self.stretches.entry((ring_index, event));
                            let stretch = stretch.or_insert_with(|| Stretch::new(number));
                            match stretch.weight(self.sampler.timer_period, latest) {
                                Some(weight) => SampleWeight::Stretch(weight),
                                None => continue,
                            }
                        }
                    };
                    let has_branches = self.sampler.with_branches.contains(&id);
                    let layout = if has_branches { &branches } else { &layout };
                    let mut sample = Sample::parse(&raw, layout)?;
                    self.sampler.weigh(&mut sample, weight);
                    each(RingRecord::Sample(event, Box::new(sample)));
                } else if let Some(record) = Record::parse(&raw, sample_type)? {
                    each(RingRecord::Other(record));
                }
            }
        }
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER);
        Ok(())
    }
}

/// Returns the period of a timer in nanoseconds.
fn period_of(frequency: u64) -> u64 {
    (NANOS / frequency.max(1)).max(1)
}

/// Returns the rate of a counter. The timer of the clock has a period only.
fn rate(counter: &Counter, frequency: u64) -> Rate {
    match counter {
        Counter::CpuClock => Rate::Period(period_of(frequency)),
        Counter::ContextSwitches | Counter::Tracepoint(_) | Counter::Uprobe { .. } => Rate::Period(1),
        _ => Rate::Frequency(frequency),
    }
}

fn refusal(error: &Error) -> Option<Refusal> {
    match error {
        Error::Perf(backtrail_perf::Error::Open { refusal, .. }) => Some(*refusal),
        _ => None,
    }
}

/// Names the event that a machine lacks. [`SampledEvent::Cycles`] has a substitute.
fn named(error: backtrail_perf::Error, sampled: &SampledEvent) -> Error {
    let error = Error::Perf(error);
    match refusal(&error) {
        Some(Refusal::NoEvent | Refusal::Unsupported) if *sampled == SampledEvent::LastBranches => {
            Error::NoEvent {
                event: sampled.name().to_owned(),
                reason: "this processor or virtual machine keeps no last branches (LBR); \
                         `backtrail fdo` reads recordings of programs (`backtrail record`), too"
                    .to_owned(),
            }
        }
        Some(Refusal::NoEvent | Refusal::Unsupported) if *sampled != SampledEvent::Cycles => Error::NoEvent {
            event: sampled.name().to_owned(),
            reason: "this processor or virtual machine has no such counter (`backtrail doctor`); use cpu"
                .to_owned(),
        },
        _ => error,
    }
}

/// Returns whether a process belongs to another user, or may be observed by root only.
fn is_of_other_user(pid: Pid) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    owner.is_ok_and(|owner| owner != nix::unistd::geteuid().as_raw())
}

fn not_allowed(target: &Target) -> Error {
    if let Target::Process(pid) = target
        && is_of_other_user(*pid)
    {
        return Error::OtherUser(*pid);
    }
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let (target, needed) = match target {
        Target::All => ("all processes".to_owned(), 0),
        Target::Cgroup(_) => ("a control group".to_owned(), 0),
        Target::Process(pid) => (format!("process {pid}"), 1),
        Target::Program(_) => ("the program".to_owned(), 1),
    };
    Error::NotAllowed {
        target,
        paranoid: paranoid.trim().to_owned(),
        needed,
    }
}
