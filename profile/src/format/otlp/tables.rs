//! The tables that all profiles of a request share, with the texts of the profile that is built.
//! Each text is read once, since many entries may refer to a long one.

use super::{BUILD_ID, FILE_HASH, SPAN_ID, TRACE_ID, malformed};
use crate::frame::{Frame, FrameId, Function, FunctionId, LOST, Line, Module, ModuleId, StringId};
use crate::profile::Profile;
use crate::sample::{Label, LabelValue};
use crate::{ReadLimits, Result};
use backtrail_pt::{BuildId, FileOffset};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as otlp;

/// The most functions that are inlined into one location.
const MAX_INLINED: usize = 200;
/// The most digits of a build id or a hash.
const MAX_ID: usize = 256;

/// Returns an element of a table.
pub(super) fn element<'t, T>(table: &'t [T], index: i32, name: &str) -> Result<&'t T> {
    let found = usize::try_from(index).ok().and_then(|index| table.get(index));
    found.ok_or_else(|| malformed(format!("there is no {name} {index}")))
}

/// The tables of a request.
#[derive(Default)]
pub(super) struct Tables {
    strings: Vec<StringId>,
    pub(super) attributes: Vec<TableAttribute>,
    /// The labels of each link.
    pub(super) links: Vec<[Label; 2]>,
    mappings: Vec<Option<Mapping>>,
    functions: Vec<FunctionId>,
    /// The frames of each location, the innermost first.
    pub(super) locations: Vec<Vec<FrameId>>,
    pub(super) stacks: Vec<otlp::Stack>,
}

/// An attribute of the table.
#[derive(Clone, Copy)]
pub(super) struct TableAttribute {
    pub(super) key: StringId,
    /// `None`: the value is no label.
    pub(super) value: Option<LabelValue>,
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

impl Tables {
    /// Reads the tables, and adds their texts, modules, functions and frames to a profile.
    pub(super) fn new(
        dictionary: otlp::ProfilesDictionary,
        profile: &mut Profile,
        limits: &ReadLimits,
    ) -> Result<Self> {
        let mut this = Self {
            stacks: dictionary.stack_table,
            ..Self::default()
        };
        for text in &dictionary.string_table {
            this.strings.push(profile.string(text)?);
            limits.check(profile)?;
        }
        for attribute in &dictionary.attribute_table {
            let attribute = this.attribute(attribute, profile)?;
            this.attributes.push(attribute);
            limits.check(profile)?;
        }
        for link in &dictionary.link_table {
            this.links.push(labels_of_link(link, profile)?);
            limits.check(profile)?;
        }
        for mapping in &dictionary.mapping_table {
            let mapping = this.mapping(mapping, profile)?;
            this.mappings.push(mapping);
            limits.check(profile)?;
        }
        for function in &dictionary.function_table {
            let function = this.function(function, profile)?;
            this.functions.push(function);
            limits.check(profile)?;
        }
        for location in &dictionary.location_table {
            let frames = this.location(location, profile)?;
            this.locations.push(frames);
            limits.check(profile)?;
        }
        Ok(this)
    }

    /// Returns a text. Number 0 is the empty one, even if the table lacks it.
    pub(super) fn string(&self, index: i32, profile: &mut Profile) -> Result<StringId> {
        match (index, self.strings.is_empty()) {
            (0, true) => profile.string(""),
            _ => element(&self.strings, index, "string").copied(),
        }
    }

    fn attribute(&self, attribute: &otlp::KeyValueAndUnit, profile: &mut Profile) -> Result<TableAttribute> {
        let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        let value = match value {
            Some(Value::StringValueStrindex(index)) => Some(LabelValue::Text(self.string(*index, profile)?)),
            Some(Value::StringValue(text)) => Some(LabelValue::Text(profile.string(text)?)),
            Some(Value::IntValue(number)) => {
                let unit = self.string(attribute.unit_strindex, profile)?;
                Some(LabelValue::Number(*number, unit))
            }
            Some(Value::BoolValue(is_true)) => {
                let text = if *is_true { "true" } else { "false" };
                Some(LabelValue::Text(profile.string(text)?))
            }
            _ => None,
        };
        Ok(TableAttribute {
            key: self.string(attribute.key_strindex, profile)?,
            value,
        })
    }

    fn mapping(&self, mapping: &otlp::Mapping, profile: &mut Profile) -> Result<Option<Mapping>> {
        let (mut build_id, mut file_hash) = (None, None);
        for index in &mapping.attribute_indices {
            let attribute = element(&self.attributes, *index, "attribute")?;
            let Some(LabelValue::Text(text)) = attribute.value else {
                continue;
            };
            let text = profile.text(text);
            match profile.text(attribute.key) {
                _ if text.len() > MAX_ID => {}
                BUILD_ID => build_id = text.parse().ok(),
                FILE_HASH => file_hash = id_of_hash(text),
                _ => {}
            }
        }
        // Files with a note have a hash, too.
        let build_id: Option<BuildId> = build_id.or(file_hash);
        let path = self.string(mapping.filename_strindex, profile)?;
        if build_id.is_none() && profile.text(path).is_empty() {
            return Ok(None);
        }
        Ok(Some(Mapping {
            module: profile.modules.intern(Module { build_id, path })?,
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            offset: mapping.file_offset,
        }))
    }

    fn function(&self, function: &otlp::Function, profile: &mut Profile) -> Result<FunctionId> {
        let name = self.string(function.name_strindex, profile)?;
        let linkage_name = match function.system_name_strindex {
            0 => name,
            index => self.string(index, profile)?,
        };
        let file = match function.filename_strindex {
            0 => None,
            index => Some(self.string(index, profile)?),
        };
        let has_name = !profile.text(name).is_empty();
        profile.functions.intern(Function {
            name: if has_name { name } else { linkage_name },
            linkage_name,
            file,
            start_line: u32::try_from(function.start_line).unwrap_or(0),
        })
    }

    fn location(&self, location: &otlp::Location, profile: &mut Profile) -> Result<Vec<FrameId>> {
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
                    let frame = match is_lost(line.function, profile) {
                        true => Frame::Lost,
                        false => Frame::Function {
                            function: line.function,
                            line: line.line,
                        },
                    };
                    profile.frames.intern(frame)
                });
                return frames.collect();
            }
            _ => Frame::Address(location.address),
        };
        let frame = profile.frames.intern(frame)?;
        if !lines.is_empty() {
            profile.lines.insert(frame, lines.into());
        }
        Ok(vec![frame])
    }
}

fn is_lost(function: FunctionId, profile: &Profile) -> bool {
    let function = profile.functions.get(function);
    function.is_some_and(|function| profile.text(function.name) == LOST)
}

fn labels_of_link(link: &otlp::Link, profile: &mut Profile) -> Result<[Label; 2]> {
    let mut label = |key: &str, id: &[u8]| -> Result<Label> {
        Ok(Label {
            key: profile.string(key)?,
            value: LabelValue::Text(profile.string(&hexadecimal(id))?),
        })
    };
    Ok([label(TRACE_ID, &link.trace_id)?, label(SPAN_ID, &link.span_id)?])
}

/// Returns the id of a file by the hash of its contents, in hexadecimal digits.
fn id_of_hash(text: &str) -> Option<BuildId> {
    let hash: BuildId = text.parse().ok()?;
    Some(BuildId::of_file_hash(hash.as_bytes().try_into().ok()?))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
