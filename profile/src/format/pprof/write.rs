//! Writing a pprof profile.

use super::schema;
use super::{PID, PROCESS, THREAD, TID};
use crate::frame::{Frame, FrameId, LOST, ModuleId, StringId};
use crate::profile::Profile;
use crate::sample::{Label, LabelSetId, LabelValue, ThreadId};
use crate::stacks::StackId;
use crate::table::{Id, Table};
use crate::{Error, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::collections::BTreeMap;
use std::io::Write;

/// The distance to which mappings are aligned.
const ALIGNMENT: u64 = 1 << 16;

/// The largest offset that is stated as an address of a mapping. No file is larger.
const MAX_OFFSET: u64 = 1 << 44;

/// Writes a profile, packed by gzip.
///
/// Samples with the same stack, thread and labels are added up. A module's addresses begin at an
/// invented one, because a profile of several processes has no common ones. Times and processors of
/// samples are left out: the format has no place for them.
///
/// # Errors
///
/// Those of `out`, and [`Error::Full`] if the message exceeds the limits of its format.
pub fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let mut strings = Strings::default();
    strings.number("")?;
    let mut message = schema::ProfileMessage {
        time_nanos: profile.start.map_or(0, |start| start.0 as i64),
        duration_nanos: profile.duration.unwrap_or(0) as i64,
        ..schema::ProfileMessage::default()
    };
    for (_, event) in profile.events.iter() {
        let kind = schema::ValueTypeMessage {
            kind: strings.of(profile, event.name)?,
            unit: strings.of(profile, event.unit)?,
        };
        message.sample_type.push(kind);
        if event.period != 0 && message.period_type.is_none() {
            message.period_type = Some(kind);
            message.period = event.period as i64;
        }
    }
    for note in &profile.notes {
        message.comment.push(strings.number(note)?);
    }
    let starts = mappings(profile, &mut strings, &mut message)?;
    functions(profile, &mut strings, &mut message)?;
    locations(profile, &starts, &mut strings, &mut message)?;
    samples(profile, &mut strings, &mut message)?;
    message.string_table = strings.list();
    let mut bytes = Vec::new();
    message.encode(&mut bytes).map_err(|_| Error::Full)?;
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&bytes)?;
    gzip.finish()?;
    Ok(())
}

/// The string table; its first string is empty.
#[derive(Default)]
struct Strings {
    table: Table<StringId, Box<str>>,
}

impl Strings {
    fn number(&mut self, text: &str) -> Result<i64> {
        let id = self.table.intern_with(text, || text.into())?;
        Ok(id.index() as i64)
    }

    fn of(&mut self, profile: &Profile, id: StringId) -> Result<i64> {
        self.number(profile.text(id))
    }

    fn list(&self) -> Vec<String> {
        self.table.iter().map(|(_, text)| text.to_string()).collect()
    }
}

/// Returns the number of an id in a message, where 0 means none.
fn number(id: impl Id) -> u64 {
    id.index() as u64 + 1
}

/// Adds the modules, and returns the invented address of each.
fn mappings(
    profile: &Profile,
    strings: &mut Strings,
    message: &mut schema::ProfileMessage,
) -> Result<Vec<u64>> {
    let mut ends = vec![0_u64; profile.modules.len()];
    let mut is_symbolized = vec![true; profile.modules.len()];
    let mut has_inlined = vec![false; profile.modules.len()];
    for (id, frame) in profile.frames.iter() {
        let Frame::Code { module, offset } = *frame else {
            continue;
        };
        if offset.0 > MAX_OFFSET {
            continue;
        }
        let lines = profile.lines_of(id);
        if let Some(end) = ends.get_mut(module.index()) {
            *end = (*end).max(offset.0.saturating_add(1));
        }
        if let Some(all) = is_symbolized.get_mut(module.index()) {
            *all &= !lines.is_empty();
        }
        if let Some(any) = has_inlined.get_mut(module.index()) {
            *any |= lines.len() > 1;
        }
    }
    let mut starts = Vec::with_capacity(ends.len());
    let mut next = ALIGNMENT;
    for (id, module) in profile.modules.iter() {
        let build_id = module.build_id.as_ref().map(ToString::to_string);
        let end = ends.get(id.index()).copied().unwrap_or(0);
        let limit = next.saturating_add(end).max(next.saturating_add(1));
        let is_symbolized = is_symbolized.get(id.index()) == Some(&true);
        message.mapping.push(schema::MappingMessage {
            id: number(id),
            memory_start: next,
            memory_limit: limit,
            file_offset: 0,
            filename: strings.of(profile, module.path)?,
            build_id: strings.number(build_id.as_deref().unwrap_or(""))?,
            has_functions: is_symbolized,
            has_filenames: is_symbolized,
            has_line_numbers: is_symbolized,
            has_inline_frames: has_inlined.get(id.index()) == Some(&true),
        });
        starts.push(next);
        next = limit.checked_next_multiple_of(ALIGNMENT).ok_or(Error::Full)?;
    }
    Ok(starts)
}

fn functions(profile: &Profile, strings: &mut Strings, message: &mut schema::ProfileMessage) -> Result<()> {
    for (id, function) in profile.functions.iter() {
        message.function.push(schema::FunctionMessage {
            id: number(id),
            name: strings.of(profile, function.name)?,
            system_name: strings.of(profile, function.linkage_name)?,
            filename: match function.file {
                None => 0,
                Some(file) => strings.of(profile, file)?,
            },
            start_line: i64::from(function.start_line),
        });
    }
    Ok(())
}

fn locations(
    profile: &Profile,
    starts: &[u64],
    strings: &mut Strings,
    message: &mut schema::ProfileMessage,
) -> Result<()> {
    let mut lost = None;
    for (id, frame) in profile.frames.iter() {
        let (mapping_id, address) = match *frame {
            // A wrong offset would have no place between the mappings.
            Frame::Code { offset, .. } if offset.0 > MAX_OFFSET => (0, offset.0),
            Frame::Code { module, offset } => (number(module), address(starts, module, offset.0)?),
            Frame::Address(address) => (0, address),
            Frame::Function { .. } | Frame::Lost => (0, 0),
        };
        let line = match *frame {
            Frame::Function { function, line } => vec![schema::LineMessage {
                function_id: number(function),
                line: i64::from(line),
            }],
            Frame::Lost => {
                let function_id = profile.functions.len() as u64 + 1;
                lost = Some(function_id);
                vec![schema::LineMessage { function_id, line: 0 }]
            }
            Frame::Code { .. } | Frame::Address(_) => lines(profile, id),
        };
        message.location.push(schema::LocationMessage {
            id: number(id),
            mapping_id,
            address,
            line,
        });
    }
    if let Some(id) = lost {
        let name = strings.number(LOST)?;
        message.function.push(schema::FunctionMessage {
            id,
            name,
            system_name: name,
            filename: 0,
            start_line: 0,
        });
    }
    Ok(())
}

fn address(starts: &[u64], module: ModuleId, offset: u64) -> Result<u64> {
    let start = starts.get(module.index()).copied().unwrap_or(0);
    start.checked_add(offset).ok_or(Error::Full)
}

fn lines(profile: &Profile, frame: FrameId) -> Vec<schema::LineMessage> {
    let lines = profile.lines_of(frame).iter();
    lines
        .map(|line| schema::LineMessage {
            function_id: number(line.function),
            line: i64::from(line.line),
        })
        .collect()
}

fn samples(profile: &Profile, strings: &mut Strings, message: &mut schema::ProfileMessage) -> Result<()> {
    type Key = (StackId, Option<ThreadId>, LabelSetId);
    let mut sums: BTreeMap<Key, Vec<i64>> = BTreeMap::new();
    for sample in &profile.samples {
        let key = (sample.stack, sample.thread, sample.labels);
        let sums = sums.entry(key).or_insert_with(|| vec![0; profile.events.len()]);
        if let Some(sum) = sums.get_mut(sample.event.index()) {
            *sum = sum.saturating_add(sample.weight);
        }
    }
    for ((stack, thread, labels), value) in sums {
        let mut label = Vec::new();
        if let Some(thread) = thread {
            add_thread(profile, thread, strings, &mut label)?;
        }
        for one in profile.labels(labels) {
            label.push(pprof_label(profile, one, strings)?);
        }
        message.sample.push(schema::SampleMessage {
            location_id: profile.stacks.frames(stack).map(number).collect(),
            value,
            label,
        });
    }
    Ok(())
}

fn pprof_label(profile: &Profile, label: &Label, strings: &mut Strings) -> Result<schema::LabelMessage> {
    let key = strings.of(profile, label.key)?;
    Ok(match label.value {
        LabelValue::Text(text) => schema::LabelMessage {
            key,
            text: strings.of(profile, text)?,
            ..schema::LabelMessage::default()
        },
        LabelValue::Number(number, unit) => schema::LabelMessage {
            key,
            number,
            unit: strings.of(profile, unit)?,
            ..schema::LabelMessage::default()
        },
    })
}

fn add_thread(
    profile: &Profile,
    thread: ThreadId,
    strings: &mut Strings,
    labels: &mut Vec<schema::LabelMessage>,
) -> Result<()> {
    let Some(thread) = profile.threads.get(thread) else {
        return Ok(());
    };
    for (key, id) in [(PID, thread.pid.0), (TID, thread.tid.0)] {
        labels.push(schema::LabelMessage {
            key: strings.number(key)?,
            number: i64::from(id),
            ..schema::LabelMessage::default()
        });
    }
    for (key, name) in [(PROCESS, thread.process_name), (THREAD, thread.name)] {
        let text = strings.of(profile, name)?;
        if text != 0 {
            let key = strings.number(key)?;
            labels.push(schema::LabelMessage {
                key,
                text,
                ..schema::LabelMessage::default()
            });
        }
    }
    Ok(())
}
