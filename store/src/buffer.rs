//! Samples of many profiles in memory, until they are a segment.

use crate::content::{Content, Context, ContextId, PeriodicEvent, Row, column_time};
use crate::hour::Hour;
use crate::idle_counts::IdleCounts;
use crate::origin::{Origin, Origins};
use crate::origin_notes::OriginNotes;
use crate::push_hashes::{PushHash, PushHashes};
use crate::schema::Effort;
use crate::segment::{SegmentEntry, TableKind};
use crate::segment_writer::{SegmentHistory, SegmentWriter, Sink};
use crate::{Error, Result};
use backtrail_profile::{LabelSetId, LabelValue, Profile, UnixNanos, merge};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The maximum number of different hours in the samples of one profile.
const MAX_HOURS: usize = 48;
/// The maximum length of a note.
const MAX_NOTE: usize = 300;

/// A segment as bytes: its description and its files, in the order of [`TableKind::ALL`].
pub(crate) struct EncodedSegment {
    /// The description.
    pub(crate) entry: SegmentEntry,
    /// The files.
    pub(crate) files: Files,
}

/// The bytes of a segment's files.
#[derive(Default)]
pub(crate) struct Files([Vec<u8>; 4]);

impl Files {
    /// Takes the bytes of a file.
    pub(crate) fn take(&mut self, kind: TableKind) -> Vec<u8> {
        self.0
            .get_mut(kind as usize)
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

impl Sink for Files {
    fn send(&mut self, kind: TableKind, bytes: Vec<u8>) -> Result<()> {
        match self.0.get_mut(kind as usize) {
            Some(file) if file.is_empty() => *file = bytes,
            Some(file) => file.extend_from_slice(&bytes),
            None => {}
        }
        Ok(())
    }
}

/// Samples in memory.
#[derive(Default)]
pub(crate) struct Buffer {
    content: Content,
    rows: Vec<Row>,
    notes: OriginNotes,
    idle: IdleCounts,
    pushes: PushHashes,
}

impl Buffer {
    /// Adds the samples of a profile. A sample without a time gets the profile's start, or
    /// `received` if that is unknown.
    pub(crate) fn add(
        &mut self,
        origins: Origins<'_>,
        labels: &[(String, String)],
        profile: &Profile,
        received: UnixNanos,
    ) -> Result<()> {
        origins.check(profile)?;
        let start = profile.start.unwrap_or(received);
        check_times(profile, start)?;
        let mut ids = Vec::with_capacity(origins.distinct.len());
        for origin in origins.distinct {
            ids.push(self.content.origins.intern(origin.clone())?);
        }
        let merged = merge(&mut self.content.profile, profile);
        let samples = std::mem::take(&mut self.content.profile.samples);
        let branch_stacks = std::mem::take(&mut self.content.profile.branch_stacks);
        let notes = std::mem::take(&mut self.content.profile.notes);
        self.content.profile.start = None;
        self.content.profile.duration = None;
        merged?;
        let mut contexts: HashMap<LabelSetId, ContextId> = HashMap::new();
        let mut rows = Vec::with_capacity(samples.len());
        // An event of the content has samples of several profiles, with the periods of each.
        for (index, (sample, source)) in samples.into_iter().zip(&profile.samples).enumerate() {
            let event = PeriodicEvent {
                event: sample.event,
                period: profile.events.get(source.event).map_or(0, |event| event.period),
            };
            let Some(origin) = ids.get(origins.of(index)).copied() else {
                continue;
            };
            let context = match contexts.get(&sample.labels) {
                Some(context) => *context,
                None => {
                    let texts = context_of(&self.content.profile, sample.labels, labels);
                    let context = self.content.context(texts)?;
                    contexts.insert(sample.labels, context);
                    context
                }
            };
            rows.push(Row {
                time: column_time(sample.time.unwrap_or(start)),
                weight: sample.weight,
                origin,
                event: self.content.events.intern(event)?,
                thread: sample.thread,
                cpu: sample.cpu.map(|cpu| cpu.0),
                stack: sample.stack,
                context,
            });
        }
        self.rows.extend(rows);
        for note in notes {
            self.note(note, origins.distinct);
        }
        if !branch_stacks.is_empty() {
            let note = "branches before samples were left out, because the store does not keep them";
            self.note(note.into(), origins.distinct);
        }
        Ok(())
    }

    /// Counts samples of idle threads that were left out.
    pub(crate) fn add_idle(&mut self, counts: &IdleCounts) {
        self.idle.absorb(counts);
    }

    /// Adds the hash of a push whose samples were added.
    pub(crate) fn add_push(&mut self, hash: PushHash, received: UnixNanos) {
        self.pushes.add(hash, Hour::of(received));
    }

    fn note(&mut self, mut note: String, origins: &[Origin]) {
        if note.len() > MAX_NOTE {
            let end = (0..=MAX_NOTE).rev().find(|end| note.is_char_boundary(*end));
            note.truncate(end.unwrap_or(0));
        }
        self.notes.add(note, origins);
    }

    /// Returns the number of samples.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns an estimate of the memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let profile = &self.content.profile;
        let texts: usize = profile.strings.len() * 96;
        self.rows.capacity() * size_of::<Row>()
            + texts
            + profile.stacks.len() * 40
            + (profile.frames.len() + profile.functions.len() + profile.modules.len()) * 80
            + self.content.contexts.len() * 160
    }

    /// Returns a segment for each hour.
    pub(crate) fn encode(&self) -> Result<Vec<EncodedSegment>> {
        let mut hours: BTreeMap<Hour, Vec<Row>> = BTreeMap::new();
        for row in &self.rows {
            let hour = Hour::of(UnixNanos(row.time.cast_unsigned().saturating_mul(1000)));
            hours.entry(hour).or_default().push(*row);
        }
        let mut segments = Vec::with_capacity(hours.len());
        let last = hours.keys().last().copied();
        for (hour, mut rows) in hours {
            self.content.sort(&mut rows);
            let mut files = Files::default();
            let mut writer = SegmentWriter::new(hour, Effort::Low)?;
            writer.push(&self.content, &rows, &mut files)?;
            // The last hour is kept for the longest time.
            let (idle, pushes) = match last == Some(hour) {
                true => (self.idle.clone(), self.pushes.clone()),
                false => Default::default(),
            };
            let history = SegmentHistory {
                origin_notes: self.notes.clone(),
                idle,
                pushes,
                ..SegmentHistory::default()
            };
            let entry = writer.finish(&self.content, history, &mut files)?;
            segments.push(EncodedSegment { entry, files });
        }
        Ok(segments)
    }
}

/// Checks that the samples are of few hours.
fn check_times(profile: &Profile, start: UnixNanos) -> Result<()> {
    let mut hours = BTreeSet::new();
    for sample in &profile.samples {
        let time = sample.time.unwrap_or(start);
        hours.insert(Hour::of(time));
        if hours.len() > MAX_HOURS {
            return Err(Error::Invalid(format!(
                "the samples of a profile are of more than {MAX_HOURS} hours; send shorter profiles"
            )));
        }
    }
    Ok(())
}

/// Returns the labels of a set with those of the origin. A key with several values has all of them.
fn context_of(profile: &Profile, set: LabelSetId, labels: &[(String, String)]) -> Context {
    let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, value) in labels {
        values.entry(key).or_default().push(value.clone());
    }
    for label in profile.labels(set) {
        let value = match label.value {
            LabelValue::Text(text) => profile.text(text).to_owned(),
            LabelValue::Number(number, unit) => match profile.text(unit) {
                "" => number.to_string(),
                unit => format!("{number} {unit}"),
            },
            _ => continue,
        };
        values.entry(profile.text(label.key)).or_default().push(value);
    }
    let joined = values.into_iter().map(|(key, values)| {
        let value = values.join(", ");
        (Box::from(key), value.into_boxed_str())
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::{Label, StackId};

    fn profile(times: &[Option<u64>]) -> Profile {
        let mut profile = Profile::default();
        let event = profile.event("cpu", "nanoseconds", 1).unwrap();
        for time in times {
            profile.add(event, 1, StackId::EMPTY).unwrap();
            let sample = profile.samples.last_mut().unwrap();
            sample.time = time.map(UnixNanos);
        }
        profile
    }

    #[test]
    fn profile_over_the_edge_of_an_hour_is_two_segments() {
        let edge = Hour(100).end().0;
        let mut buffer = Buffer::default();
        let profile = profile(&[Some(edge - 1), Some(edge), Some(edge + 5001)]);
        buffer
            .add(Origins::one(&Origin::default()), &[], &profile, UnixNanos(0))
            .unwrap();
        let segments = buffer.encode().unwrap();
        let rows: Vec<_> = segments
            .iter()
            .map(|segment| (segment.entry.hour, segment.entry.samples.rows))
            .collect();
        assert_eq!(rows, [(Hour(100), 1), (Hour(101), 2)]);
        assert_eq!(
            (segments[1].entry.first, segments[1].entry.last),
            (edge, edge + 5999)
        );
    }

    #[test]
    fn sums_get_the_start_of_the_profile() {
        let mut sums = profile(&[None]);
        sums.start = Some(UnixNanos(77_000));
        let mut buffer = Buffer::default();
        buffer
            .add(Origins::one(&Origin::default()), &[], &sums, UnixNanos(5000))
            .unwrap();
        sums.start = None;
        buffer
            .add(Origins::one(&Origin::default()), &[], &sums, UnixNanos(5000))
            .unwrap();
        let times: Vec<_> = buffer.rows.iter().map(|row| row.time).collect();
        assert_eq!(times, [77, 5]);
    }

    #[test]
    fn profile_of_many_hours_is_refused() {
        let times: Vec<_> = (0..49).map(|hour| Some(Hour(hour).start().0)).collect();
        let mut buffer = Buffer::default();
        let origin = Origin::default();
        let error = buffer.add(Origins::one(&origin), &[], &profile(&times), UnixNanos(0));
        assert!(error.unwrap_err().to_string().contains("48 hours"));
        assert_eq!(buffer.rows(), 0);
        let times = &times[..48];
        buffer
            .add(Origins::one(&origin), &[], &profile(times), UnixNanos(0))
            .unwrap();
    }

    #[test]
    fn numbers_and_repeated_keys_are_texts() {
        let mut profile = profile(&[Some(1)]);
        let [key, size, a, b, bytes] =
            ["route", "size", "/a", "/b", "bytes"].map(|text| profile.string(text).unwrap());
        let label = |key, value| Label { key, value };
        let labels = vec![
            label(key, LabelValue::Text(a)),
            label(key, LabelValue::Text(b)),
            label(size, LabelValue::Number(12, bytes)),
        ];
        let set = profile.label_set(labels).unwrap();
        let zone = [("zone".to_owned(), "z1".to_owned())];
        let labels = context_of(&profile, set, &zone);
        let labels: Vec<_> = labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(
            labels,
            [("route", "/a, /b"), ("size", "12 bytes"), ("zone", "z1")]
        );
    }

    #[test]
    fn notes_are_bounded() {
        let mut buffer = Buffer::default();
        for number in 0..100 {
            buffer.note(format!("{number}{}", "é".repeat(400)), &[]);
        }
        assert_eq!(buffer.notes.len(), SegmentEntry::MAX_NOTES);
        assert!(buffer.notes.iter().all(|(note, _)| note.len() <= MAX_NOTE));
    }
}
