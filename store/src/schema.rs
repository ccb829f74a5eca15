//! The columns of the tables, and how they are encoded.

use crate::segment::TableKind;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use std::sync::Arc;

/// Returns the rows of a row group. Queries leave out row groups of samples by their statistics,
/// and read those of stacks and frames that their samples name.
fn group_rows(kind: TableKind) -> usize {
    match kind {
        TableKind::Samples => 1 << 16,
        TableKind::Stacks | TableKind::Contexts => 1 << 14,
        TableKind::Frames => 1 << 13,
    }
}

/// The time that compression may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// That of ingestion, whose segments are compacted soon.
    Low,
    /// That of compaction. Files are smaller by about a tenth.
    High,
}

impl Effort {
    fn zstd_level(self) -> i32 {
        match self {
            Self::Low => 3,
            Self::High => 9,
        }
    }
}

/// A column of `samples`, in the order of the file. The column before these is the segment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SampleColumn {
    /// The time.
    Time = 1,
    /// The service.
    Service,
    /// The host.
    Host,
    /// The build.
    Build,
    /// The region.
    Region,
    /// The language.
    Language,
    /// The event's name.
    Event,
    /// The unit of the weights.
    Unit,
    /// The event's period.
    Period,
    /// The process id.
    Pid,
    /// The name of the process.
    Process,
    /// The thread id.
    Tid,
    /// The name of the thread.
    Thread,
    /// The processor.
    Cpu,
    /// The weight.
    Weight,
    /// The stack.
    Stack,
    /// The context.
    Context,
}

impl SampleColumn {
    /// Returns the index of the column in the file.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the column.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Service => "service",
            Self::Host => "host",
            Self::Build => "build",
            Self::Region => "region",
            Self::Language => "language",
            Self::Event => "event",
            Self::Unit => "unit",
            Self::Period => "period",
            Self::Pid => "pid",
            Self::Process => "process",
            Self::Tid => "tid",
            Self::Thread => "thread",
            Self::Cpu => "cpu",
            Self::Weight => "weight",
            Self::Stack => "stack",
            Self::Context => "context",
        }
    }
}

/// Returns the type of texts that repeat.
fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn column(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

fn optional(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

/// Returns the fields of a line of a frame.
pub(crate) fn line_fields() -> Fields {
    Fields::from(vec![
        column("function", DataType::Utf8),
        column("linkage_name", DataType::Utf8),
        optional("file", DataType::Utf8),
        column("start_line", DataType::UInt32),
        column("line", DataType::UInt32),
    ])
}

/// Returns the field of a list's items.
pub(crate) fn item(kind: DataType) -> Arc<Field> {
    Arc::new(column("element", kind))
}

/// Returns the field of a map's entries.
pub(crate) fn label_entries() -> Arc<Field> {
    let fields = vec![column("key", DataType::Utf8), column("value", DataType::Utf8)];
    Arc::new(column("key_value", DataType::Struct(fields.into())))
}

/// Returns the columns of a table.
pub(crate) fn schema(kind: TableKind) -> SchemaRef {
    let fields = match kind {
        TableKind::Samples => vec![
            column("segment", dictionary()),
            column(
                "time",
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ),
            column("service", dictionary()),
            column("host", dictionary()),
            column("build", dictionary()),
            column("region", dictionary()),
            column("language", dictionary()),
            column("event", dictionary()),
            column("unit", dictionary()),
            column("period", DataType::UInt64),
            optional("pid", DataType::UInt32),
            optional("process", dictionary()),
            optional("tid", DataType::UInt32),
            optional("thread", dictionary()),
            optional("cpu", DataType::UInt32),
            column("weight", DataType::Int64),
            column("stack", DataType::UInt32),
            column("context", DataType::UInt32),
        ],
        TableKind::Stacks => vec![
            column("segment", dictionary()),
            column("stack", DataType::UInt32),
            column("frames", DataType::List(item(DataType::UInt32))),
        ],
        TableKind::Frames => vec![
            column("segment", dictionary()),
            column("frame", DataType::UInt32),
            column("frame_kind", dictionary()),
            optional("build_id", DataType::Binary),
            optional("module", DataType::Utf8),
            optional("offset", DataType::UInt64),
            column("lines", DataType::List(item(DataType::Struct(line_fields())))),
        ],
        TableKind::Contexts => vec![
            column("segment", dictionary()),
            column("context", DataType::UInt32),
            column("labels", DataType::Map(label_entries(), false)),
        ],
    };
    Arc::new(Schema::new(fields))
}

/// Returns the columns of a table as files of version 1 have them. Their stacks have hashes, and
/// the name of a column is that of a folder. `None`: version 1 had the same columns.
pub(crate) fn first_schema(kind: TableKind) -> Option<SchemaRef> {
    let mut fields: Vec<Arc<Field>> = schema(kind).fields().iter().cloned().collect();
    match kind {
        TableKind::Samples | TableKind::Contexts => return None,
        TableKind::Stacks => {
            let hash = column("hash", DataType::FixedSizeBinary(16));
            fields.insert(2, Arc::new(hash));
        }
        TableKind::Frames => {
            let kind = fields.iter_mut().find(|field| field.name() == "frame_kind")?;
            *kind = Arc::new(column("kind", dictionary()));
        }
    }
    Some(Arc::new(Schema::new(fields)))
}

/// Returns how the columns of a table are encoded.
pub(crate) fn properties(kind: TableKind, effort: Effort) -> WriterProperties {
    let level = ZstdLevel::try_new(effort.zstd_level()).unwrap_or_default();
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_created_by(concat!("backtrail-store ", env!("CARGO_PKG_VERSION")).into())
        .set_max_row_group_row_count(Some(group_rows(kind)))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    builder = match kind {
        TableKind::Samples => {
            let builder = encoded(builder, "time", Encoding::DELTA_BINARY_PACKED);
            let builder = encoded(builder, "stack", Encoding::BYTE_STREAM_SPLIT);
            // No query leaves out rows by these, and footers are read first.
            let columns = ["segment", "weight", "stack", "context"].into_iter();
            columns.fold(builder, |builder, name| {
                builder.set_column_statistics_enabled(name.into(), EnabledStatistics::None)
            })
        }
        TableKind::Stacks => {
            let builder = encoded(builder, "stack", Encoding::DELTA_BINARY_PACKED);
            let list = ColumnPath::new(["frames", "list", "element"].map(String::from).into());
            builder
                .set_column_dictionary_enabled(list.clone(), false)
                .set_column_encoding(list, Encoding::PLAIN)
        }
        TableKind::Frames => {
            let builder = encoded(builder, "frame", Encoding::DELTA_BINARY_PACKED);
            encoded(builder, "offset", Encoding::DELTA_BINARY_PACKED)
        }
        TableKind::Contexts => encoded(builder, "context", Encoding::DELTA_BINARY_PACKED),
    };
    builder.build()
}

fn encoded(
    builder: WriterPropertiesBuilder,
    name: &'static str,
    encoding: Encoding,
) -> WriterPropertiesBuilder {
    let path = ColumnPath::from(name);
    builder
        .set_column_dictionary_enabled(path.clone(), false)
        .set_column_encoding(path, encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_indexes_are_those_of_the_schema() {
        let schema = schema(TableKind::Samples);
        for column in [
            SampleColumn::Time,
            SampleColumn::Service,
            SampleColumn::Host,
            SampleColumn::Build,
            SampleColumn::Region,
            SampleColumn::Language,
            SampleColumn::Event,
            SampleColumn::Unit,
            SampleColumn::Period,
            SampleColumn::Pid,
            SampleColumn::Process,
            SampleColumn::Tid,
            SampleColumn::Thread,
            SampleColumn::Cpu,
            SampleColumn::Weight,
            SampleColumn::Stack,
            SampleColumn::Context,
        ] {
            assert_eq!(schema.index_of(column.name()).unwrap(), column.index());
        }
        assert_eq!(schema.fields().len(), SampleColumn::Context.index() + 1);
    }
}
