//! The errors of queries, and their exit status.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::parquet::errors::ParquetError;

/// The result of this crate's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The start of the engine's text about a filter that failed.
const FILTER: &str = "Error evaluating filter predicate: ";
/// The maximum length of a reason that another library gives.
const MAX_REASON: usize = 600;

/// The reason why a query has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The SQL text is wrong.
    #[error("the query is wrong: {0}")]
    Sql(String),
    /// The SQL text is more than a query may do.
    #[error("{0} is not allowed: a query is one SELECT or EXPLAIN over the tables of the store")]
    Refused(String),
    /// The request is malformed.
    #[error("the request cannot be read: {0}; send one JSON object as docs/profile-sql.md shows")]
    Request(String),
    /// The object store failed.
    #[error("the object store failed: {0}; check that the store is reachable, and ask again")]
    Objects(String),
    /// An object is missing.
    #[error("the file {0} of the store is missing; restore it, or remove its segment")]
    Missing(String),
    /// A file is damaged.
    #[error("{key} is damaged: {problem}; restore the file, or remove its segment")]
    Damaged {
        /// The file's key.
        key: String,
        /// The problem.
        problem: String,
    },
    /// The query takes too long.
    #[error("the query was ended after {0} s, its limit; select fewer hours or services")]
    Time(u64),
    /// The query needs too much memory.
    #[error(
        "the query needs more than {0} bytes of memory, its limit; select fewer hours or groups, \
         or use approx_ functions"
    )]
    Memory(u64),
    /// The query reads too much.
    #[error("the query reads more than {0} bytes, its limit; select fewer hours, services or columns")]
    Scanned(u64),
    /// A worker failed or went away.
    #[error("a worker did not finish its part of the query: {0}; ask again")]
    Worker(String),
    /// The rows cannot be written.
    #[error("cannot write the rows: {0}")]
    Output(String),
    /// The system refused something.
    #[error("cannot {action}: {reason}")]
    System {
        /// As a verb: `create a directory`.
        action: &'static str,
        /// The reason.
        reason: String,
    },
    /// The query failed while it ran.
    #[error("the query failed: {0}")]
    Failed(String),
}

impl Error {
    /// Returns the exit status: 3 for a query that can never have an answer, and 1 otherwise.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Sql(_) | Self::Refused(_) => 3,
            _ => 1,
        }
    }

    /// Returns the error of the engine as one of this crate. `memory` is the limit of the query.
    pub(crate) fn of_engine(error: &DataFusionError, memory: u64) -> Self {
        let root = error.find_root();
        if let Some(own) = own(root) {
            return own;
        }
        match root {
            DataFusionError::SQL(..)
            | DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::NotImplemented(_) => Self::Sql(sentence(&root.message())),
            DataFusionError::ResourcesExhausted(_) => Self::Memory(memory),
            DataFusionError::ObjectStore(error) => Self::of_object(error),
            DataFusionError::ParquetError(error) => of_parquet(error),
            DataFusionError::ArrowError(error, _) => match &**error {
                ArrowError::ParquetError(text) => Self::damaged(text),
                other => Self::Failed(sentence(&other.to_string())),
            },
            DataFusionError::Collection(errors) => match errors.first() {
                Some(first) => Self::of_engine(first, memory),
                None => Self::Failed("the engine gave no reason".into()),
            },
            other => of_text(&other.strip_backtrace()),
        }
    }

    /// Returns the error of an operation on an object.
    pub(crate) fn of_object(error: &datafusion::object_store::Error) -> Self {
        use datafusion::object_store::Error as Object;
        match error {
            Object::NotFound { path, .. } => Self::Missing(path.clone()),
            Object::Generic { source, .. } => match source.downcast_ref::<Self>() {
                Some(own) => own.clone(),
                None => Self::Objects(sentence(&error.to_string())),
            },
            other => Self::Objects(sentence(&other.to_string())),
        }
    }

    /// Returns the error of a file whose name is not known here. A filter is applied while a file
    /// is read, so that its own failure arrives here too.
    fn damaged(problem: &str) -> Self {
        if let Some((_, reason)) = problem.split_once(FILTER) {
            let inner = reason
                .split_once("(Sql(\"")
                .map(|(_, rest)| rest.trim_end_matches(['"', ')']));
            return Self::Sql(sentence(inner.unwrap_or(reason)));
        }
        Self::Damaged {
            key: String::new(),
            problem: sentence(problem),
        }
    }
}

/// An error of a function of this crate, as one of the engine.
impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

/// Returns the error of this crate that another one carries.
fn own(error: &DataFusionError) -> Option<Error> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(own) = error.downcast_ref::<Error>() {
            return Some(own.clone());
        }
        source = error.source();
    }
    None
}

fn of_parquet(error: &ParquetError) -> Error {
    match error {
        ParquetError::External(source) => {
            if let Some(own) = source.downcast_ref::<Error>() {
                return own.clone();
            }
            match source.downcast_ref::<datafusion::object_store::Error>() {
                Some(object) => Error::of_object(object),
                None => Error::damaged(&source.to_string()),
            }
        }
        other => Error::damaged(&other.to_string()),
    }
}

/// Returns the error of a text of the engine. Errors of workers arrive as texts.
fn of_text(text: &str) -> Error {
    let lower = text.to_lowercase();
    let of_workers = [
        "transport",
        "connection",
        "tcp connect",
        "broken pipe",
        "h2 protocol",
        "worker",
        "status: ",
        "unauthenticated",
    ];
    match of_workers.iter().any(|word| lower.contains(word)) {
        true => Error::Worker(sentence(text)),
        false => Error::Failed(sentence(text)),
    }
}

/// Returns a text of another library as the middle of a sentence: one line, of limited length,
/// without control characters and a final period.
pub(crate) fn sentence(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if out.len() + word.len() > MAX_REASON {
            out += " …";
            break;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        for letter in word.chars() {
            match letter.is_control() {
                true => out.extend(letter.escape_unicode()),
                false => out.push(letter),
            }
        }
    }
    out.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_sql_is_told_from_a_failed_query() {
        let plan = DataFusionError::Plan("table 'x' not found".into());
        assert_eq!(Error::of_engine(&plan, 1).status(), 3);
        let failed = DataFusionError::Execution("division by zero".into());
        assert_eq!(Error::of_engine(&failed, 1).status(), 1);
    }

    #[test]
    fn error_of_a_function_keeps_its_words() {
        let inner = DataFusionError::from(Error::Scanned(7));
        let outer = DataFusionError::Context("outer".into(), Box::new(inner));
        assert!(matches!(Error::of_engine(&outer, 1), Error::Scanned(7)));
    }

    #[test]
    fn reason_is_one_short_line() {
        let text = sentence(&format!("a\n\tb\u{1b}[1m {} c.", "x".repeat(700)));
        assert_eq!(text, "a b\\u{1b}[1m …");
        assert_eq!(sentence("no such column.\n"), "no such column");
    }
}
