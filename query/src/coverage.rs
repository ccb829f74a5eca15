//! The last line of standard error: what an answer covers.

use datafusion::arrow::datatypes::Schema;
use serde::Serialize;

/// The coverage of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Coverage {
    /// The number of segments in the request.
    pub(crate) segments_total: u64,
    /// The number of segments with files that were read.
    pub(crate) segments: u64,
    /// The rows of these files.
    pub(crate) rows: u64,
    /// The bytes that were read from the object store.
    pub(crate) bytes: u64,
    /// The workers that parts of the plan were sent to.
    pub(crate) workers: u64,
    /// The rows of the answer.
    pub(crate) returned: u64,
    /// Whether the answer has more rows than the limit.
    pub(crate) truncated: bool,
    /// The columns of the answer.
    pub(crate) columns: Vec<ResultColumn>,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ResultColumn {
    /// The name.
    pub(crate) name: String,
    /// The type, in Arrow's notation.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

impl ResultColumn {
    /// Returns the columns of a schema.
    pub(crate) fn all(schema: &Schema) -> Vec<Self> {
        let fields = schema.fields().iter();
        fields
            .map(|field| Self {
                name: field.name().clone(),
                kind: field.data_type().to_string(),
            })
            .collect()
    }
}

impl Coverage {
    /// Returns the line for programs.
    pub(crate) fn json(&self) -> String {
        serde_json::json!({ "coverage": self }).to_string()
    }

    /// Returns the line for people.
    pub(crate) fn text(&self) -> String {
        let rows = if self.truncated { "the first " } else { "" };
        format!(
            "{rows}{} rows, from {} of {} segments with {} rows; {} bytes read",
            self.returned, self.segments, self.segments_total, self.rows, self.bytes
        )
    }
}
