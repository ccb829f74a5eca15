//! Segments: the files of one commit, and their description in the catalog.

use crate::build_id_filter::BuildIdFilter;
use crate::hour::Hour;
use crate::idle_counts::IdleCounts;
use crate::origin_notes::{NoteOrigins, OriginNotes};
use crate::{Error, Result};
use backtrail_profile::UnixNanos;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The random id of a segment, which its files have as their name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(u128);

impl SegmentId {
    /// Returns a random id.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the system has no random numbers.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| Error::System {
            action: "read random numbers",
            reason: error.to_string(),
        })?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SegmentId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::Invalid(format!("`{text}` is not the id of a segment"));
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_hex) {
            return Err(invalid());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| invalid())
    }
}

impl Serialize for SegmentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SegmentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The kind of a table, which is the first folder of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableKind {
    /// A row per sample.
    Samples,
    /// A row per stack.
    Stacks,
    /// A row per frame.
    Frames,
    /// A row per set of labels.
    Contexts,
}

impl TableKind {
    /// All tables.
    pub const ALL: [Self; 4] = [Self::Samples, Self::Stacks, Self::Frames, Self::Contexts];

    /// Returns the name of the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Stacks => "stacks",
            Self::Frames => "frames",
            Self::Contexts => "contexts",
        }
    }

    /// Returns the key of a segment's file.
    #[must_use]
    pub fn key(self, hour: Hour, id: SegmentId) -> String {
        format!("kind={}/{hour}/{id}.parquet", self.name())
    }

    /// Returns table, hour and segment of a key, or `None` for another file.
    #[must_use]
    pub fn parse_key(key: &str) -> Option<(Self, Hour, SegmentId)> {
        let mut parts = key.split('/');
        let kind = parts.next()?.strip_prefix("kind=")?;
        let kind = Self::ALL.into_iter().find(|known| known.name() == kind)?;
        let hour = Hour::parse(parts.next()?, parts.next()?)?;
        let id = parts.next()?.strip_suffix(".parquet")?.parse().ok()?;
        parts.next().is_none().then_some((kind, hour, id))
    }
}

/// Size, rows and checksum of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSummary {
    /// The number of rows.
    pub rows: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The CRC-32 of the footer, which has those of the columns.
    pub footer_crc: u32,
}

/// The description of a segment: what a query must know to leave it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentEntry {
    /// The id.
    pub id: SegmentId,
    /// The hour of all samples.
    pub hour: Hour,
    /// The number of compactions between the samples' ingestion and this segment, at most 255.
    pub level: u8,
    /// The time of the first sample, in nanoseconds since 1970, rounded down to a microsecond.
    pub first: u64,
    /// The last nanosecond of the microsecond of the last sample.
    pub last: u64,
    /// The file of samples.
    pub samples: FileSummary,
    /// The file of stacks.
    pub stacks: FileSummary,
    /// The file of frames.
    pub frames: FileSummary,
    /// The file of contexts.
    pub contexts: FileSummary,
    /// The services, sorted. `None`: more than [`SegmentEntry::MAX_NAMES`].
    pub services: Option<Vec<String>>,
    /// The hosts, sorted. `None`: more than [`SegmentEntry::MAX_NAMES`].
    pub hosts: Option<Vec<String>>,
    /// The names of events, sorted. `None`: more than [`SegmentEntry::MAX_NAMES`].
    pub events: Option<Vec<String>>,
    /// The build ids of modules with frames.
    pub build_ids: BuildIdFilter,
    /// Sentences for the reader of segments of earlier versions, which do not say their service.
    pub notes: Vec<String>,
    /// Sentences for the reader, as about lost samples, with their origins.
    #[serde(default, skip_serializing_if = "OriginNotes::is_empty")]
    pub origin_notes: OriginNotes,
    /// The samples of idle threads that a rule left out, by service.
    #[serde(default, skip_serializing_if = "IdleCounts::is_empty")]
    pub idle: IdleCounts,
}

impl SegmentEntry {
    /// The maximum number of names of one kind in an entry.
    pub const MAX_NAMES: usize = OriginNotes::MAX_NAMES;
    /// The maximum number of notes in an entry.
    pub const MAX_NOTES: usize = OriginNotes::MAX_NOTES;

    /// Returns the summary of a file.
    #[must_use]
    pub fn file(&self, kind: TableKind) -> FileSummary {
        match kind {
            TableKind::Samples => self.samples,
            TableKind::Stacks => self.stacks,
            TableKind::Frames => self.frames,
            TableKind::Contexts => self.contexts,
        }
    }

    /// Returns the key of a file.
    #[must_use]
    pub fn key(&self, kind: TableKind) -> String {
        kind.key(self.hour, self.id)
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = TableKind::ALL.map(|kind| self.file(kind).bytes);
        bytes.into_iter().fold(0, u64::saturating_add)
    }

    /// Adds the notes to others. Returns those whose service is not known. A note of an earlier
    /// version is about the only service of its segment, if there is one.
    pub(crate) fn add_notes(&self, notes: &mut OriginNotes) -> &[String] {
        for (text, about) in self.origin_notes.iter() {
            notes.add_about(text.to_owned(), about);
        }
        let set = |names: &Option<Vec<String>>| Some(names.as_ref()?.iter().cloned().collect());
        let about = NoteOrigins {
            services: set(&self.services),
            hosts: set(&self.hosts),
        };
        if self.services.as_ref().is_none_or(|services| services.len() != 1) {
            return &self.notes;
        }
        for text in &self.notes {
            notes.add_about(text.clone(), &about);
        }
        &[]
    }

    /// Returns the time of the first sample.
    #[must_use]
    pub fn first(&self) -> UnixNanos {
        UnixNanos(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_table_hour_and_segment() {
        let id: SegmentId = "00112233445566778899aabbccddeeff".parse().unwrap();
        for kind in TableKind::ALL {
            let key = kind.key(Hour(498_873), id);
            assert_eq!(
                TableKind::parse_key(&key),
                Some((kind, Hour(498_873), id)),
                "{key}"
            );
        }
        let key = TableKind::Samples.key(Hour(0), id);
        assert_eq!(
            key,
            "kind=samples/date=1970-01-01/hour=00/00112233445566778899aabbccddeeff.parquet"
        );
    }

    #[test]
    fn files_of_others_have_no_segment() {
        for key in [
            "blobs/00",
            "kind=other/date=1970-01-01/hour=00/00112233445566778899aabbccddeeff.parquet",
            "kind=samples/date=1970-01-01/hour=00/00112233445566778899AABBCCDDEEFF.parquet",
            "kind=samples/date=1970-01-01/hour=00/00112233445566778899aabbccddeeff.csv",
            "kind=samples/date=1970-01-01/hour=00/00112233445566778899aabbccddeeff.parquet/x",
        ] {
            assert_eq!(TableKind::parse_key(key), None, "{key}");
        }
    }

    #[test]
    fn entry_is_read_back_from_json() {
        let file = FileSummary {
            rows: 3,
            bytes: u64::MAX,
            footer_crc: 7,
        };
        let entry = SegmentEntry {
            id: SegmentId::random().unwrap(),
            hour: Hour(9),
            level: 1,
            first: 5,
            last: 6,
            samples: file,
            stacks: file,
            frames: file,
            contexts: file,
            services: Some(vec!["web".into()]),
            hosts: None,
            events: Some(Vec::new()),
            build_ids: BuildIdFilter::default(),
            notes: vec!["7 samples were lost".into()],
            origin_notes: OriginNotes::default(),
            idle: IdleCounts::default(),
        };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<SegmentEntry>(&text).unwrap(), entry);
        assert_eq!(entry.bytes(), u64::MAX);
        let wrong = text.replace(&entry.id.to_string(), "no id");
        assert!(serde_json::from_str::<SegmentEntry>(&wrong).is_err());
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(SegmentId::random().unwrap(), SegmentId::random().unwrap());
    }
}
