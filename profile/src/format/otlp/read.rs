//! Reading OTLP profiles.

use super::tables::{TableAttribute, Tables, element};
use super::{CPU, PID, PROCESS, THREAD, TID, malformed, shape};
use crate::format::decoded_size::decoded_size;
use crate::frame::StringId;
use crate::profile::Profile;
use crate::sample::{Event, EventId, Label, LabelSetId, LabelValue, Sample, Thread, ThreadId, UnixNanos};
use crate::stacks::StackId;
use crate::{ReadLimits, Result};
use backtrail_pt::{Cpu, Pid, Tid};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use std::collections::HashMap;

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
/// [`Error::Malformed`](crate::Error::Malformed) if the message refers to something that is not
/// there, or is no message.
/// [`Error::TooLarge`](crate::Error::TooLarge) if the decoded request takes more than 2 GiB.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    read_within(bytes, &ReadLimits::FILE)
}

/// Reads all profiles of a request within limits.
///
/// # Errors
///
/// As [`read`], and those of the limits.
pub fn read_within(bytes: &[u8], limits: &ReadLimits) -> Result<Profile> {
    // The decoded request is all that there is, besides the profile.
    limits.check_bytes(decoded_size(bytes, &shape::REQUEST) / 2)?;
    let request = ExportProfilesServiceRequest::decode(bytes)
        .map_err(|error| malformed(format!("the request is damaged: {error}")))?;
    let mut profile = limits.profile();
    let tables = Tables::new(request.dictionary.unwrap_or_default(), &mut profile, limits)?;
    let mut reader = Reader {
        limits,
        tables,
        profile,
        stacks: HashMap::new(),
        memory: 0,
        frames: 0,
        resource: Vec::new(),
    };
    for resource in &request.resource_profiles {
        reader.begin_resource(resource)?;
        for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
            reader.add(profile)?;
        }
    }
    Ok(reader.profile)
}

/// The tables of a request, and the profile that is built.
struct Reader<'l> {
    limits: &'l ReadLimits,
    tables: Tables,
    profile: Profile,
    stacks: HashMap<i32, StackId>,
    /// The bytes of different sets of labels.
    memory: usize,
    /// The number of frames that were read.
    frames: usize,
    /// The attributes of the resource whose profiles are read.
    resource: Vec<Label>,
}

/// The attributes of a sample.
#[derive(Default)]
struct Attributes {
    pid: Option<u32>,
    tid: Option<u32>,
    process_name: Option<StringId>,
    thread_name: Option<StringId>,
    cpu: Option<Cpu>,
    labels: Vec<Label>,
}

impl Reader<'_> {
    fn stack(&mut self, index: i32) -> Result<StackId> {
        if let Some(known) = self.stacks.get(&index) {
            return Ok(*known);
        }
        let mut stack = StackId::EMPTY;
        if index != 0 || !self.tables.stacks.is_empty() {
            let found = element(&self.tables.stacks, index, "stack")?;
            for location in found.location_indices.iter().rev() {
                let frames = element(&self.tables.locations, *location, "location")?;
                self.frames = self.frames.saturating_add(frames.len());
                if self.frames > MAX_FRAMES {
                    return Err(malformed(format!(
                        "the stacks have more than {MAX_FRAMES} frames"
                    )));
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
                index => self.text(index)?,
            };
            let text = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
                Some(Value::StringValue(text)) => text.clone(),
                Some(Value::StringValueStrindex(index)) => self.text(*index)?,
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
        let name = self.tables.string(kind.type_strindex, &mut self.profile)?;
        let unit = self.tables.string(kind.unit_strindex, &mut self.profile)?;
        self.profile.intern_event(Event { name, unit, period })
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
        let sets = self.profile.label_sets.len();
        let labels: LabelSetId = self.profile.label_set(attributes.labels)?;
        if self.profile.label_sets.len() > sets {
            self.memory += size_of_val(self.profile.labels(labels));
            self.limits.check_bytes(self.memory)?;
        }
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
        self.limits.check(&self.profile)
    }

    fn attributes(&mut self, sample: &otlp::Sample) -> Result<Attributes> {
        let mut found = Attributes::default();
        for index in &sample.attribute_indices {
            let attribute = *element(&self.tables.attributes, *index, "attribute")?;
            self.add_attribute(attribute, &mut found);
        }
        if sample.link_index != 0 {
            let link = element(&self.tables.links, sample.link_index, "link")?;
            found.labels.extend(link);
        }
        for label in &self.resource {
            // The sample knows better.
            if found.labels.iter().all(|own| own.key != label.key) {
                found.labels.push(*label);
            }
        }
        Ok(found)
    }

    fn add_attribute(&self, TableAttribute { key, value }: TableAttribute, found: &mut Attributes) {
        match (self.profile.text(key), value) {
            (PID, Some(LabelValue::Number(id, _))) => found.pid = u32::try_from(id).ok(),
            (TID, Some(LabelValue::Number(id, _))) => found.tid = u32::try_from(id).ok(),
            (CPU, Some(LabelValue::Number(cpu, _))) => found.cpu = u32::try_from(cpu).ok().map(Cpu),
            (PROCESS, Some(LabelValue::Text(name))) => found.process_name = Some(name),
            (THREAD, Some(LabelValue::Text(name))) => found.thread_name = Some(name),
            (_, Some(value)) => found.labels.push(Label { key, value }),
            // Other values are no labels.
            (_, None) => {}
        }
    }

    /// Returns a copy of a text of the request.
    fn text(&mut self, index: i32) -> Result<String> {
        let text = self.tables.string(index, &mut self.profile)?;
        Ok(self.profile.text(text).to_owned())
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
        let empty = self.profile.string("")?;
        let thread = Thread {
            pid: Pid(pid),
            tid: Tid(tid),
            process_name: attributes.process_name.unwrap_or(empty),
            name: attributes.thread_name.unwrap_or(empty),
        };
        Ok(Some(self.profile.threads.intern(thread)?))
    }
}
