//! The samples of one chunk.

use super::chunk::{Chunk, Clock, Record};
use super::cursor::Cursor;
use super::info::{InfoKind, RecordingInfo};
use super::metadata::{Type, TypeIdx, Types};
use super::names::class_name;
use super::sample_kinds::{ConstantKey, Measure, SampleFields, SampleKind};
use super::stacks::ChunkStacks;
use super::values::Values;
use crate::frame::StringId;
use crate::profile::Profile;
use crate::sample::{Label, LabelValue, Sample, Thread, ThreadId, UnixNanos};
use crate::{ReadLimits, Result};
use backtrail_pt::{Pid, Tid};
use std::collections::HashMap;
use std::rc::Rc;

/// The parts of chunks that could not be read.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Events without all of their bytes, or with impossible ones.
    pub events: u64,
    /// Checkpoints of which constants are missing.
    pub checkpoints: u64,
    /// Stack traces that no constant describes.
    pub stacks: u64,
}

/// A state of threads.
#[derive(Clone)]
struct State {
    name: Rc<str>,
    label: Label,
}

/// The indexed records of a chunk.
pub(super) struct ChunkReader<'c, 'a> {
    chunk: &'c Chunk<'a>,
    values: Values<'a>,
    samples: HashMap<i64, (SampleKind, TypeIdx)>,
    infos: HashMap<i64, (InfoKind, TypeIdx)>,
    is_async: bool,
    /// The position of the first byte that belongs to no record.
    pub damaged_at: Option<usize>,
    stacks: ChunkStacks,
    threads: HashMap<ConstantKey, Option<ThreadId>>,
    states: HashMap<ConstantKey, Option<State>>,
    class_labels: HashMap<ConstantKey, StringId>,
}

impl<'c, 'a> ChunkReader<'c, 'a> {
    /// Reads the types and constants of a chunk. `None`: there are no types, so that no event can
    /// be read.
    pub(super) fn new(chunk: &'c Chunk<'a>, damage: &mut Damage) -> Option<Self> {
        let mut types = None;
        let mut checkpoints = Vec::new();
        let mut damaged_at = None;
        for record in chunk.records() {
            match record {
                // Later metadata have the types of all earlier ones.
                Record::Metadata(cursor) => types = Types::read(cursor).or(types),
                Record::Checkpoint(cursor) => checkpoints.push(cursor),
                Record::Event(..) => {}
                Record::Damaged(at) => damaged_at = Some(at),
            }
        }
        let mut values = Values::new(types?, chunk.cursor());
        for checkpoint in checkpoints {
            damage.checkpoints += u64::from(values.add_constants(checkpoint).is_none());
        }
        let (mut samples, mut infos) = (HashMap::new(), HashMap::new());
        let mut is_async = false;
        for (id, index, kind) in values.types().numbered() {
            if let Some(sample) = SampleKind::named(&kind.name) {
                samples.insert(id, (sample, index));
            }
            if let Some(info) = InfoKind::named(&kind.name) {
                infos.insert(id, (info, index));
            }
            // async-profiler describes its own events even if there are none.
            is_async |= kind.name.starts_with("profiler.");
        }
        Some(Self {
            chunk,
            values,
            samples,
            infos,
            is_async,
            damaged_at,
            stacks: ChunkStacks::default(),
            threads: HashMap::new(),
            states: HashMap::new(),
            class_labels: HashMap::new(),
        })
    }

    /// Returns whether the chunk needs more time or memory than its size permits.
    pub(super) fn is_exhausted(&self) -> bool {
        self.values.is_exhausted()
    }

    /// Reads what the chunk reports about the recording.
    pub(super) fn read_info(&self, info: &mut RecordingInfo, damage: &mut Damage) {
        for (id, cursor) in events(self.chunk) {
            let Some((kind, index)) = self.infos.get(&id) else {
                continue;
            };
            // The JVM's settings have other names and meanings.
            if *kind == InfoKind::Setting && !self.is_async {
                continue;
            }
            let event = self.values.types().get(*index);
            let read = event.and_then(|event| info.add(*kind, event, &self.values, cursor));
            damage.events += u64::from(read.is_none());
        }
    }

    /// Adds the samples of the chunk to a profile.
    pub(super) fn add_samples(
        &mut self,
        info: &RecordingInfo,
        profile: &mut Profile,
        damage: &mut Damage,
        limits: &ReadLimits,
    ) -> Result<()> {
        let chunk = self.chunk;
        for (id, cursor) in events(chunk) {
            let Some((kind, index)) = self.samples.get(&id).copied() else {
                continue;
            };
            let event = self.values.types().get(index);
            let fields = event.and_then(|event| self.fields(event, &chunk.clock, cursor));
            match fields {
                Some(fields) => {
                    self.add_sample(kind, &fields, info, profile)?;
                    limits.check(profile)?;
                }
                None => damage.events += 1,
            }
        }
        damage.stacks += self.stacks.missing;
        Ok(())
    }

    fn fields(&self, event: &Type, clock: &Clock, cursor: Cursor<'a>) -> Option<SampleFields> {
        SampleFields::read(event, &self.values, clock, cursor)
    }

    fn add_sample(
        &mut self,
        kind: SampleKind,
        fields: &SampleFields,
        info: &RecordingInfo,
        profile: &mut Profile,
    ) -> Result<()> {
        let state = match fields.state {
            Some(key) => self.state(key, profile)?,
            None => None,
        };
        let name = state.as_ref().map_or("", |state| &*state.name);
        let measure = Measure::new(kind, fields, name, info, self.is_async);
        let period = u64::try_from(measure.period).unwrap_or(0);
        let event = profile.event(&measure.event, measure.unit, period)?;
        let is_async = self.is_async;
        let stack = self.stacks.stack(&self.values, profile, fields.stack, is_async)?;
        let thread = match fields.thread {
            Some(key) => self.thread(key, info, profile)?,
            None => None,
        };
        let mut labels = Vec::new();
        labels.extend(state.map(|state| state.label));
        if let Some(key) = fields.class.filter(|(_, key)| *key != 0) {
            labels.push(self.class_label(key, profile)?);
        }
        if fields.is_failed {
            labels.push(text_label(profile, "failed", "true")?);
        }
        let labels = profile.label_set(labels)?;
        profile.samples.push(Sample {
            event,
            weight: measure.weight,
            stack,
            time: fields.time.map(UnixNanos),
            thread,
            cpu: None,
            labels,
        });
        Ok(())
    }

    fn state(&mut self, key: ConstantKey, profile: &mut Profile) -> Result<Option<State>> {
        if let Some(state) = self.states.get(&key) {
            return Ok(state.clone());
        }
        let name = self.values.text_of_constant(key).filter(|name| !name.is_empty());
        let state = match name {
            None => None,
            Some(name) => Some(State {
                label: text_label(profile, "state", &name)?,
                name: name.into(),
            }),
        };
        self.states.insert(key, state.clone());
        Ok(state)
    }

    fn class_label(&mut self, key: ConstantKey, profile: &mut Profile) -> Result<Label> {
        let name = match self.class_labels.get(&key) {
            Some(name) => *name,
            None => {
                let name = class_name(self.stacks.class(&self.values, key));
                let name = profile.string(&name)?;
                self.class_labels.insert(key, name);
                name
            }
        };
        Ok(Label {
            key: profile.string("class")?,
            value: LabelValue::Text(name),
        })
    }

    fn thread(
        &mut self,
        key: ConstantKey,
        info: &RecordingInfo,
        profile: &mut Profile,
    ) -> Result<Option<ThreadId>> {
        if let Some(thread) = self.threads.get(&key) {
            return Ok(*thread);
        }
        let mut tid = 0;
        let mut name = String::new();
        let read = self
            .values
            .each_field_of_constant(key.0, key.1, &mut |field, at| {
                match &*field.name {
                    "osThreadId" => {
                        let id = self.values.number(field, at);
                        tid = id.and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
                    }
                    // The name in Java is the newer one, since the system cuts long names.
                    "javaName" => {
                        let java = self.values.text(field, at).filter(|java| !java.is_empty());
                        name = java.unwrap_or(std::mem::take(&mut name));
                    }
                    "osName" if name.is_empty() => name = self.values.text(field, at).unwrap_or_default(),
                    _ => {}
                }
            });
        let thread = match read {
            None => None,
            Some(()) => {
                let thread = Thread {
                    pid: Pid(info.pid),
                    tid: Tid(tid),
                    process_name: profile.string(&info.program)?,
                    name: profile.string(&name)?,
                };
                Some(profile.threads.intern(thread)?)
            }
        };
        self.threads.insert(key, thread);
        Ok(thread)
    }
}

/// Returns the events of a chunk: their types and contents.
fn events<'a>(chunk: &Chunk<'a>) -> impl Iterator<Item = (i64, Cursor<'a>)> + use<'a> {
    chunk.records().filter_map(|record| match record {
        Record::Event(id, cursor) => Some((id, cursor)),
        _ => None,
    })
}

fn text_label(profile: &mut Profile, key: &str, text: &str) -> Result<Label> {
    Ok(Label {
        key: profile.string(key)?,
        value: LabelValue::Text(profile.string(text)?),
    })
}
