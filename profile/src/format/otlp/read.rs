//! Reading OTLP profiles.

use super::{BUILD_ID, CPU, FILE_HASH, PID, PROCESS, SPAN_ID, THREAD, TID, TRACE_ID};
use crate::frame::{Frame, FrameId, Function, FunctionId, LOST, Line, Module, ModuleId};
use crate::profile::Profile;
use crate::sample::{EventId, Label, LabelSetId, LabelValue, Sample, Thread, ThreadId, UnixNanos};
use crate::stacks::StackId;
use crate::{Error, Result};
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use std::collections::HashMap;

/// The largest accepted request in bytes.
const MAX_BYTES: usize = 1 << 30;
/// The most functions that are inlined into one location.
const MAX_INLINED: usize = 200;
/// The most attributes of a resource.
const MAX_RESOURCE: usize = 64;
/// The most frames of all stacks.
const MAX_FRAMES: usize = 1 << 26;

/// Returns whether a message has only the fields of an export request. A pprof profile has others.
#[must_use]
pub fn is_otlp(mut bytes: &[u8]) -> bool {
    let mut has_dictionary = false;
    while !bytes.is_empty() {
        let Ok((tag @ 1..=2, WireType::LengthDelimited)) = decode_key(&mut bytes) else {
            return false;
        };
        has_dictionary |= tag == 2;
        let Some(rest) = decode_varint(&mut bytes)
            .ok()
            .and_then(|length| bytes.get(usize::try_from(length).ok()?..))
        else {
            return false;
        };
        bytes = rest;
    }
    has_dictionary
}

/// Reads all profiles of an export request as one.
///
/// Attributes of processes, threads and processors become those of samples, and the others become
/// labels. Those of a resource, as its `service.name`, become labels of all its samples. A link
/// becomes the labels `trace_id` and `span_id`.
///
/// # Errors
///
/// [`Error::Malformed`] if the message refers to something that is not there, or is no message.
/// [`Error::TooLarge`] beyond 1 GiB.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::TooLarge {
            limit: MAX_BYTES as u64,
        });
    }
    let request = ExportProfilesServiceRequest::decode(bytes)
        .map_err(|error| malformed(format!("the request is damaged: {error}")))?;
    let mut reader = Reader::new(request.dictionary.unwrap_or_default());
    reader.add_tables()?;
    for resource in &request.resource_profiles {
        reader.begin_resource(resource)?;
        for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
            reader.add(profile)?;
        }
    }
    Ok(reader.profile)
}

fn malformed(problem: impl Into<String>) -> Error {
    Error::Malformed {
        format: "OTLP",
        problem: problem.into(),
    }
}

/// Returns an element of a table.
fn element<'t, T>(table: &'t [T], index: i32, name: &str) -> Result<&'t T> {
    let found = usize::try_from(index).ok().and_then(|index| table.get(index));
    found.ok_or_else(|| malformed(format!("there is no {name} {index}")))
}

/// A file in the memory of the process.
#[derive(Clone, Copy)]
struct Mapping {
    module: ModuleId,
    /// The address of the first byte.
    start: u64,
    /// The address after the last byte. 0: unknown.
    limit: u64,
    /// The file offset of the first byte.
    offset: u64,
}

impl Mapping {
    /// Returns the file offset of an address. `None`: the mapping does not have it.
    ///
    /// Addresses of a process and those of the file's headers have the same result, since the
    /// sender states the start in the same way. Source: `Location` and `Mapping` of
    /// `profiles.proto`.
    fn offset_of(&self, address: u64) -> Option<FileOffset> {
        let is_below = self.limit == 0 || address < self.limit;
        let inside = address.checked_sub(self.start).filter(|_| is_below)?;
        inside.checked_add(self.offset).map(FileOffset)
    }
}

/// The tables of a request, and the profile that is built.
struct Reader {
    dictionary: otlp::ProfilesDictionary,
    profile: Profile,
    mappings: Vec<Option<Mapping>>,
    functions: Vec<FunctionId>,
    /// The frames of each location, the innermost first.
    locations: Vec<Vec<FrameId>>,
    stacks: HashMap<i32, StackId>,
    frames: usize,
    /// The attributes of the resource whose profiles are read.
    resource: Vec<Label>,
}

/// The attributes of a sample.
#[derive(Default)]
struct Attributes {
    pid: Option<u32>,
    tid: Option<u32>,
    process_name: String,
    thread_name: String,
    cpu: Option<Cpu>,
    labels: Vec<Label>,
}

impl Reader {
    fn new(dictionary: otlp::ProfilesDictionary) -> Self {
        Self {
            dictionary,
            profile: Profile::default(),
            mappings: Vec::new(),
            functions: Vec::new(),
            locations: Vec::new(),
            stacks: HashMap::new(),
            frames: 0,
            resource: Vec::new(),
        }
    }

    /// Returns a string. Number 0 is the empty one, even if the table lacks it.
    fn text(&self, index: i32) -> Result<&str> {
        match (index, self.dictionary.string_table.is_empty()) {
            (0, true) => Ok(""),
            _ => element(&self.dictionary.string_table, index, "string").map(String::as_str),
        }
    }

    fn add_tables(&mut self) -> Result<()> {
        for mapping in std::mem::take(&mut self.dictionary.mapping_table) {
            let mut build_id: Option<BuildId> = None;
            let mut file_hash: Option<BuildId> = None;
            for index in &mapping.attribute_indices {
                let attribute = element(&self.dictionary.attribute_table, *index, "attribute")?;
                let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
                if let Some(Value::StringValue(text)) = value {
                    match self.text(attribute.key_strindex)? {
                        BUILD_ID => build_id = text.parse().ok(),
                        FILE_HASH => file_hash = id_of_hash(text),
                        _ => {}
                    }
                }
            }
            // Files with a note have a hash, too.
            let build_id = build_id.or(file_hash);
            let path = self.text(mapping.filename_strindex)?.to_owned();
            let known = match build_id.is_some() || !path.is_empty() {
                false => None,
                true => {
                    let path = self.profile.string(&path)?;
                    Some(Mapping {
                        module: self.profile.modules.intern(Module { build_id, path })?,
                        start: mapping.memory_start,
                        limit: mapping.memory_limit,
                        offset: mapping.file_offset,
                    })
                }
            };
            self.mappings.push(known);
        }
        for function in std::mem::take(&mut self.dictionary.function_table) {
            let function = self.function(&function)?;
            self.functions.push(function);
        }
        for location in std::mem::take(&mut self.dictionary.location_table) {
            let frames = self.location(&location)?;
            self.locations.push(frames);
        }
        Ok(())
    }

    fn function(&mut self, function: &otlp::Function) -> Result<FunctionId> {
        let name = self.text(function.name_strindex)?.to_owned();
        let linkage_name = match function.system_name_strindex {
            0 => name.clone(),
            index => self.text(index)?.to_owned(),
        };
        let file = match function.filename_strindex {
            0 => None,
            index => Some(self.text(index)?.to_owned()),
        };
        let name = if name.is_empty() { &linkage_name } else { &name };
        let function = Function {
            name: self.profile.string(name)?,
            linkage_name: self.profile.string(&linkage_name)?,
            file: file.map(|file| self.profile.string(&file)).transpose()?,
            start_line: u32::try_from(function.start_line).unwrap_or(0),
        };
        self.profile.functions.intern(function)
    }

    fn location(&mut self, location: &otlp::Location) -> Result<Vec<FrameId>> {
        if location.lines.len() > MAX_INLINED {
            return Err(malformed(format!(
                "a location has more than {MAX_INLINED} inlined functions"
            )));
        }
        let lines = location.lines.iter().map(|line| {
            Ok(Line {
                function: *element(&self.functions, line.function_index, "function")?,
                line: u32::try_from(line.line).unwrap_or(0),
            })
        });
        let lines = lines.collect::<Result<Vec<_>>>()?;
        let mapping = match (location.mapping_index, self.mappings.is_empty()) {
            (0, true) => None,
            (index, _) => *element(&self.mappings, index, "mapping")?,
        };
        let code = mapping.filter(|_| location.address != 0).and_then(|mapping| {
            let offset = mapping.offset_of(location.address)?;
            let module = mapping.module;
            Some(Frame::Code { module, offset })
        });
        let frame = match code {
            Some(code) => code,
            _ if location.address == 0 && !lines.is_empty() => {
                let frames = lines.iter().map(|line| {
                    let frame = match self.is_lost(line.function) {
                        true => Frame::Lost,
                        false => Frame::Function {
                            function: line.function,
                            line: line.line,
                        },
                    };
                    self.profile.frames.intern(frame)
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

    fn is_lost(&self, function: FunctionId) -> bool {
        let function = self.profile.functions.get(function);
        function.is_some_and(|function| self.profile.text(function.name) == LOST)
    }

    fn stack(&mut self, index: i32) -> Result<StackId> {
        if let Some(known) = self.stacks.get(&index) {
            return Ok(*known);
        }
        let mut stack = StackId::EMPTY;
        if index != 0 || !self.dictionary.stack_table.is_empty() {
            let found = element(&self.dictionary.stack_table, index, "stack")?;
            for location in found.location_indices.iter().rev() {
                let frames = element(&self.locations, *location, "location")?;
                self.frames = self.frames.saturating_add(frames.len());
                if self.frames > MAX_FRAMES {
                    return Err(Error::Full);
                }
                for frame in frames.iter().rev() {
                    stack = self.profile.stacks.push(stack, *frame)?;
                }
            }
        }
        self.stacks.insert(index, stack);
        Ok(stack)
    }

    /// Begins the profiles of a resource. Attributes that are lists or maps are left out.
    fn begin_resource(&mut self, resource: &otlp::ResourceProfiles) -> Result<()> {
        self.resource.clear();
        let attributes = resource.resource.iter().flat_map(|resource| &resource.attributes);
        for attribute in attributes.take(MAX_RESOURCE) {
            let key = match attribute.key_strindex {
                0 => attribute.key.clone(),
                index => self.text(index)?.to_owned(),
            };
            let text = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
                Some(Value::StringValue(text)) => text.clone(),
                Some(Value::StringValueStrindex(index)) => self.text(*index)?.to_owned(),
                Some(Value::IntValue(number)) => number.to_string(),
                Some(Value::BoolValue(is_true)) => is_true.to_string(),
                _ => continue,
            };
            let label = self.text_label(&key, &text)?;
            self.resource.push(label);
        }
        Ok(())
    }

    fn add(&mut self, profile: &otlp::Profile) -> Result<()> {
        let event = self.event(profile)?;
        if profile.time_unix_nano != 0 {
            let start = UnixNanos(profile.time_unix_nano);
            self.profile.start = Some(self.profile.start.map_or(start, |known| known.min(start)));
        }
        if profile.duration_nano != 0 {
            let duration = self.profile.duration.unwrap_or(0).max(profile.duration_nano);
            self.profile.duration = Some(duration);
        }
        for sample in &profile.samples {
            self.sample(event, sample)?;
        }
        Ok(())
    }

    fn event(&mut self, profile: &otlp::Profile) -> Result<EventId> {
        let kind = profile.sample_type.unwrap_or_default();
        let period = match profile.period_type == profile.sample_type {
            true => u64::try_from(profile.period).unwrap_or(0),
            false => 0,
        };
        let name = self.text(kind.type_strindex)?.to_owned();
        let unit = self.text(kind.unit_strindex)?.to_owned();
        self.profile.event(&name, &unit, period)
    }

    fn sample(&mut self, event: EventId, sample: &otlp::Sample) -> Result<()> {
        let (values, times) = (&sample.values, &sample.timestamps_unix_nano);
        if !times.is_empty() && !values.is_empty() && times.len() != values.len() {
            return Err(malformed(format!(
                "a sample has {} values and {} times",
                values.len(),
                times.len()
            )));
        }
        let stack = self.stack(sample.stack_index)?;
        let attributes = self.attributes(sample)?;
        let thread = self.thread(&attributes)?;
        let labels: LabelSetId = self.profile.label_set(attributes.labels)?;
        for index in 0..values.len().max(times.len()) {
            // A time without a value is one event.
            let weight = values.get(index).copied().unwrap_or(1);
            if weight == 0 {
                continue;
            }
            self.profile.samples.push(Sample {
                event,
                weight,
                stack,
                time: times.get(index).map(|time| UnixNanos(*time)),
                thread,
                cpu: attributes.cpu,
                labels,
            });
        }
        Ok(())
    }

    fn attributes(&mut self, sample: &otlp::Sample) -> Result<Attributes> {
        let mut found = Attributes::default();
        for index in &sample.attribute_indices {
            let attribute = element(&self.dictionary.attribute_table, *index, "attribute")?.clone();
            let key = self.text(attribute.key_strindex)?.to_owned();
            let value = match attribute.value.and_then(|value| value.value) {
                Some(Value::StringValueStrindex(index)) => {
                    Some(Value::StringValue(self.text(index)?.to_owned()))
                }
                value => value,
            };
            match (&*key, value) {
                (PID, Some(Value::IntValue(id))) => found.pid = u32::try_from(id).ok(),
                (TID, Some(Value::IntValue(id))) => found.tid = u32::try_from(id).ok(),
                (CPU, Some(Value::IntValue(cpu))) => found.cpu = u32::try_from(cpu).ok().map(Cpu),
                (PROCESS, Some(Value::StringValue(name))) => found.process_name = name,
                (THREAD, Some(Value::StringValue(name))) => found.thread_name = name,
                (_, Some(Value::IntValue(number))) => {
                    let unit = self.text(attribute.unit_strindex)?.to_owned();
                    let unit = self.profile.string(&unit)?;
                    let key = self.profile.string(&key)?;
                    let value = LabelValue::Number(number, unit);
                    found.labels.push(Label { key, value });
                }
                (_, Some(Value::StringValue(text))) => {
                    let label = self.text_label(&key, &text)?;
                    found.labels.push(label);
                }
                (_, Some(Value::BoolValue(is_true))) => {
                    let label = self.text_label(&key, if is_true { "true" } else { "false" })?;
                    found.labels.push(label);
                }
                // Other values are no labels.
                _ => {}
            }
        }
        if sample.link_index != 0 {
            let link = element(&self.dictionary.link_table, sample.link_index, "link")?;
            let (trace, span) = (hexadecimal(&link.trace_id), hexadecimal(&link.span_id));
            for (key, id) in [(TRACE_ID, trace), (SPAN_ID, span)] {
                let label = self.text_label(key, &id)?;
                found.labels.push(label);
            }
        }
        for label in &self.resource {
            // The sample knows better.
            if found.labels.iter().all(|own| own.key != label.key) {
                found.labels.push(*label);
            }
        }
        Ok(found)
    }

    fn text_label(&mut self, key: &str, text: &str) -> Result<Label> {
        Ok(Label {
            key: self.profile.string(key)?,
            value: LabelValue::Text(self.profile.string(text)?),
        })
    }

    fn thread(&mut self, attributes: &Attributes) -> Result<Option<ThreadId>> {
        let Some((pid, tid)) = attributes.pid.zip(attributes.tid) else {
            return Ok(None);
        };
        let thread = Thread {
            pid: Pid(pid),
            tid: Tid(tid),
            process_name: self.profile.string(&attributes.process_name)?,
            name: self.profile.string(&attributes.thread_name)?,
        };
        Ok(Some(self.profile.threads.intern(thread)?))
    }
}

/// Returns the id of a file by the hash of its contents, in hexadecimal digits.
fn id_of_hash(text: &str) -> Option<BuildId> {
    let hash: BuildId = text.parse().ok()?;
    Some(BuildId::of_file_hash(hash.as_bytes().try_into().ok()?))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
