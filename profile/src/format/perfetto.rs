//! Perfetto's trace format, with the samples of all events.
//!
//! A sample is a `StackSample`, which has a weight. Perfetto's older messages for samples have
//! none. Texts, frames, stacks, events and threads are sent once, and then referred to by their
//! numbers (interning).

#[doc(hidden)]
pub mod schema;

use crate::Result;
use crate::frame::{Frame, FrameId, FunctionId, LOST, Line, StringId};
use crate::profile::Profile;
use crate::sample::{Sample, ThreadId};
use crate::stacks::StackId;
use crate::table::Id;
use prost::Message;
use schema::{
    Callstack, CounterDescriptor, ExecutionContext, InternedBytes, InternedData, Mapping, ProcessDescriptor,
    StackSample, TaskContext, ThreadDescriptor, TracePacket, TrackDescriptor, sequence, unit,
};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

/// The sequence of all packets.
const SEQUENCE: u32 = 1;

/// Writes packets. A trace is a message with packets in field 1.
pub struct PacketWriter<'o> {
    out: &'o mut dyn Write,
    bytes: Vec<u8>,
}

impl<'o> PacketWriter<'o> {
    /// Returns a writer.
    pub fn new(out: &'o mut dyn Write) -> Self {
        Self {
            out,
            bytes: Vec::new(),
        }
    }

    /// Writes a packet.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn write(&mut self, packet: &TracePacket) -> io::Result<()> {
        self.bytes.clear();
        prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, &mut self.bytes);
        packet
            .encode_length_delimited(&mut self.bytes)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.out.write_all(&self.bytes)
    }
}

/// Writes the samples in the order of their times. Weights that are not positive are left out.
///
/// Samples without times follow each other at a distance of their weight. A frame's address is its
/// offset in the file.
///
/// # Errors
///
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let mut writer = Writer {
        profile,
        out: PacketWriter::new(out),
        frames: Vec::new(),
        stacks: HashMap::new(),
    };
    writer.write_tables()?;
    writer.write_threads()?;
    let mut samples: Vec<&Sample> = profile
        .samples
        .iter()
        .filter(|sample| sample.weight > 0)
        .collect();
    samples.sort_by_key(|sample| sample.time);
    let mut next = profile.start.map_or(0, |start| start.0);
    for sample in samples {
        let weight = sample.weight.unsigned_abs();
        let at = sample.time.map_or(next, |time| time.0);
        next = at.saturating_add(weight);
        writer.write_sample(sample, at, weight)?;
    }
    Ok(())
}

/// Returns the number of an id, which must not be 0.
fn number(id: impl Id) -> u64 {
    id.index() as u64 + 1
}

fn interned(iid: u64, bytes: &[u8]) -> InternedBytes {
    InternedBytes {
        iid: Some(iid),
        str: Some(bytes.to_owned()),
    }
}

struct Writer<'p, 'o> {
    profile: &'p Profile,
    out: PacketWriter<'o>,
    /// The numbers of each frame: one for each of its inlined functions, the outermost first.
    frames: Vec<Vec<u64>>,
    /// The numbers of stacks that were sent.
    stacks: HashMap<StackId, u64>,
}

impl Writer<'_, '_> {
    /// Writes all but stacks. Names of functions, paths and modules have the numbers of their
    /// texts.
    fn write_tables(&mut self) -> Result<()> {
        let profile = self.profile;
        let mut data = InternedData::default();
        for (id, event) in profile.events.iter() {
            let unit = profile.text(event.unit);
            let known = match unit {
                "nanoseconds" => Some(unit::NANOSECONDS),
                "bytes" => Some(unit::BYTES),
                "count" => Some(unit::COUNT),
                _ => None,
            };
            data.stack_sample_counter_descriptors.push(CounterDescriptor {
                iid: Some(number(id)),
                name: Some(profile.text(event.name).to_owned()),
                unit: known,
                unit_str: (known.is_none() && !unit.is_empty()).then(|| unit.to_owned()),
            });
        }
        for (id, thread) in profile.threads.iter() {
            data.stack_sample_task_contexts.push(TaskContext {
                iid: Some(number(id)),
                pid: Some(thread.pid.0),
                tid: Some(thread.tid.0),
            });
        }
        let mut paths = BTreeSet::new();
        for (id, module) in profile.modules.iter() {
            paths.insert(module.path);
            let build_id = module.build_id.as_ref().map(|build_id| build_id.as_bytes());
            data.build_ids
                .extend(build_id.map(|bytes| interned(number(id), bytes)));
            data.mappings.push(Mapping {
                iid: Some(number(id)),
                build_id: build_id.map(|_| number(id)),
                path_string_ids: vec![number(module.path)],
            });
        }
        // Readers want a mapping of every frame. This one has no path.
        data.mappings.push(Mapping {
            iid: Some(self.no_mapping()),
            ..Mapping::default()
        });
        let paths = paths
            .into_iter()
            .map(|path| interned(number(path), profile.text(path).as_bytes()));
        data.mapping_paths = paths.collect();
        self.add_frames(&mut data);
        Ok(self.out.write(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(sequence::INCREMENTAL_STATE_CLEARED),
            interned_data: Some(data),
            ..TracePacket::default()
        })?)
    }

    fn no_mapping(&self) -> u64 {
        self.profile.modules.len() as u64 + 1
    }

    fn add_frames(&mut self, data: &mut InternedData) {
        let profile = self.profile;
        let mut names = BTreeSet::new();
        let mut files = BTreeSet::new();
        let lost = profile.strings.len() as u64 + 1;
        data.function_names.push(interned(lost, LOST.as_bytes()));
        for (id, frame) in profile.frames.iter() {
            let (mapping_id, rel_pc) = match *frame {
                Frame::Code { module, offset } => (number(module), Some(offset.0)),
                Frame::Address(address) => (self.no_mapping(), Some(address)),
                Frame::Function { .. } | Frame::Lost => (self.no_mapping(), None),
            };
            let mut add = |function_name_id, source_path_iid, line: u32| {
                let iid = data.frames.len() as u64 + 1;
                data.frames.push(schema::Frame {
                    iid: Some(iid),
                    function_name_id,
                    mapping_id: Some(mapping_id),
                    rel_pc,
                    source_path_iid,
                    line_number: (line > 0).then_some(line),
                });
                iid
            };
            let mut numbers = Vec::new();
            for Line { function, line } in lines(profile, id, frame).iter().rev() {
                let (name, file) = texts(profile, *function);
                names.extend(name);
                files.extend(file);
                numbers.push(add(name.map(number), file.map(number), *line));
            }
            if numbers.is_empty() {
                let name = (*frame == Frame::Lost).then_some(lost);
                numbers.push(add(name, None, 0));
            }
            self.frames.push(numbers);
        }
        let all = |ids: BTreeSet<StringId>| {
            let texts = ids
                .into_iter()
                .map(|id| interned(number(id), profile.text(id).as_bytes()));
            texts.collect::<Vec<_>>()
        };
        data.function_names.extend(all(names));
        data.source_paths = all(files);
    }

    /// Writes the names of processes and threads.
    fn write_threads(&mut self) -> Result<()> {
        let mut processes = BTreeSet::new();
        let count = self.profile.threads.len() as u64;
        for (id, thread) in self.profile.threads.iter() {
            let process = count + 1 + u64::from(thread.pid.0);
            if processes.insert(thread.pid) {
                self.write_track(TrackDescriptor {
                    uuid: Some(process),
                    process: Some(ProcessDescriptor {
                        pid: Some(thread.pid.0 as i32),
                        process_name: Some(self.profile.text(thread.process_name).to_owned()),
                    }),
                    ..TrackDescriptor::default()
                })?;
            }
            self.write_track(TrackDescriptor {
                uuid: Some(number(id)),
                parent_uuid: Some(process),
                thread: Some(ThreadDescriptor {
                    pid: Some(thread.pid.0 as i32),
                    tid: Some(i64::from(thread.tid.0)),
                    thread_name: Some(self.profile.text(thread.name).to_owned()),
                }),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(())
    }

    fn write_track(&mut self, track: TrackDescriptor) -> Result<()> {
        Ok(self.out.write(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })?)
    }

    fn write_sample(&mut self, sample: &Sample, at: u64, weight: u64) -> Result<()> {
        let next = self.stacks.len() as u64 + 1;
        let stack = *self.stacks.entry(sample.stack).or_insert(next);
        let interned_data = (stack == next).then(|| InternedData {
            callstacks: vec![Callstack {
                iid: Some(stack),
                frame_ids: self.frame_numbers(sample.stack),
            }],
            ..InternedData::default()
        });
        Ok(self.out.write(&TracePacket {
            timestamp: Some(at),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(sequence::NEEDS_INCREMENTAL_STATE),
            interned_data,
            stack_sample: Some(StackSample {
                task_context_iid: sample.thread.map(|id: ThreadId| number(id)),
                execution_context: sample.cpu.map(|cpu| ExecutionContext { cpu: Some(cpu.0) }),
                callstack_iid: Some(stack),
                primary_descriptor_iid: Some(number(sample.event)),
                primary_weight: Some(weight),
            }),
            ..TracePacket::default()
        })?)
    }

    /// Returns the numbers of a stack's frames, the outermost first.
    fn frame_numbers(&self, stack: StackId) -> Vec<u64> {
        let frames = self.profile.stacks.frames(stack);
        let numbers = frames.filter_map(|frame| self.frames.get(frame.index()));
        let mut numbers: Vec<u64> = numbers
            .flat_map(|numbers| numbers.iter().rev().copied())
            .collect();
        numbers.reverse();
        numbers
    }
}

/// Returns the functions of a frame with their lines, the innermost first.
fn lines(profile: &Profile, id: FrameId, frame: &Frame) -> Vec<Line> {
    match *frame {
        Frame::Function { function, line } => vec![Line { function, line }],
        _ => profile.lines_of(id).to_vec(),
    }
}

/// Returns the name and the source file of a function.
fn texts(profile: &Profile, function: FunctionId) -> (Option<StringId>, Option<StringId>) {
    let function = profile.functions.get(function);
    (
        function.map(|function| function.name),
        function.and_then(|function| function.file),
    )
}

#[cfg(test)]
mod tests;
