//! Writing OTLP profiles.

use super::{BUILD_ID, CPU, FILE_HASH, PID, PROCESS, SPAN_ID, THREAD, TID, TRACE_ID};
use crate::frame::{Frame, FrameId, LOST};
use crate::profile::Profile;
use crate::sample::{EventId, Label, LabelSetId, LabelValue, Sample, ThreadId};
use crate::stacks::StackId;
use crate::table::Id;
use crate::{Error, Result};
use backtrail_pt::Cpu;
use indexmap::{IndexMap, IndexSet};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope};
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use prost::Message;
use std::collections::BTreeMap;
use std::io::Write;

/// Writes a profile as one export request: a profile for each event, and one dictionary.
///
/// Samples with the same stack, thread, processor and labels are one sample with several values.
/// Labels `trace_id` and `span_id` in hexadecimal become its link. An address is the offset in the
/// file of its mapping.
///
/// # Errors
///
/// Those of `out`, and [`Error::Full`] if the message exceeds the limits of its format.
pub fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let mut dictionary = Dictionary::new();
    dictionary.add_tables(profile)?;
    let mut profiles = Vec::new();
    for (event, _) in profile.events.iter() {
        profiles.push(one_event(profile, event, &mut dictionary)?);
    }
    let scope = otlp::ScopeProfiles {
        scope: Some(InstrumentationScope {
            name: "backtrail".to_owned(),
            ..InstrumentationScope::default()
        }),
        profiles,
        schema_url: String::new(),
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![otlp::ResourceProfiles {
            resource: None,
            scope_profiles: vec![scope],
            schema_url: String::new(),
        }],
        dictionary: Some(dictionary.finish()?),
    };
    out.write_all(&request.encode_to_vec())?;
    Ok(())
}

fn one_event(profile: &Profile, event: EventId, dictionary: &mut Dictionary) -> Result<otlp::Profile> {
    let (kind, period) = match profile.events.get(event) {
        None => (otlp::ValueType::default(), 0),
        Some(event) => {
            let kind = otlp::ValueType {
                type_strindex: dictionary.string(profile.text(event.name))?,
                unit_strindex: dictionary.string(profile.text(event.unit))?,
            };
            (kind, event.period)
        }
    };
    type Key = (StackId, Option<ThreadId>, Option<Cpu>, LabelSetId);
    let mut groups: BTreeMap<Key, Vec<&Sample>> = BTreeMap::new();
    for sample in profile.samples.iter().filter(|sample| sample.event == event) {
        let key = (sample.stack, sample.thread, sample.cpu, sample.labels);
        groups.entry(key).or_default().push(sample);
    }
    let mut samples = Vec::with_capacity(groups.len());
    for ((stack, thread, cpu, labels), group) in groups {
        let mut sample = otlp::Sample {
            stack_index: dictionary.stack(profile, stack)?,
            ..otlp::Sample::default()
        };
        dictionary.add_attributes(profile, (thread, cpu, labels), &mut sample)?;
        let (timed, sums): (Vec<&Sample>, Vec<&Sample>) =
            group.into_iter().partition(|sample| sample.time.is_some());
        if !sums.is_empty() {
            let weights = sums.iter().map(|sample| sample.weight);
            samples.push(otlp::Sample {
                values: vec![weights.fold(0, i64::saturating_add)],
                ..sample.clone()
            });
        }
        if !timed.is_empty() {
            sample.values = timed.iter().map(|sample| sample.weight).collect();
            let times = timed.iter().filter_map(|sample| sample.time);
            sample.timestamps_unix_nano = times.map(|time| time.0).collect();
            samples.push(sample);
        }
    }
    Ok(otlp::Profile {
        sample_type: Some(kind),
        samples,
        time_unix_nano: profile.start.map_or(0, |start| start.0),
        duration_nano: profile.duration.unwrap_or(0),
        period_type: (period != 0).then_some(kind),
        period: i64::try_from(period).unwrap_or(i64::MAX),
        ..otlp::Profile::default()
    })
}

/// The tables of a request. The first element of each is its zero value.
struct Dictionary {
    message: otlp::ProfilesDictionary,
    strings: IndexSet<String>,
    attributes: IndexMap<(i32, AttributeValue, i32), ()>,
    links: IndexSet<(Vec<u8>, Vec<u8>)>,
    stacks: BTreeMap<StackId, i32>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AttributeValue {
    None,
    Text(String),
    Number(i64),
}

impl Dictionary {
    fn new() -> Self {
        Self {
            message: otlp::ProfilesDictionary {
                mapping_table: vec![otlp::Mapping::default()],
                location_table: vec![otlp::Location::default()],
                function_table: vec![otlp::Function::default()],
                stack_table: vec![otlp::Stack::default()],
                ..otlp::ProfilesDictionary::default()
            },
            strings: IndexSet::from([String::new()]),
            attributes: IndexMap::from([((0, AttributeValue::None, 0), ())]),
            links: IndexSet::from([(Vec::new(), Vec::new())]),
            stacks: BTreeMap::new(),
        }
    }

    fn string(&mut self, text: &str) -> Result<i32> {
        let index = match self.strings.get_index_of(text) {
            Some(index) => index,
            None => self.strings.insert_full(text.to_owned()).0,
        };
        number(index)
    }

    fn attribute(&mut self, key: &str, value: AttributeValue, unit: &str) -> Result<i32> {
        let key = (self.string(key)?, value, self.string(unit)?);
        number(self.attributes.insert_full(key, ()).0)
    }

    /// Adds the mappings, functions and locations, each with the number of its id and one more.
    fn add_tables(&mut self, profile: &Profile) -> Result<()> {
        for (_, module) in profile.modules.iter() {
            let mut attribute_indices = Vec::new();
            if let Some(build_id) = &module.build_id {
                let (key, text) = match build_id.file_hash() {
                    Some(hash) => (FILE_HASH, hash.iter().map(|byte| format!("{byte:02x}")).collect()),
                    None => (BUILD_ID, build_id.to_string()),
                };
                attribute_indices.push(self.attribute(key, AttributeValue::Text(text), "")?);
            }
            let filename_strindex = self.string(profile.text(module.path))?;
            self.message.mapping_table.push(otlp::Mapping {
                memory_limit: u64::MAX,
                filename_strindex,
                attribute_indices,
                ..otlp::Mapping::default()
            });
        }
        for (_, function) in profile.functions.iter() {
            let function = otlp::Function {
                name_strindex: self.string(profile.text(function.name))?,
                system_name_strindex: self.string(profile.text(function.linkage_name))?,
                filename_strindex: match function.file {
                    None => 0,
                    Some(file) => self.string(profile.text(file))?,
                },
                start_line: i64::from(function.start_line),
            };
            self.message.function_table.push(function);
        }
        let lost = number(self.message.function_table.len())?;
        let name_strindex = self.string(LOST)?;
        self.message.function_table.push(otlp::Function {
            name_strindex,
            ..otlp::Function::default()
        });
        for (id, frame) in profile.frames.iter() {
            self.message
                .location_table
                .push(location(profile, id, *frame, lost)?);
        }
        Ok(())
    }

    fn stack(&mut self, profile: &Profile, stack: StackId) -> Result<i32> {
        if let Some(known) = self.stacks.get(&stack) {
            return Ok(*known);
        }
        let frames = profile.stacks.frames(stack);
        let location_indices = frames.map(one_after).collect::<Result<Vec<_>>>()?;
        let index = match location_indices.is_empty() {
            true => 0,
            false => {
                self.message.stack_table.push(otlp::Stack { location_indices });
                number(self.message.stack_table.len() - 1)?
            }
        };
        self.stacks.insert(stack, index);
        Ok(index)
    }

    fn add_attributes(
        &mut self,
        profile: &Profile,
        (thread, cpu, labels): (Option<ThreadId>, Option<Cpu>, LabelSetId),
        sample: &mut otlp::Sample,
    ) -> Result<()> {
        let mut add = |key: &str, value: AttributeValue, unit: &str| -> Result<()> {
            sample.attribute_indices.push(self.attribute(key, value, unit)?);
            Ok(())
        };
        if let Some(thread) = thread.and_then(|thread| profile.threads.get(thread)) {
            add(PID, AttributeValue::Number(thread.pid.0.into()), "")?;
            add(TID, AttributeValue::Number(thread.tid.0.into()), "")?;
            for (key, name) in [(PROCESS, thread.process_name), (THREAD, thread.name)] {
                let name = profile.text(name);
                if !name.is_empty() {
                    add(key, AttributeValue::Text(name.to_owned()), "")?;
                }
            }
        }
        if let Some(cpu) = cpu {
            add(CPU, AttributeValue::Number(cpu.0.into()), "")?;
        }
        let labels = profile.labels(labels);
        let link = link(profile, labels);
        for label in labels {
            let key = profile.text(label.key);
            if link.is_some() && [TRACE_ID, SPAN_ID].contains(&key) {
                continue;
            }
            match label.value {
                LabelValue::Text(text) => add(key, AttributeValue::Text(profile.text(text).to_owned()), "")?,
                LabelValue::Number(value, unit) => {
                    add(key, AttributeValue::Number(value), profile.text(unit))?;
                }
            }
        }
        if let Some(link) = link {
            sample.link_index = number(self.links.insert_full(link).0)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<otlp::ProfilesDictionary> {
        let attributes = self
            .attributes
            .into_keys()
            .map(|(key, value, unit)| otlp::KeyValueAndUnit {
                key_strindex: key,
                value: match value {
                    AttributeValue::None => None,
                    AttributeValue::Text(text) => Some(Value::StringValue(text)),
                    AttributeValue::Number(number) => Some(Value::IntValue(number)),
                }
                .map(|value| AnyValue { value: Some(value) }),
                unit_strindex: unit,
            });
        let links = self.links.into_iter();
        Ok(otlp::ProfilesDictionary {
            attribute_table: attributes.collect(),
            link_table: links
                .map(|(trace_id, span_id)| otlp::Link { trace_id, span_id })
                .collect(),
            string_table: self.strings.into_iter().collect(),
            ..self.message
        })
    }
}

fn location(profile: &Profile, id: FrameId, frame: Frame, lost: i32) -> Result<otlp::Location> {
    let (mapping_index, address) = match frame {
        Frame::Code { module, offset } => (one_after(module)?, offset.0),
        Frame::Address(address) => (0, address),
        Frame::Function { .. } | Frame::Lost => (0, 0),
    };
    let line = |function_index, line: u32| otlp::Line {
        function_index,
        line: i64::from(line),
        column: 0,
    };
    let lines = match frame {
        Frame::Function { function, line: at } => vec![line(one_after(function)?, at)],
        Frame::Lost => vec![line(lost, 0)],
        Frame::Code { .. } | Frame::Address(_) => {
            let lines = profile.lines_of(id).iter();
            let lines = lines.map(|found| Ok(line(one_after(found.function)?, found.line)));
            lines.collect::<Result<Vec<_>>>()?
        }
    };
    Ok(otlp::Location {
        mapping_index,
        address,
        lines,
        attribute_indices: Vec::new(),
    })
}

/// Returns the index of an id in its table, which begins with a zero value.
fn one_after(id: impl Id) -> Result<i32> {
    number(id.index() + 1)
}

fn number(index: usize) -> Result<i32> {
    i32::try_from(index).map_err(|_| Error::Full)
}

/// Returns the trace and the span that labels name, if they are of the right lengths.
fn link(profile: &Profile, labels: &[Label]) -> Option<(Vec<u8>, Vec<u8>)> {
    let id = |key: &str, length: usize| {
        let mut labels = labels.iter().filter(|label| profile.text(label.key) == key);
        match labels.next()?.value {
            LabelValue::Text(text) => bytes(profile.text(text)).filter(|bytes| bytes.len() == length),
            LabelValue::Number(..) => None,
        }
    };
    Some((id(TRACE_ID, 16)?, id(SPAN_ID, 8)?))
}

/// Returns the bytes of a hexadecimal text.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| Some(digit.to_digit(16)? as u8))
        .collect();
    let pairs = digits?;
    (pairs.len() % 2 == 0).then(|| {
        let pairs = pairs.chunks_exact(2);
        pairs
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect()
    })
}
