//! Writing the blocks of a segment.

use super::block::{Block, TIME_UNIT};
use super::branch_stacks;
use super::generated::{self, GeneratedFunction};
use super::varint::{write, write_bytes, write_signed};
use crate::frame::{Frame, StringId};
use crate::profile::Profile;
use crate::sample::{LabelValue, Sample, UnixNanos};
use crate::stacks::Stacks;
use crate::table::{Id, Table};
use crate::{Error, Result};
use std::collections::HashMap;
use std::hash::Hash;

/// The numbers of table entries that earlier blocks of the segment have.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    strings: usize,
    modules: usize,
    functions: usize,
    threads: usize,
    frames: usize,
    stacks: usize,
    notes: usize,
    label_sets: usize,
}

/// The tables of a segment, and the samples of its next block.
///
/// Lines of a frame are written if they are known before the first block with the frame.
///
/// ```
/// use backtrail_profile::format::recording::{HEADER, SegmentEncoder, read};
/// use backtrail_profile::{Frame, StackId, UnixNanos};
///
/// let mut segment = SegmentEncoder::new(0, UnixNanos(5_000_000_000));
/// let event = segment.profile.event("cpu", "nanoseconds", 1_000_000)?;
/// let frame = segment.profile.frames.intern(Frame::Address(0x401000))?;
/// let stack = segment.profile.stacks.push(StackId::EMPTY, frame)?;
/// segment.profile.add(event, 1_000_000, stack)?;
/// let block = segment.finish_block(UnixNanos(6_000_000_000), 0)?;
///
/// let recording = [&HEADER[..], &block].concat();
/// assert_eq!(read(&recording)?.samples.len(), 1);
/// # Ok::<(), backtrail_profile::Error>(())
/// ```
#[derive(Debug)]
pub struct SegmentEncoder {
    /// The tables of the segment, and samples that no block has.
    pub profile: Profile,
    /// Functions of generated code that no block has. Their texts are those of `profile`.
    pub generated: Vec<GeneratedFunction>,
    number: u32,
    blocks: u32,
    written: Written,
    /// The periods of events as blocks have them. Weights are relative to these.
    periods: Vec<u64>,
    last_end: UnixNanos,
}

impl SegmentEncoder {
    /// Begins the segment with this number, whose samples begin at a time.
    #[must_use]
    pub fn new(number: u32, start: UnixNanos) -> Self {
        Self {
            profile: Profile {
                start: Some(start),
                ..Profile::default()
            },
            generated: Vec::new(),
            number,
            blocks: 0,
            written: Written::default(),
            periods: Vec::new(),
            last_end: start,
        }
    }

    /// Returns the number of blocks so far.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the bytes of a block with the samples and branches since the last one, and removes
    /// them. `end` is the time until which the samples are complete, and `lost` the number of
    /// records that the kernel dropped since the last block.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the samples exceed the limit of a block.
    pub fn finish_block(&mut self, end: UnixNanos, lost: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        write(self.last_end.0, &mut out);
        write(end.0.saturating_sub(self.last_end.0), &mut out);
        write(lost, &mut out);
        self.write_tables(&mut out);
        let samples = std::mem::take(&mut self.profile.samples);
        write(samples.len() as u64, &mut out);
        for column in [event, time, weight, stack, thread, cpu, labels] {
            column(self, &samples, &mut out);
        }
        self.write_lines(&mut out);
        generated::encode(&std::mem::take(&mut self.generated), self.last_end, &mut out);
        branch_stacks::encode(&std::mem::take(&mut self.profile.branch_stacks), &mut out);
        let block = Block::pack(self.number, self.blocks, &out)?;
        self.written = Written {
            strings: self.profile.strings.len(),
            modules: self.profile.modules.len(),
            functions: self.profile.functions.len(),
            threads: self.profile.threads.len(),
            frames: self.profile.frames.len(),
            stacks: self.profile.stacks.len() - 1,
            notes: self.profile.notes.len(),
            label_sets: self.profile.label_sets.len(),
        };
        self.blocks = self.blocks.checked_add(1).ok_or(Error::Full)?;
        self.last_end = end.max(self.last_end);
        Ok(block)
    }

    fn write_tables(&mut self, out: &mut Vec<u8>) {
        let (profile, written) = (&self.profile, &self.written);
        let id = |id: StringId, out: &mut Vec<u8>| write(id.index() as u64, out);
        new_entries(&profile.strings, written.strings, out, |text, out| {
            write_bytes(text.as_bytes(), out);
        });
        new_entries(&profile.modules, written.modules, out, |module, out| {
            id(module.path, out);
            let build_id = module.build_id.as_ref();
            write_bytes(build_id.map_or(&[], |id| id.as_bytes()), out);
        });
        new_entries(&profile.functions, written.functions, out, |function, out| {
            id(function.name, out);
            id(function.linkage_name, out);
            write(function.file.map_or(0, |file| file.index() as u64 + 1), out);
            write(function.start_line.into(), out);
        });
        let periods = &mut self.periods;
        new_entries(&profile.events, periods.len(), out, |event, out| {
            id(event.name, out);
            id(event.unit, out);
            write(event.period, out);
            periods.push(event.period);
        });
        new_entries(&profile.threads, written.threads, out, |thread, out| {
            write(thread.pid.0.into(), out);
            write(thread.tid.0.into(), out);
            id(thread.process_name, out);
            id(thread.name, out);
        });
        let mut last = HashMap::new();
        new_entries(&profile.frames, written.frames, out, |frame, out| match *frame {
            Frame::Lost => write(0, out),
            Frame::Address(address) => {
                write(1, out);
                write(address, out);
            }
            Frame::Function { function, line } => {
                write(2, out);
                write(function.index() as u64, out);
                write(line.into(), out);
            }
            Frame::Code { module, offset } => {
                write(module.index() as u64 + 3, out);
                let last = last.insert(module, offset.0).unwrap_or(0);
                write_signed(offset.0.wrapping_sub(last).cast_signed(), out);
            }
        });
        self.write_stacks(&profile.stacks, out);
        write((profile.notes.len() - written.notes) as u64, out);
        for note in profile.notes.iter().skip(written.notes) {
            write_bytes(note.as_bytes(), out);
        }
        new_entries(&profile.label_sets, written.label_sets, out, |labels, out| {
            write(labels.len() as u64, out);
            for label in labels {
                id(label.key, out);
                match label.value {
                    LabelValue::Text(text) => {
                        write(0, out);
                        id(text, out);
                    }
                    LabelValue::Number(number, unit) => {
                        write(1, out);
                        write_signed(number, out);
                        id(unit, out);
                    }
                }
            }
        });
    }

    /// Writes the lines of the new frames that have some.
    fn write_lines(&self, out: &mut Vec<u8>) {
        let profile = &self.profile;
        let new = profile.frames.iter().skip(self.written.frames);
        let named: Vec<_> = new
            .map(|(frame, _)| (frame, profile.lines_of(frame)))
            .filter(|(_, lines)| !lines.is_empty())
            .collect();
        write(named.len() as u64, out);
        let mut last = 0;
        for (frame, lines) in named {
            write((frame.index() - last) as u64, out);
            last = frame.index();
            write(lines.len() as u64, out);
            for line in lines {
                write(line.function.index() as u64, out);
                write(line.line.into(), out);
            }
        }
    }

    fn write_stacks(&self, stacks: &Stacks<crate::FrameId>, out: &mut Vec<u8>) {
        let new = stacks.iter().skip(self.written.stacks);
        write(new.len() as u64, out);
        let mut last_frame = 0;
        for (stack, caller, frame) in new {
            write((stack.index() - caller.index()) as u64, out);
            let frame = frame.index() as i64;
            write_signed(frame - last_frame, out);
            last_frame = frame;
        }
    }
}

fn new_entries<I: Id, T: Hash + Eq>(
    table: &Table<I, T>,
    written: usize,
    out: &mut Vec<u8>,
    mut each: impl FnMut(&T, &mut Vec<u8>),
) {
    write((table.len() - written) as u64, out);
    for (_, entry) in table.iter().skip(written) {
        each(entry, out);
    }
}

fn event(_: &SegmentEncoder, samples: &[Sample], out: &mut Vec<u8>) {
    for sample in samples {
        write(sample.event.index() as u64, out);
    }
}

fn time(encoder: &SegmentEncoder, samples: &[Sample], out: &mut Vec<u8>) {
    let mut last = (encoder.last_end.0 / TIME_UNIT).cast_signed();
    for sample in samples {
        let time = sample
            .time
            .map_or(last, |time| (time.0 / TIME_UNIT).cast_signed());
        write_signed(time.wrapping_sub(last), out);
        last = time;
    }
}

fn weight(encoder: &SegmentEncoder, samples: &[Sample], out: &mut Vec<u8>) {
    for sample in samples {
        let period = encoder.periods.get(sample.event.index());
        let period = period.copied().unwrap_or(0);
        write_signed(sample.weight.wrapping_sub(period.cast_signed()), out);
    }
}

fn stack(_: &SegmentEncoder, samples: &[Sample], out: &mut Vec<u8>) {
    let mut last = 0;
    for sample in samples {
        let stack = sample.stack.index() as i64;
        write_signed(stack - last, out);
        last = stack;
    }
}

fn thread(_: &SegmentEncoder, samples: &[Sample], out: &mut Vec<u8>) {
    for sample in samples {
        write(sample.thread.map_or(0, |thread| thread.index() as u64 + 1), out);
    }
}

fn cpu(_: &SegmentEncoder, samples: &[Sample], out: &mut Vec<u8>) {
    for sample in samples {
        write(sample.cpu.map_or(0, |cpu| u64::from(cpu.0) + 1), out);
    }
}

fn labels(_: &SegmentEncoder, samples: &[Sample], out: &mut Vec<u8>) {
    for sample in samples {
        write(sample.labels.index() as u64, out);
    }
}
