//! Reading a pprof profile.

use super::schema::{self, tag};
use super::{PID, PROCESS, THREAD, TID};
use crate::format::decoded_size::{MessageShape, decoded_size};
use crate::frame::{Frame, FrameId, Function, FunctionId, Line, Module, ModuleId, StringId};
use crate::profile::Profile;
use crate::sample::{EventId, Label, LabelSetId, LabelValue, Sample, Thread, ThreadId, UnixNanos};
use crate::stacks::StackId;
use crate::{Error, ReadLimits, Result};
use backtrail_pt::{FileOffset, Pid, Tid};
use flate2::read::MultiGzDecoder;
use indexmap::IndexSet;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, skip_field};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

/// The most different comments. Further ones are left out.
const MAX_COMMENTS: usize = 100;
/// The first bytes of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The most functions that are inlined into one location.
const MAX_INLINED: usize = 200;
/// The most frames of all samples.
const MAX_FRAMES: usize = 1 << 26;

/// Reads a profile, which gzip may have packed.
///
/// Addresses become offsets in the files of their mappings. Labels `pid` and `tid` with numbers
/// become the thread of a sample.
///
/// # Errors
///
/// [`Error::Malformed`] if a message refers to something that is not there, or is no message.
/// [`Error::TooLarge`] beyond 1 GiB, of the message or of its decoded tables.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    read_within(bytes, &ReadLimits::FILE)
}

/// Reads a profile within limits.
///
/// # Errors
///
/// As [`read`], and those of the limits.
pub fn read_within(bytes: &[u8], limits: &ReadLimits) -> Result<Profile> {
    let bytes = unpacked(bytes, limits)?;
    let mut reader = PprofReader::new(*limits);
    // The tables first: samples may come before the strings that they refer to.
    each_field(&bytes, |tag, field| reader.table_field(tag, field))?;
    if reader.strings.is_empty() {
        return Err(malformed("the message has no strings, so that it is no profile"));
    }
    reader.finish_tables()?;
    each_field(&bytes, |tag, field| match (tag, field) {
        (tag::SAMPLE, Field::Bytes(bytes)) => {
            limits.check_bytes(decoded_size(bytes, &schema::SAMPLE))?;
            reader.sample(message(bytes, "a sample")?)
        }
        _ => Ok(()),
    })?;
    Ok(reader.profile)
}

/// Returns whether bytes are packed by gzip, or a message with types of samples and strings.
/// Each pprof profile has them.
#[must_use]
pub fn is_pprof(bytes: &[u8]) -> bool {
    let (mut has_types, mut has_strings) = (false, false);
    // The rest of a damaged profile is not read.
    let _ = each_field(bytes, |tag, field| {
        has_types |= tag == tag::SAMPLE_TYPE && matches!(field, Field::Bytes(_));
        has_strings |= tag == tag::STRING && matches!(field, Field::Bytes(_));
        Ok(())
    });
    bytes.starts_with(&GZIP) || (has_types && has_strings)
}

/// Returns the bytes without gzip.
pub fn unpacked<'b>(bytes: &'b [u8], limits: &ReadLimits) -> Result<Cow<'b, [u8]>> {
    if !bytes.starts_with(&GZIP) {
        limits.check_bytes(bytes.len())?;
        return Ok(Cow::Borrowed(bytes));
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(limits.bytes as u64 + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| malformed(format!("the gzip data is damaged: {error}")))?;
    limits.check_bytes(unpacked.len())?;
    Ok(Cow::Owned(unpacked))
}

fn malformed(problem: impl Into<String>) -> Error {
    Error::Malformed {
        format: "pprof",
        problem: problem.into(),
    }
}

fn message<M: Message + Default>(bytes: &[u8], name: &str) -> Result<M> {
    M::decode(bytes).map_err(|error| malformed(format!("{name} is damaged: {error}")))
}

/// A field of the outermost message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Calls `visit` for each field of a message. Reading them one by one needs no memory for those
/// that are not wanted.
fn each_field<'a>(mut bytes: &'a [u8], mut visit: impl FnMut(u32, Field<'a>) -> Result<()>) -> Result<()> {
    let damaged = |error: prost::DecodeError| malformed(format!("the profile is damaged: {error}"));
    while !bytes.is_empty() {
        let (tag, wire) = decode_key(&mut bytes).map_err(damaged)?;
        match wire {
            WireType::Varint => visit(tag, Field::Number(decode_varint(&mut bytes).map_err(damaged)?))?,
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).map_err(damaged)?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (field, rest) = bytes
                    .split_at_checked(length)
                    .ok_or_else(|| malformed("the profile ends within a message"))?;
                visit(tag, Field::Bytes(field))?;
                bytes = rest;
            }
            other => skip_field(other, tag, &mut bytes, Default::default()).map_err(damaged)?,
        }
    }
    Ok(())
}

/// Returns the offset of a location in the file of its mapping. `None`: the mapping does not have
/// the address.
fn offset(location: &schema::LocationMessage, mapping: &schema::MappingMessage) -> Option<FileOffset> {
    let offset = location.address.checked_sub(mapping.memory_start)?;
    Some(FileOffset(offset.checked_add(mapping.file_offset)?))
}

/// The tables of a profile by their ids, and the profile that is built.
struct PprofReader {
    limits: ReadLimits,
    profile: Profile,
    strings: Vec<StringId>,
    sample_types: Vec<schema::ValueTypeMessage>,
    events: Vec<EventId>,
    period_type: Option<schema::ValueTypeMessage>,
    period: u64,
    comments: Vec<i64>,
    mappings: Vec<schema::MappingMessage>,
    functions: Vec<schema::FunctionMessage>,
    locations: Vec<schema::LocationMessage>,
    /// The frames of each location, the innermost first.
    frames: HashMap<u64, Vec<FrameId>>,
    /// The memory of the decoded tables in bytes.
    memory: usize,
    /// The number of frames of all samples.
    read_frames: usize,
}

impl PprofReader {
    fn new(limits: ReadLimits) -> Self {
        Self {
            limits,
            profile: limits.profile(),
            strings: Vec::new(),
            sample_types: Vec::new(),
            events: Vec::new(),
            period_type: None,
            period: 0,
            comments: Vec::new(),
            mappings: Vec::new(),
            functions: Vec::new(),
            locations: Vec::new(),
            frames: HashMap::new(),
            memory: 0,
            read_frames: 0,
        }
    }

    fn table_field(&mut self, tag: u32, field: Field<'_>) -> Result<()> {
        match (tag, field) {
            (tag::SAMPLE_TYPE, Field::Bytes(bytes)) => {
                self.count_memory(bytes, &schema::VALUE_TYPE)?;
                self.sample_types.push(message(bytes, "a sample type")?);
            }
            (tag::MAPPING, Field::Bytes(bytes)) => {
                self.count_memory(bytes, &schema::MAPPING)?;
                self.mappings.push(message(bytes, "a mapping")?);
            }
            (tag::LOCATION, Field::Bytes(bytes)) => {
                self.count_memory(bytes, &schema::LOCATION)?;
                self.locations.push(message(bytes, "a location")?);
            }
            (tag::FUNCTION, Field::Bytes(bytes)) => {
                self.count_memory(bytes, &schema::FUNCTION)?;
                self.functions.push(message(bytes, "a function")?);
            }
            (tag::STRING, Field::Bytes(bytes)) => {
                let string = self.profile.string(&String::from_utf8_lossy(bytes))?;
                self.strings.push(string);
                self.limits.check(&self.profile)?;
            }
            (tag::PERIOD_TYPE, Field::Bytes(bytes)) => {
                self.period_type = Some(message(bytes, "the period's type")?);
            }
            (tag::TIME, Field::Number(time)) if time > 0 => {
                self.profile.start = Some(UnixNanos(time));
            }
            (tag::DURATION, Field::Number(duration)) if duration > 0 => {
                self.profile.duration = Some(duration);
            }
            (tag::PERIOD, Field::Number(period)) => self.period = period,
            (tag::COMMENT, Field::Number(comment)) => self.comments.push(comment as i64),
            (tag::COMMENT, Field::Bytes(mut packed)) => {
                self.memory += size_of::<i64>() * packed.len();
                self.limits.check_bytes(self.memory)?;
                while !packed.is_empty() {
                    let comment = decode_varint(&mut packed)
                        .map_err(|error| malformed(format!("a comment is damaged: {error}")))?;
                    self.comments.push(comment as i64);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts the memory of an entry of a table.
    fn count_memory(&mut self, bytes: &[u8], shape: &MessageShape) -> Result<()> {
        self.memory += decoded_size(bytes, shape);
        self.limits.check_bytes(self.memory)
    }

    /// Returns a string. Number 0 is the empty one, even if the table lacks it.
    fn string(&mut self, number: i64) -> Result<StringId> {
        let known = usize::try_from(number)
            .ok()
            .and_then(|number| self.strings.get(number));
        match known {
            Some(string) => Ok(*string),
            None if number == 0 => self.profile.string(""),
            None => Err(malformed(format!("there is no string {number}"))),
        }
    }

    fn finish_tables(&mut self) -> Result<()> {
        for kind in std::mem::take(&mut self.sample_types) {
            let (name, unit) = (self.string(kind.kind)?, self.string(kind.unit)?);
            let period = if self.period_type == Some(kind) {
                self.period
            } else {
                0
            };
            let event = crate::sample::Event { name, unit, period };
            self.events.push(self.profile.intern_event(event)?);
        }
        let mut comments = IndexSet::new();
        for comment in std::mem::take(&mut self.comments) {
            comments.insert(self.string(comment)?);
        }
        for comment in comments.iter().take(MAX_COMMENTS) {
            self.profile.notes.push(self.profile.text(*comment).to_owned());
        }
        if let Some(more) = comments.len().checked_sub(MAX_COMMENTS).filter(|more| *more > 0) {
            self.profile
                .notes
                .push(format!("{more} further comments are left out"));
        }
        let mut modules = HashMap::new();
        for mapping in std::mem::take(&mut self.mappings) {
            let build_id = self.string(mapping.build_id)?;
            let path = self.string(mapping.filename)?;
            let build_id = self.profile.text(build_id).parse().ok();
            let is_known = build_id.is_some() || !self.profile.text(path).is_empty();
            let module = self.profile.modules.intern(Module { build_id, path })?;
            modules.insert(mapping.id, is_known.then_some((module, mapping)));
        }
        let mut functions = HashMap::new();
        for function in std::mem::take(&mut self.functions) {
            functions.insert(function.id, self.function(&function)?);
        }
        for location in std::mem::take(&mut self.locations) {
            let frames = self.location(&location, &modules, &functions)?;
            self.frames.insert(location.id, frames);
            self.limits.check(&self.profile)?;
        }
        Ok(())
    }

    fn function(&mut self, function: &schema::FunctionMessage) -> Result<FunctionId> {
        let name = self.string(function.name)?;
        let linkage_name = match function.system_name {
            0 => name,
            number => self.string(number)?,
        };
        let name = match self.profile.text(name).is_empty() {
            true => linkage_name,
            false => name,
        };
        let file = match function.filename {
            0 => None,
            number => Some(self.string(number)?),
        };
        self.profile.functions.intern(Function {
            name,
            linkage_name,
            file,
            start_line: u32::try_from(function.start_line).unwrap_or(0),
        })
    }

    /// Returns the frames of a location, the innermost first.
    fn location(
        &mut self,
        location: &schema::LocationMessage,
        modules: &HashMap<u64, Option<(ModuleId, schema::MappingMessage)>>,
        functions: &HashMap<u64, FunctionId>,
    ) -> Result<Vec<FrameId>> {
        if location.line.len() > MAX_INLINED {
            return Err(malformed(format!(
                "location {} has more than {MAX_INLINED} inlined functions",
                location.id
            )));
        }
        let lines = location.line.iter().map(|line| {
            let function = functions.get(&line.function_id).copied();
            let function =
                function.ok_or_else(|| malformed(format!("there is no function {}", line.function_id)))?;
            Ok(Line {
                function,
                line: u32::try_from(line.line).unwrap_or(0),
            })
        });
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let mapping = match location.mapping_id {
            0 => None,
            id => *modules
                .get(&id)
                .ok_or_else(|| malformed(format!("there is no mapping {id}")))?,
        };
        let mapping = mapping.and_then(|(module, mapping)| Some((module, offset(location, &mapping)?)));
        let frame = match mapping {
            Some((module, offset)) if location.address != 0 => Frame::Code { module, offset },
            _ if location.address == 0 && !lines.is_empty() => {
                let frames = lines.iter().map(|line| {
                    self.profile.frames.intern(Frame::Function {
                        function: line.function,
                        line: line.line,
                    })
                });
                return frames.collect();
            }
            _ => Frame::Address(location.address),
        };
        let frame = self.profile.frames.intern(frame)?;
        if !lines.is_empty() {
            self.profile.lines.insert(frame, lines.into());
        }
        Ok(vec![frame])
    }

    fn sample(&mut self, sample: schema::SampleMessage) -> Result<()> {
        if sample.value.len() != self.events.len() {
            return Err(malformed(format!(
                "a sample has {} values, but there are {} sample types",
                sample.value.len(),
                self.events.len()
            )));
        }
        let mut stack = StackId::EMPTY;
        for id in sample.location_id.iter().rev() {
            let frames = self
                .frames
                .get(id)
                .ok_or_else(|| malformed(format!("there is no location {id}")))?;
            self.read_frames += frames.len();
            if self.read_frames > MAX_FRAMES {
                return Err(malformed(format!(
                    "the samples have more than {MAX_FRAMES} frames"
                )));
            }
            for frame in frames.iter().rev() {
                stack = self.profile.stacks.push(stack, *frame)?;
            }
        }
        let (thread, labels) = self.labels(&sample.label)?;
        for (index, weight) in sample.value.into_iter().enumerate() {
            let event = self.events.get(index).copied();
            let Some(event) = event.filter(|_| weight != 0) else {
                continue;
            };
            self.profile.samples.push(Sample {
                event,
                weight,
                stack,
                time: None,
                thread,
                cpu: None,
                labels,
            });
        }
        self.limits.check(&self.profile)
    }

    fn labels(&mut self, labels: &[schema::LabelMessage]) -> Result<(Option<ThreadId>, LabelSetId)> {
        let mut set = Vec::with_capacity(labels.len());
        for label in labels {
            let key = self.string(label.key)?;
            let value = match label.text {
                0 => LabelValue::Number(label.number, self.string(label.unit)?),
                text => LabelValue::Text(self.string(text)?),
            };
            set.push(Label { key, value });
        }
        let thread = self.thread(&mut set)?;
        let sets = self.profile.label_sets.len();
        let set = self.profile.label_set(set)?;
        if self.profile.label_sets.len() > sets {
            self.memory += size_of_val(self.profile.labels(set));
            self.limits.check_bytes(self.memory)?;
        }
        Ok((thread, set))
    }

    /// Takes the labels of a thread out of a set, if it has both ids.
    fn thread(&mut self, set: &mut Vec<Label>) -> Result<Option<ThreadId>> {
        let profile = &mut self.profile;
        let id = |key: &str| {
            let mut labels = set.iter().filter(|label| profile.text(label.key) == key);
            match labels.next()?.value {
                LabelValue::Number(id, _) => u32::try_from(id).ok(),
                LabelValue::Text(_) => None,
            }
        };
        let name = |key: &str| {
            let mut labels = set.iter().filter(|label| profile.text(label.key) == key);
            match labels.next()?.value {
                LabelValue::Text(name) => Some(name),
                LabelValue::Number(..) => None,
            }
        };
        let (Some(pid), Some(tid)) = (id(PID), id(TID)) else {
            return Ok(None);
        };
        let (process_name, thread_name) = (name(PROCESS), name(THREAD));
        let empty = profile.string("")?;
        set.retain(|label| ![PID, TID, PROCESS, THREAD].contains(&profile.text(label.key)));
        let thread = Thread {
            pid: Pid(pid),
            tid: Tid(tid),
            process_name: process_name.unwrap_or(empty),
            name: thread_name.unwrap_or(empty),
        };
        Ok(Some(profile.threads.intern(thread)?))
    }
}
