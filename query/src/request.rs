//! The request that a hub sends on standard input.

use crate::{Error, Result};
use backtrail_store::SegmentEntry;
use serde::Deserialize;
use std::io::Read;

/// The maximum length of a request.
const MAX_REQUEST: u64 = 512 << 20;

/// A query with its input and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The SQL text.
    pub(crate) sql: String,
    /// The segments that the query sees.
    #[serde(default)]
    pub(crate) segments: Vec<SegmentEntry>,
    /// The limits.
    #[serde(default)]
    pub(crate) limits: Limits,
    /// The format of the rows.
    #[serde(default)]
    pub(crate) format: Format,
    /// The functions at offsets of modules.
    #[serde(default)]
    pub(crate) symbols: Vec<Symbol>,
    /// The rows of the table `crashes`.
    #[serde(default)]
    pub(crate) crashes: Vec<Crash>,
    /// The table `answers`. `None`: there is no such table.
    #[serde(default)]
    pub(crate) answers: Option<Answers>,
    /// The time of the samples. `None`: all of the segments.
    #[serde(default)]
    pub(crate) times: Option<Times>,
}

/// A range of time in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Times {
    /// The start.
    pub(crate) start: u64,
    /// The end, which is not in the range.
    pub(crate) end: u64,
}

impl Times {
    /// Returns whether all samples of a segment are in the range.
    pub(crate) fn contains_all(&self, segment: &SegmentEntry) -> bool {
        self.start <= segment.first && segment.last < self.end
    }
}

/// Rows of other queries.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answers {
    /// The columns.
    pub(crate) columns: Vec<GivenColumn>,
    /// The rows: values by column. A missing value is NULL.
    pub(crate) rows: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// A column of given rows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenColumn {
    /// The name.
    pub(crate) name: String,
    /// The type, in Arrow's notation.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

/// The limits of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// The memory beyond that of the idle process.
    pub(crate) memory_bytes: u64,
    /// The time.
    pub(crate) seconds: u64,
    /// The bytes that are read from the object store.
    pub(crate) scanned_bytes: u64,
    /// The rows of the answer. Later ones are left out.
    pub(crate) rows: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            seconds: 60,
            scanned_bytes: 16 << 30,
            rows: 100_000,
        }
    }
}

impl Limits {
    /// Returns the memory limit as a size.
    pub(crate) fn memory(&self) -> usize {
        usize::try_from(self.memory_bytes).unwrap_or(usize::MAX)
    }
}

/// The format of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// A JSON object per line.
    #[default]
    Json,
    /// A stream of Arrow's IPC format.
    Arrow,
    /// Comma-separated values with a header.
    Csv,
    /// A table for people. Not in requests.
    #[serde(skip)]
    Table,
}

/// The functions at an offset of a module, the innermost inlined one first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Symbol {
    /// The build id as hexadecimal digits.
    pub(crate) build_id: String,
    /// The offset in the module's file.
    pub(crate) offset: u64,
    /// The names of the functions.
    pub(crate) functions: Vec<String>,
}

/// A crash, as the hub knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Crash {
    /// The id of the report.
    pub(crate) id: String,
    /// The time in nanoseconds since 1970.
    pub(crate) time: u64,
    /// The host.
    pub(crate) host: String,
    /// The service.
    pub(crate) service: String,
    /// The build of the service.
    pub(crate) build: String,
    /// The path of the executable.
    pub(crate) executable: String,
    /// The number of the signal.
    pub(crate) signal: i32,
    /// The process id.
    pub(crate) pid: u32,
    /// The thread id.
    pub(crate) tid: u32,
    /// The name of the thread.
    pub(crate) thread: Option<String>,
    /// The id of the crash group.
    pub(crate) group: Option<String>,
    /// The title of the crash group.
    pub(crate) title: Option<String>,
    /// The functions of the crashed thread, the innermost first.
    pub(crate) functions: Vec<String>,
}

impl Request {
    /// Reads a request.
    pub(crate) fn read(input: impl Read) -> Result<Self> {
        let mut text = Vec::new();
        let mut input = input.take(MAX_REQUEST + 1);
        input
            .read_to_end(&mut text)
            .map_err(|error| Error::Request(error.to_string()))?;
        if text.len() as u64 > MAX_REQUEST {
            return Err(Error::Request(format!("it is longer than {MAX_REQUEST} bytes")));
        }
        serde_json::from_slice(&text).map_err(|error| Error::Request(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_defaults_for_all_but_the_query() {
        let request = Request::read(&br#"{"sql": "SELECT 1", "limits": {"rows": 5}}"#[..]).unwrap();
        assert_eq!(request.format, Format::Json);
        assert_eq!((request.limits.rows, request.limits.seconds), (5, 60));
    }

    #[test]
    fn malformed_requests_are_refused() {
        for wrong in [
            "",
            "{}",
            "[1]",
            r#"{"sql": "SELECT 1", "format": "table"}"#,
            r#"{"sql": "SELECT 1", "limit": {}}"#,
            r#"{"sql": "SELECT 1", "limits": {"rows": -1}}"#,
        ] {
            let error = Request::read(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.status(), 1, "{wrong}");
        }
    }
}
