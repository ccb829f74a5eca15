//! The definition of a job, as a person or a program writes it.

use super::schedule::Schedule;
use super::threshold::Threshold;
use crate::error::{Error, Result};
use crate::profiles::regressions::RegressionParameters;
use crate::profiles::selection::SelectionParameters;
use serde::{Deserialize, Serialize};

/// The longest name in characters.
pub const MAX_NAME: usize = 100;
/// The longest name of a column in characters.
const MAX_COLUMN: usize = 100;
/// The longest SQL text in bytes.
pub const MAX_SQL: usize = 100_000;
/// The most rows of a result.
pub const MAX_ROWS: u32 = 1000;
/// The rows of a list of functions unless the job names another number.
const TOP_ROWS: u32 = 20;
/// The intervals of a series unless the job names another number.
const INTERVALS: u32 = 60;

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobDefinition {
    /// The name, which is unique.
    pub name: String,
    /// The query.
    pub query: JobQuery,
    /// The times of its runs.
    pub schedule: Schedule,
    /// The bound of a number in the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Threshold>,
    /// Whether the schedule is in force.
    #[serde(default = "is_enabled")]
    pub enabled: bool,
    /// Whether the numbers of the first row are metrics, which need no token.
    #[serde(default)]
    pub metrics: bool,
}

const fn is_enabled() -> bool {
    true
}

/// A query of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum JobQuery {
    /// A query in SQL.
    Sql {
        /// The text.
        sql: String,
        /// The start of the time that tables have, as `6h`. Empty: a day.
        #[serde(default)]
        from: String,
        /// Other sites that are asked too: `all`, or names separated by commas.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        sites: String,
        /// A query over the rows of all sites, in the table `answers`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        combine: String,
    },
    /// The functions with the largest own weight.
    Top {
        /// The samples.
        #[serde(default)]
        selection: SelectionParameters,
        /// The most rows.
        #[serde(default = "top_rows")]
        rows: u32,
    },
    /// The weight of each event over time, the latest interval first.
    Series {
        /// The samples.
        #[serde(default)]
        selection: SelectionParameters,
        /// The intervals of the time.
        #[serde(default = "intervals")]
        intervals: u32,
    },
    /// The functions whose cost differs between two builds.
    Regression {
        /// The builds. Without names: the newest one, and the one before.
        #[serde(default)]
        compare: RegressionParameters,
    },
}

const fn top_rows() -> u32 {
    TOP_ROWS
}

const fn intervals() -> u32 {
    INTERVALS
}

impl JobQuery {
    /// Returns the name of the kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sql { .. } => "sql",
            Self::Top { .. } => "top",
            Self::Series { .. } => "series",
            Self::Regression { .. } => "regression",
        }
    }

    /// Returns the columns of numbers that each result has. `None`: the text of SQL decides.
    #[must_use]
    pub const fn number_columns(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::Sql { .. } => None,
            Self::Top { .. } => Some(&["share", "weight"]),
            Self::Series { .. } => Some(&["weight"]),
            Self::Regression { .. } => Some(&["before", "after", "difference", "low", "high"]),
        }
    }

    /// Returns the service that the query is about. `None`: all, or SQL.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        let service = match self {
            Self::Sql { .. } => "",
            Self::Top { selection, .. } | Self::Series { selection, .. } => &selection.service,
            Self::Regression { compare } => &compare.service,
        };
        Some(service).filter(|service| !service.is_empty())
    }
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(char::is_control) && text.trim() == text
}

impl JobDefinition {
    fn check_threshold(&self) -> Result<()> {
        let Some(threshold) = &self.threshold else {
            return Ok(());
        };
        let column = threshold.column.as_str();
        if !(1..=MAX_COLUMN).contains(&column.chars().count()) || !is_printable(column) {
            return Err(Error::Invalid(format!(
                "the column of a threshold has 1 to {MAX_COLUMN} printable characters"
            )));
        }
        if !threshold.value.is_finite() {
            return Err(Error::Invalid("the value of a threshold is a number".to_owned()));
        }
        match self.query.number_columns() {
            Some(columns) if !columns.contains(&column) => Err(Error::Invalid(format!(
                "the query has no column of numbers \"{}\"; the columns of {} are {}",
                column.escape_debug(),
                self.query.kind(),
                columns.join(", ")
            ))),
            _ => Ok(()),
        }
    }

    /// Reads a stored definition.
    ///
    /// # Errors
    /// Fails if it is malformed, or of a newer hub.
    pub fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| Error::Invalid(format!("the job's definition cannot be read: {error}")))
    }

    /// Returns the text to store.
    ///
    /// # Errors
    /// Fails if a number has no JSON.
    pub fn to_text(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::Invalid(format!("the job's definition cannot be written: {error}")))
    }

    /// Checks a new definition at a time in microseconds since 1970.
    ///
    /// # Errors
    /// Fails if a part is empty, too long or malformed.
    pub fn check(&self, now: i64) -> Result<()> {
        let length = self.name.chars().count();
        if !(1..=MAX_NAME).contains(&length) || !is_printable(&self.name) {
            return Err(Error::Invalid(format!(
                "a job's name has 1 to {MAX_NAME} printable characters"
            )));
        }
        self.check_threshold()?;
        let in_range = |name: &str, count: u32| match (1..=MAX_ROWS).contains(&count) {
            true => Ok(()),
            false => Err(Error::Invalid(format!("{name} is a number from 1 to {MAX_ROWS}"))),
        };
        match &self.query {
            JobQuery::Sql {
                sql,
                from,
                sites,
                combine,
            } => {
                if sql.trim().is_empty() {
                    return Err(Error::Invalid("the job has no SQL".to_owned()));
                }
                if !combine.is_empty() && sites.is_empty() {
                    return Err(Error::Invalid(
                        "a query over the rows of sites names the sites".to_owned(),
                    ));
                }
                if sql.len().max(combine.len()) > MAX_SQL {
                    return Err(Error::TooLarge(format!("the SQL is longer than {MAX_SQL} bytes")));
                }
                let times = SelectionParameters {
                    from: from.clone(),
                    sites: sites.clone(),
                    ..SelectionParameters::default()
                };
                times.selection_at(now).map(|_| ())
            }
            JobQuery::Top { selection, rows } => {
                in_range("rows", *rows)?;
                selection.selection_at(now).map(|_| ())
            }
            JobQuery::Series { selection, intervals } => {
                in_range("intervals", *intervals)?;
                selection.selection_at(now).map(|_| ())
            }
            JobQuery::Regression { compare } => compare.check_at(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(query: Value) -> Value {
        json!({ "name": "j", "query": query, "schedule": "hourly" })
    }

    #[test]
    fn definitions_are_read_as_they_were_written() {
        for query in [
            json!({ "kind": "sql", "sql": "SELECT 1" }),
            json!({ "kind": "top", "selection": { "service": "shop" }, "rows": 5 }),
            json!({ "kind": "series", "selection": { "event": "cpu" } }),
            json!({ "kind": "regression", "compare": { "service": "shop" } }),
        ] {
            let read: JobDefinition = serde_json::from_value(job(query.clone())).unwrap();
            assert_eq!(read.query.kind(), query["kind"]);
            assert!(read.enabled && !read.metrics);
            read.check(crate::clock::now()).unwrap();
            let text = read.to_text().unwrap();
            assert_eq!(JobDefinition::read(&text).unwrap(), read, "{text}");
        }
    }

    #[test]
    fn threshold_has_a_column_of_its_query() {
        for (query, columns) in [
            (json!({ "kind": "top" }), "share, weight"),
            (json!({ "kind": "series" }), "weight"),
            (
                json!({ "kind": "regression", "compare": { "service": "s" } }),
                "before, after, difference, low, high",
            ),
        ] {
            let with = |column: &str| {
                let mut job = job(query.clone());
                job["threshold"] = json!({ "column": column, "comparison": ">", "value": 1 });
                let read: JobDefinition = serde_json::from_value(job).unwrap();
                read.check(crate::clock::now()).map_err(|error| error.to_string())
            };
            for column in columns.split(", ") {
                with(column).unwrap();
            }
            for column in ["nosuch", "function", "event"] {
                let error = with(column).unwrap_err();
                assert!(error.contains(column) && error.ends_with(columns), "{error}");
            }
        }
    }

    #[test]
    fn impossible_definitions_are_refused() {
        let refused = |value: Value| {
            let Ok(read) = serde_json::from_value::<JobDefinition>(value.clone()) else {
                return;
            };
            assert!(read.check(crate::clock::now()).is_err(), "{value}");
        };
        for query in [
            json!({ "kind": "sql", "sql": " " }),
            json!({ "kind": "sql", "sql": "x".repeat(MAX_SQL + 1) }),
            json!({ "kind": "sql", "sql": "SELECT 1", "from": "soon" }),
            json!({ "kind": "top", "rows": 0 }),
            json!({ "kind": "top", "selection": { "focus": "(" } }),
            json!({ "kind": "series", "intervals": 1001 }),
            json!({ "kind": "regression" }),
            json!({ "kind": "regression", "compare": { "service": "s", "before": "1" } }),
            json!({ "kind": "regression", "compare": { "service": "s", "intervals": "x" } }),
            json!({ "kind": "poem" }),
            json!({ "kind": "top", "selection": { "servcie": "a" } }),
            json!({ "kind": "top", "intervals": 3 }),
            json!({ "kind": "sql", "sql": "SELECT 1", "form": "6h" }),
            json!({ "kind": "regression", "compare": { "service": "s", "Before": "1" } }),
        ] {
            refused(job(query));
        }
        let good = || job(json!({ "kind": "sql", "sql": "SELECT 1" }));
        for (key, value) in [
            ("name", json!("")),
            ("name", json!("x".repeat(101))),
            ("name", json!("a\nb")),
            ("schedule", json!("weekly")),
            ("color", json!("red")),
            (
                "threshold",
                json!({ "column": "", "comparison": ">", "value": 1 }),
            ),
            (
                "threshold",
                json!({ "column": "a", "comparison": "~", "value": 1 }),
            ),
        ] {
            let mut changed = good();
            changed[key] = value;
            refused(changed);
        }
    }
}
