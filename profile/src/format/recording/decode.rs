//! Reading a recording.

use super::block::{Block, TIME_UNIT};
use super::branch_stacks;
use super::generated::{self, GeneratedFunction};
use super::naming;
use super::scan::scan;
use super::varint::Reader;
use crate::frame::{Frame, FrameId, Function, FunctionId, Line, Module, ModuleId, StringId};
use crate::profile::Profile;
use crate::sample::{Event, EventId, Label, LabelSetId, LabelValue, Sample, Thread, ThreadId, UnixNanos};
use crate::stacks::StackId;
use crate::{Error, Result};
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};
use std::collections::HashMap;

/// The unpacked bytes that are always read.
const FREE_BYTES: usize = 1 << 26;
/// The unpacked bytes beyond that, for each byte of the recording.
const MAX_RATIO: usize = 64;

/// Reads all whole blocks of a recording. Notes say how much is damaged, lost or replaced.
///
/// # Errors
///
/// [`Error::Malformed`] if no block is whole, and [`Error::TooLarge`] if the blocks are far larger
/// when unpacked.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    let found = scan(bytes)?;
    if found.blocks.is_empty() && found.other > 0 {
        return Err(Error::Malformed {
            format: "recording",
            problem: "no block is whole".to_owned(),
        });
    }
    let limit = FREE_BYTES.saturating_add(bytes.len().saturating_mul(MAX_RATIO));
    let unpacked = found
        .blocks
        .iter()
        .fold(0, |sum: usize, block| sum + block.unpacked);
    if unpacked > limit {
        return Err(Error::TooLarge { limit: limit as u64 });
    }
    let mut recording = Recording::default();
    for segment in found.blocks.chunk_by(|one, next| one.segment == next.segment) {
        recording.read_segment(segment);
    }
    recording.finish(found.other)
}

/// The samples so far.
#[derive(Default)]
struct Recording {
    profile: Profile,
    start: Option<u64>,
    end: u64,
    lost: u64,
    /// Blocks whose segment lacks an earlier one.
    incomplete: usize,
    generated: Vec<GeneratedFunction>,
}

/// The ids in the profile of the entries of a segment's tables.
#[derive(Default)]
struct Tables {
    strings: Vec<StringId>,
    modules: Vec<ModuleId>,
    functions: Vec<FunctionId>,
    /// Events with the periods that weights are relative to.
    events: Vec<(EventId, u64)>,
    threads: Vec<ThreadId>,
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    label_sets: Vec<LabelSetId>,
}

impl Recording {
    fn read_segment(&mut self, blocks: &[Block<'_>]) {
        let mut tables = Tables {
            stacks: vec![StackId::EMPTY],
            ..Tables::default()
        };
        for (index, block) in blocks.iter().enumerate() {
            let is_next = block.index as usize == index;
            let payload = is_next.then(|| block.unpack()).flatten();
            let read = payload.and_then(|payload| self.read_block(&payload, &mut tables));
            if read.is_none() {
                self.incomplete += blocks.len() - index;
                break;
            }
        }
    }

    /// Reads a block. `None`: its content is malformed.
    fn read_block(&mut self, payload: &[u8], tables: &mut Tables) -> Option<()> {
        let mut reader = Reader(payload);
        let (start, length, lost) = (reader.number()?, reader.number()?, reader.number()?);
        self.read_tables(&mut reader, tables)?;
        let samples = self.read_samples(&mut reader, tables, start)?;
        self.read_lines(&mut reader, tables)?;
        // Recordings of earlier versions end before one of these.
        if !reader.0.is_empty() {
            let generated = generated::decode(&mut reader, &tables.strings, start)?;
            self.generated.extend(generated);
        }
        if !reader.0.is_empty() {
            let branches = branch_stacks::decode(&mut reader, &tables.stacks, &tables.frames)?;
            self.profile.branch_stacks.extend(branches);
        }
        self.profile.samples.extend(samples);
        self.start = Some(self.start.map_or(start, |first| first.min(start)));
        self.end = self.end.max(start.saturating_add(length));
        self.lost = self.lost.saturating_add(lost);
        Some(())
    }

    fn read_tables(&mut self, reader: &mut Reader<'_>, tables: &mut Tables) -> Option<()> {
        let profile = &mut self.profile;
        for _ in 0..reader.number()? {
            let text = std::str::from_utf8(reader.bytes()?).ok()?;
            tables.strings.push(profile.string(text).ok()?);
        }
        for _ in 0..reader.number()? {
            let module = module(reader, tables)?;
            tables.modules.push(profile.modules.intern(module).ok()?);
        }
        for _ in 0..reader.number()? {
            let function = function(reader, tables)?;
            tables.functions.push(profile.functions.intern(function).ok()?);
        }
        for _ in 0..reader.number()? {
            let event = event(reader, tables)?;
            let period = event.period;
            tables.events.push((profile.intern_event(event).ok()?, period));
        }
        for _ in 0..reader.number()? {
            let thread = thread(reader, tables)?;
            tables.threads.push(profile.threads.intern(thread).ok()?);
        }
        let mut last = HashMap::new();
        for _ in 0..reader.number()? {
            let frame = frame(reader, tables, &mut last)?;
            tables.frames.push(profile.frames.intern(frame).ok()?);
        }
        let mut last = 0;
        for _ in 0..reader.number()? {
            let (caller, frame) = stack(reader, tables, &mut last)?;
            tables.stacks.push(profile.stacks.push(caller, frame).ok()?);
        }
        for _ in 0..reader.number()? {
            let note = std::str::from_utf8(reader.bytes()?).ok()?;
            if !profile.notes.iter().any(|known| known == note) {
                profile.notes.push(note.to_owned());
            }
        }
        for _ in 0..reader.number()? {
            let labels = labels(reader, tables)?;
            tables.label_sets.push(profile.label_set(labels).ok()?);
        }
        Some(())
    }

    /// Reads the lines of frames. Recordings of earlier versions have none.
    fn read_lines(&mut self, reader: &mut Reader<'_>, tables: &Tables) -> Option<()> {
        if reader.0.is_empty() {
            return Some(());
        }
        let mut at = 0_usize;
        for _ in 0..reader.number()? {
            at = at.checked_add(usize::try_from(reader.number()?).ok()?)?;
            let frame = *tables.frames.get(at)?;
            let mut lines = Vec::new();
            for _ in 0..reader.number()? {
                lines.push(Line {
                    function: reader.entry(&tables.functions)?,
                    line: reader.small()?,
                });
            }
            self.profile.lines.entry(frame).or_insert_with(|| lines.into());
        }
        Some(())
    }

    fn read_samples(&mut self, reader: &mut Reader<'_>, tables: &Tables, start: u64) -> Option<Vec<Sample>> {
        /// The number of columns, which have a byte or more for each sample.
        const COLUMNS: usize = 7;
        let count = usize::try_from(reader.number()?).ok()?;
        if count > reader.0.len() / COLUMNS {
            return None;
        }
        let labels = self.profile.label_set(Vec::new()).ok()?;
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let (event, period) = reader.entry(&tables.events)?;
            samples.push(Sample {
                event,
                weight: period.cast_signed(),
                stack: StackId::EMPTY,
                time: None,
                thread: None,
                cpu: None,
                labels,
            });
        }
        Self::fill(&mut samples, reader, tables, start)?;
        Some(samples)
    }

    /// Reads all columns but the first. The weights of the samples are the periods of their events
    /// before. `None`: the columns are malformed.
    fn fill(samples: &mut [Sample], reader: &mut Reader<'_>, tables: &Tables, start: u64) -> Option<()> {
        let mut time = (start / TIME_UNIT).cast_signed();
        for sample in &mut *samples {
            time = time.wrapping_add(reader.signed()?);
            sample.time = Some(UnixNanos(time.cast_unsigned().saturating_mul(TIME_UNIT)));
        }
        for sample in &mut *samples {
            sample.weight = sample.weight.wrapping_add(reader.signed()?);
        }
        let mut stack = 0;
        for sample in &mut *samples {
            sample.stack = delta_entry(reader, &tables.stacks, &mut stack)?;
        }
        for sample in &mut *samples {
            sample.thread = optional(reader, &tables.threads)?;
        }
        for sample in &mut *samples {
            let cpu = reader.number()?.checked_sub(1);
            sample.cpu = cpu.map(u32::try_from).transpose().ok()?.map(Cpu);
        }
        for sample in &mut *samples {
            sample.labels = reader.entry(&tables.label_sets)?;
        }
        Some(())
    }

    fn finish(mut self, other: usize) -> Result<Profile> {
        let mut notes = Vec::new();
        if naming::name_samples(&mut self.profile, self.generated)? {
            notes.push("some generated code has no names, because it changed too often".to_owned());
        }
        if self.lost > 0 {
            notes.push(format!(
                "the kernel dropped {} records, because they came faster than they were read; lower --freq",
                self.lost
            ));
        }
        if self.incomplete > 0 {
            notes.push(format!(
                "{} blocks are left out, because an earlier part of their segment is missing",
                self.incomplete
            ));
        }
        if other > 0 {
            notes.push(format!(
                "{other} bytes of the recording are damaged, incomplete or replaced"
            ));
        }
        self.profile.start = self.start.map(UnixNanos);
        self.profile.duration = self.start.map(|start| self.end.saturating_sub(start));
        self.profile.notes.extend(notes);
        Ok(self.profile)
    }
}

/// Returns the entry of an index that is one more, or `Some(None)` for 0.
fn optional<T: Copy>(reader: &mut Reader<'_>, table: &[T]) -> Option<Option<T>> {
    match reader.number()?.checked_sub(1) {
        None => Some(None),
        Some(index) => Some(Some(*table.get(usize::try_from(index).ok()?)?)),
    }
}

/// Returns the entry of an index that is stored as the difference to the last one.
fn delta_entry<T: Copy>(reader: &mut Reader<'_>, table: &[T], last: &mut i64) -> Option<T> {
    *last = last.checked_add(reader.signed()?)?;
    table.get(usize::try_from(*last).ok()?).copied()
}

fn module(reader: &mut Reader<'_>, tables: &Tables) -> Option<Module> {
    let path = reader.entry(&tables.strings)?;
    let build_id = match reader.bytes()? {
        [] => None,
        bytes => Some(BuildId::new(bytes)?),
    };
    Some(Module { build_id, path })
}

fn function(reader: &mut Reader<'_>, tables: &Tables) -> Option<Function> {
    Some(Function {
        name: reader.entry(&tables.strings)?,
        linkage_name: reader.entry(&tables.strings)?,
        file: optional(reader, &tables.strings)?,
        start_line: reader.small()?,
    })
}

fn event(reader: &mut Reader<'_>, tables: &Tables) -> Option<Event> {
    Some(Event {
        name: reader.entry(&tables.strings)?,
        unit: reader.entry(&tables.strings)?,
        period: reader.number()?,
    })
}

fn thread(reader: &mut Reader<'_>, tables: &Tables) -> Option<Thread> {
    Some(Thread {
        pid: Pid(reader.small()?),
        tid: Tid(reader.small()?),
        process_name: reader.entry(&tables.strings)?,
        name: reader.entry(&tables.strings)?,
    })
}

/// Reads a frame. `last` has the last offset of each module in this block.
fn frame(reader: &mut Reader<'_>, tables: &Tables, last: &mut HashMap<u64, u64>) -> Option<Frame> {
    Some(match reader.number()? {
        0 => Frame::Lost,
        1 => Frame::Address(reader.number()?),
        2 => Frame::Function {
            function: reader.entry(&tables.functions)?,
            line: reader.small()?,
        },
        tag => {
            let index = tag - 3;
            let module = *tables.modules.get(usize::try_from(index).ok()?)?;
            let last = last.entry(index).or_default();
            *last = last.wrapping_add(reader.signed()?.cast_unsigned());
            Frame::Code {
                module,
                offset: FileOffset(*last),
            }
        }
    })
}

fn labels(reader: &mut Reader<'_>, tables: &Tables) -> Option<Vec<Label>> {
    let mut labels = Vec::new();
    for _ in 0..reader.number()? {
        let key = reader.entry(&tables.strings)?;
        let value = match reader.number()? {
            0 => LabelValue::Text(reader.entry(&tables.strings)?),
            1 => LabelValue::Number(reader.signed()?, reader.entry(&tables.strings)?),
            _ => return None,
        };
        labels.push(Label { key, value });
    }
    Some(labels)
}

fn stack(reader: &mut Reader<'_>, tables: &Tables, last: &mut i64) -> Option<(StackId, FrameId)> {
    let distance = usize::try_from(reader.number()?).ok()?;
    let caller = tables.stacks.len().checked_sub(distance)?;
    let caller = *tables.stacks.get(caller)?;
    Some((caller, delta_entry(reader, &tables.frames, last)?))
}
