//! The formats of rows.

use crate::request::Format;
use crate::{Error, Result};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::json::writer::{LineDelimited, Writer, WriterBuilder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches_with_options;
use std::io::Write;

/// A writer of rows.
pub(crate) enum RowWriter<W: Write> {
    /// A JSON object per line.
    Json(Box<LineDelimitedWriter<W>>),
    /// A stream of Arrow's IPC format.
    Arrow(Box<StreamWriter<W>>),
    /// Comma-separated values.
    Csv(W),
    /// A table for people, which is written at the end.
    Table(W, Vec<RecordBatch>),
}

impl<W: Write> RowWriter<W> {
    /// Builds the writer, and writes the names of columns if the format has them first.
    pub(crate) fn new(format: Format, schema: &SchemaRef, mut out: W) -> Result<Self> {
        match format {
            Format::Json => {
                let builder = WriterBuilder::new().with_explicit_nulls(true);
                let writer: Writer<W, LineDelimited> = builder.build(out);
                Ok(Self::Json(Box::new(writer)))
            }
            Format::Arrow => {
                let writer = StreamWriter::try_new(out, schema).map_err(failed)?;
                Ok(Self::Arrow(Box::new(writer)))
            }
            Format::Csv => {
                let names: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
                writeln!(out, "{}", names.join(",")).map_err(not_written)?;
                Ok(Self::Csv(out))
            }
            Format::Table => Ok(Self::Table(out, vec![RecordBatch::new_empty(schema.clone())])),
        }
    }

    /// Writes rows.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Json(writer) => writer.write(batch).map_err(failed),
            Self::Arrow(writer) => writer.write(batch).map_err(failed),
            Self::Csv(out) => write_csv(batch, out),
            Self::Table(_, batches) => {
                batches.push(batch.clone());
                Ok(())
            }
        }
    }

    /// Writes the end.
    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Self::Json(mut writer) => {
                writer.finish().map_err(failed)?;
                writer.into_inner().flush().map_err(not_written)
            }
            Self::Arrow(mut writer) => writer.finish().map_err(failed),
            Self::Csv(mut out) => out.flush().map_err(not_written),
            Self::Table(mut out, batches) => {
                let options = options().with_null("NULL");
                let table = pretty_format_batches_with_options(&batches, &options).map_err(failed)?;
                writeln!(out, "{table}").map_err(not_written)
            }
        }
    }
}

fn options() -> FormatOptions<'static> {
    FormatOptions::default().with_display_error(true)
}

fn write_csv(batch: &RecordBatch, out: &mut impl Write) -> Result<()> {
    let options = options();
    let columns: std::result::Result<Vec<_>, _> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options))
        .collect();
    let columns = columns.map_err(failed)?;
    for row in 0..batch.num_rows() {
        let values: Vec<String> = columns
            .iter()
            .map(|column| quoted(&column.value(row).to_string()))
            .collect();
        writeln!(out, "{}", values.join(",")).map_err(not_written)?;
    }
    Ok(())
}

/// Returns a value of a line of comma-separated values.
fn quoted(value: &str) -> String {
    match value.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}

fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, error) => not_written(error),
        other => Error::Output(crate::error::sentence(&other.to_string())),
    }
}

fn not_written(error: std::io::Error) -> Error {
    Error::Output(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, StringArray};
    use std::sync::Arc;

    fn text(format: Format) -> String {
        let batch = RecordBatch::try_from_iter_with_nullable(vec![
            (
                "name",
                Arc::new(StringArray::from(vec![Some("a,\"b\""), None])) as _,
                true,
            ),
            ("weight", Arc::new(Int64Array::from(vec![1, -2])) as _, false),
        ])
        .unwrap();
        let mut out = Vec::new();
        let mut writer = RowWriter::new(format, &batch.schema(), &mut out).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_are_written_in_each_text_format() {
        let json = "{\"name\":\"a,\\\"b\\\"\",\"weight\":1}\n{\"name\":null,\"weight\":-2}\n";
        assert_eq!(text(Format::Json), json);
        assert_eq!(text(Format::Csv), "name,weight\n\"a,\"\"b\"\"\",1\n,-2\n");
        let table = text(Format::Table);
        assert!(table.contains("| NULL  | -2     |"), "{table}");
    }
}
