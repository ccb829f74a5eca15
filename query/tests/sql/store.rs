//! A small store on disk, and the binary that answers queries over it.

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, DictionaryArray, Int64Array, ListBuilder, MapBuilder, MapFieldNames, RecordBatch,
    StringArray, StringBuilder, StructBuilder, TimestampNanosecondArray, UInt32Array, UInt32Builder,
    UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int32Type};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// The hour 2026-11-29T09.
pub const HOUR: u32 = 498_873;
/// The nanoseconds of an hour.
pub const HOUR_NANOS: i64 = 3_600_000_000_000;

/// A sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The seconds since the hour began.
    pub second: i64,
    /// The service.
    pub service: String,
    /// The host.
    pub host: String,
    /// The weight.
    pub weight: i64,
    /// The stack.
    pub stack: u32,
}

/// A frame: functions of its lines, or module and offset.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A symbolized frame, the innermost inlined function first.
    Lines(&'static [&'static str]),
    /// Code without a symbol.
    Code(&'static str, u64),
}

/// A store in a temporary folder.
pub struct Store {
    folder: tempfile::TempDir,
    /// The entries of the catalog.
    pub segments: Vec<Value>,
}

/// The build id of code without symbols.
pub const BUILD_ID: &str = "0a0b0c0d";

/// The frames of every segment.
pub fn frames() -> Vec<Frame> {
    vec![
        Frame::Lines(&["main"]),
        Frame::Lines(&["json::skip_space", "json::parse"]),
        Frame::Code("/usr/lib/libc.so.6", 0x1f0),
        Frame::Lines(&["http::write"]),
    ]
}

/// The stacks of every segment, the innermost frame first.
pub const STACKS: &[&[u32]] = &[&[1, 0], &[2, 1, 0], &[3, 0], &[0]];

impl Store {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            segments: Vec::new(),
        }
    }

    /// Creates a store with two services in two hours: `count` samples in each segment.
    pub fn sample(count: i64) -> Self {
        let mut store = Self::new();
        for (segment, services) in [(0, ["api", "web"]), (1, ["api", "api"]), (2, ["web", "web"])] {
            let samples = (0..count).map(|index| Sample {
                second: index % 3600,
                service: services[usize::from(index % 2 == 0)].into(),
                host: format!("host{}", index % 3),
                weight: 1 + index * (segment + 1) % 10,
                stack: u32::try_from((index + segment) % 4).unwrap(),
            });
            let samples: Vec<_> = samples.collect();
            store.add(HOUR + u32::from(segment > 0), &samples, STACKS, &frames());
        }
        store
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a segment's file.
    pub fn file(&self, segment: usize, kind: &str) -> PathBuf {
        self.path().join(self.key(segment, kind))
    }

    /// Returns the key of a segment's file.
    pub fn key(&self, segment: usize, kind: &str) -> String {
        let entry = &self.segments[segment];
        let hour = entry["hour"].as_u64().unwrap() - u64::from(HOUR) + 9;
        let id = entry["id"].as_str().unwrap();
        format!("kind={kind}/date=2026-11-29/hour={hour:02}/{id}.parquet")
    }

    /// Writes a segment.
    pub fn add(&mut self, hour: u32, samples: &[Sample], stacks: &[&[u32]], frames: &[Frame]) {
        let id = format!("{:032x}", self.segments.len() + 1);
        let start = i64::from(hour) * HOUR_NANOS;
        let times: Vec<i64> = samples
            .iter()
            .map(|sample| start + sample.second * 1_000_000_000)
            .collect();
        let mut services: Vec<&str> = samples.iter().map(|sample| sample.service.as_str()).collect();
        services.sort_unstable();
        services.dedup();
        self.segments.push(json!({
            "id": id, "hour": hour, "level": 0,
            "first": times.iter().min(), "last": times.iter().max(),
            "services": services, "hosts": null, "events": ["cpu"],
            "build_ids": "", "notes": [],
        }));
        let last = self.segments.len() - 1;
        for (kind, batch) in [
            ("samples", sample_columns(&id, samples, times)),
            ("stacks", stack_columns(&id, stacks)),
            ("frames", frame_columns(&id, frames)),
            ("contexts", context_columns(&id)),
        ] {
            let path = self.file(last, kind);
            write(&path, &batch);
            let bytes = fs::metadata(&path).unwrap().len();
            self.segments[last][kind] = json!({"rows": batch.num_rows(), "bytes": bytes, "footer_crc": 0});
        }
    }

    /// Runs a request that may have further keys, and returns what the binary did.
    pub fn run(&self, sql: &str, more: Value) -> Answer {
        let mut request = json!({"sql": sql, "segments": self.segments});
        for (key, value) in more.as_object().unwrap() {
            request[key] = value.clone();
        }
        self.request(&request.to_string(), &[])
    }

    /// Runs a query, and returns its rows.
    pub fn rows(&self, sql: &str) -> Vec<Value> {
        self.run(sql, json!({})).rows()
    }

    /// Runs a request with further arguments.
    pub fn request(&self, request: &str, arguments: &[&str]) -> Answer {
        let mut child = Command::new(env!("CARGO_BIN_EXE_backtrail-query"))
            .args(["run", "--objects"])
            .arg(self.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A request that is refused early is not read to its end.
        let _ = child.stdin.take().unwrap().write_all(request.as_bytes());
        Answer(child.wait_with_output().unwrap())
    }

    /// Runs the binary with a command for people.
    pub fn sql(&self, arguments: &[&str]) -> Answer {
        let output = Command::new(env!("CARGO_BIN_EXE_backtrail-query"))
            .args(["sql", "--store"])
            .arg(self.path())
            .args(arguments)
            .output();
        Answer(output.unwrap())
    }
}

/// The output of the binary.
pub struct Answer(pub Output);

impl Answer {
    /// Returns the rows of a successful query.
    pub fn rows(&self) -> Vec<Value> {
        assert!(self.0.status.success(), "{}", self.error());
        let text = self.text();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns standard output.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    /// Returns standard error.
    pub fn error(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    /// Returns the coverage of a successful query.
    pub fn coverage(&self) -> Value {
        assert!(self.0.status.success(), "{}", self.error());
        let error = self.error();
        let last: Value = serde_json::from_str(error.lines().last().unwrap()).unwrap();
        last["coverage"].clone()
    }

    /// Checks that the query failed with one sentence of one line, and returns the sentence.
    pub fn failure(&self, status: i32) -> String {
        let error = self.error();
        assert_eq!(self.0.status.code(), Some(status), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.len() < 1000, "{error}");
        error
            .strip_prefix("backtrail-query: ")
            .unwrap()
            .trim_end()
            .to_owned()
    }
}

/// Returns a column of texts that repeat, as the store writes them.
fn dictionary<'a>(texts: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(texts.into_iter().collect::<DictionaryArray<Int32Type>>())
}

fn batch(columns: Vec<(&str, ArrayRef, bool)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn sample_columns(id: &str, samples: &[Sample], times: Vec<i64>) -> RecordBatch {
    let rows = samples.len();
    let same = |text: &'static str| dictionary(std::iter::repeat_n(text, rows));
    let numbers = |value: u32| Arc::new(UInt32Array::from(vec![value; rows])) as ArrayRef;
    batch(vec![
        ("segment", dictionary(std::iter::repeat_n(id, rows)), false),
        (
            "time",
            Arc::new(TimestampNanosecondArray::from(times).with_timezone("UTC")),
            false,
        ),
        (
            "service",
            dictionary(samples.iter().map(|sample| sample.service.as_str())),
            false,
        ),
        (
            "host",
            dictionary(samples.iter().map(|sample| sample.host.as_str())),
            false,
        ),
        ("build", same("1.0"), false),
        ("region", same("eu"), false),
        ("language", same("C++"), false),
        ("event", same("cpu"), false),
        ("unit", same("ns"), false),
        ("period", Arc::new(UInt64Array::from(vec![1; rows])), false),
        ("pid", numbers(7), true),
        ("process", same("server"), true),
        ("tid", numbers(8), true),
        ("thread", same("worker"), true),
        ("cpu", numbers(0), true),
        (
            "weight",
            Arc::new(Int64Array::from_iter_values(
                samples.iter().map(|sample| sample.weight),
            )),
            false,
        ),
        (
            "stack",
            Arc::new(UInt32Array::from_iter_values(
                samples.iter().map(|sample| sample.stack),
            )),
            false,
        ),
        ("context", numbers(0), false),
    ])
}

fn ids(rows: usize) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(0..u32::try_from(rows).unwrap()))
}

fn stack_columns(id: &str, stacks: &[&[u32]]) -> RecordBatch {
    let item = Arc::new(Field::new("element", DataType::UInt32, false));
    let mut frames = ListBuilder::new(UInt32Builder::new()).with_field(item);
    for stack in stacks {
        frames.values().append_slice(stack);
        frames.append(true);
    }
    batch(vec![
        (
            "segment",
            dictionary(std::iter::repeat_n(id, stacks.len())),
            false,
        ),
        ("stack", ids(stacks.len()), false),
        ("frames", Arc::new(frames.finish()), false),
    ])
}

fn frame_columns(id: &str, frames: &[Frame]) -> RecordBatch {
    let line = Fields::from(vec![
        Field::new("function", DataType::Utf8, false),
        Field::new("linkage_name", DataType::Utf8, false),
        Field::new("file", DataType::Utf8, true),
        Field::new("start_line", DataType::UInt32, false),
        Field::new("line", DataType::UInt32, false),
    ]);
    let item = Arc::new(Field::new("element", DataType::Struct(line.clone()), false));
    let mut lines = ListBuilder::new(StructBuilder::from_fields(line, 0)).with_field(item);
    for frame in frames {
        let functions = match frame {
            Frame::Lines(functions) => *functions,
            Frame::Code(..) => &[],
        };
        for function in functions {
            let line = lines.values();
            line.field_builder::<StringBuilder>(0)
                .unwrap()
                .append_value(function);
            line.field_builder::<StringBuilder>(1)
                .unwrap()
                .append_value(function);
            line.field_builder::<StringBuilder>(2)
                .unwrap()
                .append_value("server.cc");
            line.field_builder::<UInt32Builder>(3).unwrap().append_value(1);
            line.field_builder::<UInt32Builder>(4).unwrap().append_value(2);
            line.append(true);
        }
        lines.append(true);
    }
    let code = |frame: &Frame| match frame {
        Frame::Lines(_) => ("/usr/bin/server", 0x40),
        Frame::Code(module, offset) => (*module, *offset),
    };
    let build_id: &[u8] = &[10, 11, 12, 13];
    batch(vec![
        (
            "segment",
            dictionary(std::iter::repeat_n(id, frames.len())),
            false,
        ),
        ("frame", ids(frames.len()), false),
        (
            "frame_kind",
            dictionary(std::iter::repeat_n("code", frames.len())),
            false,
        ),
        (
            "build_id",
            Arc::new(BinaryArray::from(vec![build_id; frames.len()])),
            true,
        ),
        (
            "module",
            Arc::new(StringArray::from_iter_values(
                frames.iter().map(|frame| code(frame).0),
            )),
            true,
        ),
        (
            "offset",
            Arc::new(UInt64Array::from_iter_values(
                frames.iter().map(|frame| code(frame).1),
            )),
            true,
        ),
        ("lines", Arc::new(lines.finish()), false),
    ])
}

fn context_columns(id: &str) -> RecordBatch {
    let names = MapFieldNames {
        entry: "key_value".into(),
        key: "key".into(),
        value: "value".into(),
    };
    let mut labels = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
        .with_values_field(Field::new("value", DataType::Utf8, false));
    labels.keys().append_value("endpoint");
    labels.values().append_value("/search");
    labels.append(true).unwrap();
    batch(vec![
        ("segment", dictionary([id]), false),
        ("context", ids(1), false),
        ("labels", Arc::new(labels.finish()), false),
    ])
}

/// Writes a file with row groups of 1000 rows.
fn write(path: &Path, batch: &RecordBatch) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).unwrap()))
        .set_max_row_group_row_count(Some(1000))
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}
