//! Segments of the store: the files of one commit, as the catalog describes them.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Seconds of an hour.
const HOUR_SECONDS: i64 = 3600;
/// Nanoseconds of an hour.
const HOUR_NANOS: u64 = 3_600_000_000_000;

/// The kind of a table, which is the first folder of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TableKind {
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
    pub(crate) const ALL: [Self; 4] = [Self::Samples, Self::Stacks, Self::Frames, Self::Contexts];

    /// Returns the name of the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Stacks => "stacks",
            Self::Frames => "frames",
            Self::Contexts => "contexts",
        }
    }

    /// Returns the key of a segment's file.
    pub(crate) fn key(self, hour: Hour, id: &str) -> String {
        format!("kind={}/{hour}/{id}.parquet", self.name())
    }
}

/// An hour of UTC: the number of hours since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Hour(pub(crate) u32);

impl Hour {
    /// Returns the day as the number of days since the Unix epoch.
    pub(crate) fn day(self) -> i32 {
        i32::try_from(self.0 / 24).unwrap_or(i32::MAX)
    }

    /// Returns the hour of the day.
    pub(crate) fn of_day(self) -> i32 {
        i32::try_from(self.0 % 24).unwrap_or(0)
    }

    /// Returns the first nanosecond, and the last one.
    pub(crate) fn range(self) -> (u64, u64) {
        let first = u64::from(self.0).saturating_mul(HOUR_NANOS);
        (first, first.saturating_add(HOUR_NANOS - 1))
    }

    /// Returns the hour of a partition, as [`Hour`]'s `Display` writes it.
    pub(crate) fn parse(partition: &str) -> Option<Self> {
        let (date, hour) = partition.split_once('/')?;
        let date = date.strip_prefix("date=")?;
        let date = chrono::NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?;
        let hour: i64 = hour.strip_prefix("hour=")?.parse().ok()?;
        let midnight = date.and_time(chrono::NaiveTime::MIN).and_utc().timestamp();
        let found = Self(u32::try_from(midnight / HOUR_SECONDS + hour).ok()?);
        // The text of a date or hour that does not exist differs.
        (found.to_string() == partition).then_some(found)
    }
}

/// The partition: `date=2026-11-29/hour=09`.
impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::from(self.0) * HOUR_SECONDS;
        match chrono::DateTime::from_timestamp(seconds, 0) {
            Some(time) => write!(f, "{}", time.format("date=%Y-%m-%d/hour=%H")),
            None => Err(fmt::Error),
        }
    }
}

/// Size and rows of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct FileSummary {
    /// The number of rows.
    pub(crate) rows: u64,
    /// The number of bytes.
    pub(crate) bytes: u64,
}

/// A segment: the parts of the catalog's entry that queries use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Segment {
    /// The id: 32 hexadecimal digits.
    pub(crate) id: String,
    /// The hour of all samples.
    pub(crate) hour: Hour,
    /// The time of the first sample, in nanoseconds since 1970.
    pub(crate) first: u64,
    /// The time of the last sample.
    pub(crate) last: u64,
    /// The file of samples.
    pub(crate) samples: FileSummary,
    /// The file of stacks.
    pub(crate) stacks: FileSummary,
    /// The file of frames.
    pub(crate) frames: FileSummary,
    /// The file of contexts.
    pub(crate) contexts: FileSummary,
    /// The services. `None`: too many.
    #[serde(default)]
    pub(crate) services: Option<Vec<String>>,
    /// The hosts. `None`: too many.
    #[serde(default)]
    pub(crate) hosts: Option<Vec<String>>,
    /// The names of events. `None`: too many.
    #[serde(default)]
    pub(crate) events: Option<Vec<String>>,
}

impl Segment {
    /// Returns the summary of a file.
    pub(crate) fn file(&self, kind: TableKind) -> FileSummary {
        match kind {
            TableKind::Samples => self.samples,
            TableKind::Stacks => self.stacks,
            TableKind::Frames => self.frames,
            TableKind::Contexts => self.contexts,
        }
    }

    /// Returns the summary of a file, to be changed.
    pub(crate) fn file_mut(&mut self, kind: TableKind) -> &mut FileSummary {
        match kind {
            TableKind::Samples => &mut self.samples,
            TableKind::Stacks => &mut self.stacks,
            TableKind::Frames => &mut self.frames,
            TableKind::Contexts => &mut self.contexts,
        }
    }

    /// Returns the key of a file.
    pub(crate) fn key(&self, kind: TableKind) -> String {
        kind.key(self.hour, &self.id)
    }

    /// Checks the id, which is a part of keys, and the hour.
    pub(crate) fn check(&self) -> Result<()> {
        if !is_segment_id(&self.id) {
            return Err(Error::Request(format!(
                "{:?} is not the id of a segment",
                self.id
            )));
        }
        // A later hour has no date with four digits.
        match self.hour.0 < 70_000_000 {
            true => Ok(()),
            false => Err(Error::Request(format!("{} is not an hour", self.hour.0))),
        }
    }
}

/// Returns whether a text has the form of a segment's id.
pub(crate) fn is_segment_id(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 32 && text.bytes().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_of_an_hour_is_read_back() {
        for hour in [Hour(0), Hour(498_873), Hour(60_000_000)] {
            assert_eq!(Hour::parse(&hour.to_string()), Some(hour));
        }
        assert_eq!(Hour(498_873).to_string(), "date=2026-11-29/hour=09");
        for wrong in [
            "date=2026-02-29/hour=00",
            "date=2026-1-01/hour=00",
            "date=2026-01-01/hour=24",
            "date=1969-01-01/hour=00",
            "2026-01-01/00",
        ] {
            assert_eq!(Hour::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn id_that_leaves_the_folder_is_refused() {
        let mut segment: Segment = serde_json::from_str(
            r#"{"id": "00112233445566778899aabbccddeeff", "hour": 1, "first": 0, "last": 0, "level": 0,
                "samples": {"rows": 1, "bytes": 2, "footer_crc": 3}, "stacks": {"rows": 1, "bytes": 2},
                "frames": {"rows": 1, "bytes": 2}, "contexts": {"rows": 1, "bytes": 2}}"#,
        )
        .unwrap();
        assert!(segment.check().is_ok());
        segment.id = "../../etc/passwd".into();
        assert!(segment.check().is_err());
    }
}
