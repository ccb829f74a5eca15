//! `perf.data`: samples with call chains, from `perf record`.

use crate::address_spaces::{AddressSpaces, MappedModule};
use crate::frame::{Frame, FrameId, Module, ModuleId};
use crate::profile::Profile;
use crate::sample::{EventId, Sample, Thread, ThreadId, UnixNanos};
use crate::stacks::StackId;
use crate::{Error, Result};
use backtrail_perf::data::{DataItem, EventAttr, PerfData};
use backtrail_perf::record::{Mmap, Record, RecordEvent};
use backtrail_perf::sample::{ChainEntry, STACK_USER, Sample as PerfSample, SampleLayout};
use backtrail_pt::{BuildId, FileOffset, Pid, Tid};
use std::collections::HashMap;

/// The refusal of copied stacks.
const COPIED_STACKS: &str = "its stacks are copies of memory (--call-graph dwarf), which are not read; \
     record with --call-graph fp, or with backtrail profile record";

/// The most frames of a call chain. The kernel's default is 127.
const MAX_FRAMES: usize = 1 << 12;

/// Reads the samples of a `perf.data` file. A frame is an offset in the file that was mapped at the
/// time. Callers are one byte before their return address, inside the call instruction.
///
/// Times are those of perf's clock, which is not the time of day unless `-k` chose it.
///
/// # Errors
///
/// [`Error::Malformed`] with the reason and the place in the file, or if stacks are copies of
/// memory instead of call chains.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    let data = PerfData::parse(bytes).map_err(malformed)?;
    if data.events.iter().any(|event| copies_stacks(&event.layout)) {
        return Err(Error::Malformed {
            format: "perf.data",
            problem: COPIED_STACKS.to_owned(),
        });
    }
    let mut reader = PerfDataReader::new(&data)?;
    for item in in_order(&data)? {
        match item {
            Item::Record(record) => reader.record(record)?,
            Item::Sample(event, sample) => reader.sample(event, &sample)?,
        }
    }
    Ok(reader.finish())
}

/// Returns whether these are the first bytes of a `perf.data` file, of either byte order.
#[must_use]
pub fn is_perf_data(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP")
}

/// A sample with branches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchSample {
    /// The address of the sample, and the return addresses of its callers, the innermost first.
    pub chain: Vec<Frame>,
    /// The branches, the newest first.
    pub branches: Vec<BranchFrames>,
}

/// A last branch record, with the code of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchFrames {
    /// The branch instruction.
    pub from: Frame,
    /// The target.
    pub to: Frame,
    /// Whether the target was mispredicted. `None`: the processor does not report it.
    pub is_mispredicted: Option<bool>,
}

/// Reads the branches of a file of `perf record -b` instead of its samples. `visit` receives those
/// of each sample, and the profile with the modules found so far.
///
/// # Errors
///
/// [`Error::Malformed`] with the reason and the place in the file.
pub fn read_branches(bytes: &[u8], visit: &mut dyn FnMut(&Profile, &BranchSample)) -> Result<()> {
    let data = PerfData::parse(bytes).map_err(malformed)?;
    let mut reader = PerfDataReader::new(&data)?;
    let mut found = BranchSample::default();
    for item in in_order(&data)? {
        match item {
            Item::Record(record) => reader.record(record)?,
            Item::Sample(_, sample) => {
                let frame = |address: u64| {
                    let is_kernel = address.cast_signed() < 0;
                    frame_at(&reader.spaces, sample.pid.filter(|_| !is_kernel), address)
                };
                found.chain.clear();
                let chain = sample.chain.iter().take(MAX_FRAMES);
                found.chain.extend(chain.map(|entry| frame(entry.address)));
                if found.chain.is_empty() {
                    found.chain.extend(sample.ip.map(frame));
                }
                found.branches.clear();
                found
                    .branches
                    .extend(sample.branches.iter().map(|record| BranchFrames {
                        from: frame(record.from),
                        to: frame(record.to),
                        is_mispredicted: record.is_mispredicted,
                    }));
                visit(&reader.profile, &found);
            }
        }
    }
    Ok(())
}

/// Returns whether samples have a copy of the stack, so that their call chains lack the program.
fn copies_stacks(layout: &SampleLayout) -> bool {
    layout.sample_type & STACK_USER != 0
}

/// Returns the records and samples in the order of their times.
fn in_order(data: &PerfData<'_>) -> Result<impl Iterator<Item = Item>> {
    // Records of several processors are not in the order of time.
    let mut items = Vec::new();
    for item in data.items() {
        match item.map_err(malformed)? {
            DataItem::Record(record) => items.push((record.id.time, Item::Record(record))),
            DataItem::Sample(raw) => {
                let (event, sample) = data.sample(&raw).map_err(malformed)?;
                items.push((sample.time, Item::Sample(event, sample)));
            }
            _ => {}
        }
    }
    items.sort_by_key(|(time, _)| *time);
    Ok(items.into_iter().map(|(_, item)| item))
}

fn malformed(error: backtrail_perf::Error) -> Error {
    Error::Malformed {
        format: "perf.data",
        problem: error.to_string(),
    }
}

/// `PERF_TYPE_SOFTWARE`, with `PERF_COUNT_SW_CPU_CLOCK` and `PERF_COUNT_SW_TASK_CLOCK`.
const SOFTWARE: u32 = 1;
const CLOCKS: [u64; 2] = [0, 1];

/// Returns whether an event counts nanoseconds.
fn is_clock(event: &EventAttr) -> bool {
    event.kind == SOFTWARE && CLOCKS.contains(&event.config)
}

/// Returns the name of an event in a file without names.
fn default_name(event: &EventAttr) -> String {
    match (event.kind, event.config) {
        (SOFTWARE, 0) => "cpu-clock".to_owned(),
        (SOFTWARE, 1) => "task-clock".to_owned(),
        (0, 0) => "cycles".to_owned(),
        (kind, config) => format!("type {kind}, config {config:#x}"),
    }
}

/// An item that a profile needs.
enum Item {
    Record(Record),
    Sample(usize, PerfSample),
}

/// The state at the time of the record that is read.
struct PerfDataReader {
    profile: Profile,
    /// The events with the periods of the file.
    events: Vec<(EventId, Option<u64>)>,
    spaces: AddressSpaces<ModuleId>,
    /// The name of each thread, and of each process as that of its first thread.
    names: HashMap<Tid, String>,
    build_ids: HashMap<String, BuildId>,
    lost: u64,
}

impl PerfDataReader {
    fn new(data: &PerfData<'_>) -> Result<Self> {
        let mut profile = Profile::default();
        let mut events = Vec::new();
        let mut names = data.event_names().into_iter();
        for event in &data.events {
            let name = names.next().unwrap_or_else(|| default_name(event));
            let unit = if is_clock(event) { "nanoseconds" } else { "count" };
            let id = profile.event(&name, unit, event.period.unwrap_or(0))?;
            events.push((id, event.period));
        }
        Ok(Self {
            profile,
            events,
            spaces: AddressSpaces::default(),
            names: HashMap::new(),
            build_ids: data.build_ids().into_iter().collect(),
            lost: 0,
        })
    }

    fn record(&mut self, record: Record) -> Result<()> {
        match record.event {
            RecordEvent::Mmap(mmap) => self.mmap(&mmap)?,
            RecordEvent::Comm { pid, tid, name, exec } => {
                if exec {
                    self.spaces.clear(pid);
                }
                self.names.insert(tid, name);
            }
            RecordEvent::Fork {
                pid,
                tid,
                parent,
                copies_mappings,
            } => {
                if pid != parent && copies_mappings {
                    self.spaces.fork(parent, pid);
                }
                if let Some(name) = self.names.get(&Tid(parent.0)).cloned() {
                    self.names.entry(tid).or_insert(name);
                }
            }
            RecordEvent::Lost { count } => self.lost = self.lost.saturating_add(count),
            _ => {}
        }
        Ok(())
    }

    fn mmap(&mut self, mmap: &Mmap) -> Result<()> {
        if !mmap.executable {
            return Ok(());
        }
        let build_id = mmap.build_id.clone();
        let build_id = build_id.or_else(|| self.build_ids.get(kernel_name(&mmap.path)).cloned());
        // The kernel's text has no file. Its offsets begin at its first address.
        let (pid, path, offset) = match mmap.user {
            true => (Some(mmap.pid), &*mmap.path, mmap.offset),
            false => (None, kernel_name(&mmap.path), FileOffset(0)),
        };
        let path = self.profile.string(path)?;
        let module = self.profile.modules.intern(Module { build_id, path })?;
        let mapped = MappedModule { module, offset };
        self.spaces.map(pid, mmap.start.0, mmap.size, mapped);
        Ok(())
    }

    fn sample(&mut self, event: usize, sample: &PerfSample) -> Result<()> {
        let Some((event, period)) = self.events.get(event).copied() else {
            return Ok(());
        };
        let stack = self.stack(sample)?;
        let thread = self.thread(sample)?;
        let weight = sample.period.or(period);
        let labels = self.profile.label_set(Vec::new())?;
        self.profile.samples.push(Sample {
            event,
            weight: i64::try_from(weight.unwrap_or(0).max(1)).unwrap_or(i64::MAX),
            stack,
            time: sample.time.map(|time| UnixNanos(time.0)),
            thread,
            cpu: sample.cpu,
            labels,
        });
        Ok(())
    }

    fn stack(&mut self, sample: &PerfSample) -> Result<StackId> {
        let alone = sample.ip.map(|address| ChainEntry {
            address,
            is_kernel: address.cast_signed() < 0,
        });
        let chain = match (sample.chain.is_empty(), alone) {
            (true, Some(alone)) => vec![alone],
            _ => sample.chain.clone(),
        };
        let mut frames = Vec::new();
        if chain.len() > MAX_FRAMES {
            frames.push(self.profile.frames.intern(Frame::Lost)?);
        }
        // The first address of the kernel and that of the program are no return addresses.
        let inner = std::iter::once(None).chain(chain.iter().map(Some));
        let chain: Vec<_> = chain.iter().zip(inner).take(MAX_FRAMES).collect();
        for (entry, inner) in chain.into_iter().rev() {
            let is_caller = inner.is_some_and(|inner| inner.is_kernel == entry.is_kernel);
            frames.push(self.frame(sample.pid, entry, is_caller)?);
        }
        let mut stack = StackId::EMPTY;
        for frame in frames {
            stack = self.profile.stacks.push(stack, frame)?;
        }
        Ok(stack)
    }

    fn frame(&mut self, pid: Option<Pid>, entry: &ChainEntry, is_caller: bool) -> Result<FrameId> {
        let address = match is_caller {
            true => entry.address.saturating_sub(1),
            false => entry.address,
        };
        let pid = pid.filter(|_| !entry.is_kernel);
        self.profile.frames.intern(frame_at(&self.spaces, pid, address))
    }

    fn thread(&mut self, sample: &PerfSample) -> Result<Option<ThreadId>> {
        let Some((pid, tid)) = sample.pid.zip(sample.tid) else {
            return Ok(None);
        };
        let name = |tid: Tid| self.names.get(&tid).map_or("", |name| name);
        let (process_name, name) = (name(Tid(pid.0)).to_owned(), name(tid).to_owned());
        let thread = Thread {
            pid,
            tid,
            process_name: self.profile.string(&process_name)?,
            name: self.profile.string(&name)?,
        };
        Ok(Some(self.profile.threads.intern(thread)?))
    }

    fn finish(mut self) -> Profile {
        let times = self.profile.samples.iter().filter_map(|sample| sample.time);
        let span = times.clone().min().zip(times.max());
        self.profile.duration = span.map(|(first, last)| last.0 - first.0);
        if self.lost > 0 {
            let note = format!("perf lost {} records", self.lost);
            self.profile.notes.push(note);
        }
        self.profile
    }
}

/// Returns the frame of an address of a process, or of the kernel.
fn frame_at(spaces: &AddressSpaces<ModuleId>, pid: Option<Pid>, address: u64) -> Frame {
    match spaces.find(pid, address) {
        Some(MappedModule { module, offset }) => Frame::Code { module, offset },
        None => Frame::Address(address),
    }
}

/// Returns the name of a module of the kernel. The main one has the name of a symbol at its end.
fn kernel_name(path: &str) -> &str {
    match path.strip_prefix("[kernel.kallsyms]") {
        Some(_) => "[kernel.kallsyms]",
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_stacks_are_recognized() {
        let layout = |sample_type| SampleLayout {
            sample_type,
            ..SampleLayout::default()
        };
        // IP, TID, TIME and CALLCHAIN, without and with REGS_USER and STACK_USER.
        assert!(!copies_stacks(&layout(0x27)));
        assert!(copies_stacks(&layout(0x3027)));
    }
}
