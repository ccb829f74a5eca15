//! SQL over several sites: each site answers for its samples, and the rows are put together.

use super::answer::{SiteAnswer, SiteProblem, is_partial};
use super::ask::{Question, ask, read_json, whole_micros};
use super::scope::{LOCAL, SiteScope};
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::selection::time_text;
use crate::profiles::sql::{self, GivenRows, SqlAnswer, SqlRequest};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The most rows of a site for a second query.
const MAX_ROWS: u64 = 100_000;
/// The most bytes of the answers of all sites.
const MAX_BYTES: usize = 96 << 20;
/// The time that a site has beyond that of the query.
const GRACE: Duration = Duration::from_secs(15);
/// The most notes of a site.
const MAX_NOTES: usize = 20;
/// The column with the name of the site.
const SITE: &str = "site";

/// Answers a query on this hub and on its sites at a time in microseconds since 1970.
///
/// The rows of several sites have the column `site`. With `combine`, the rows are the table
/// `answers` of a second query, whose rows are the answer.
///
/// # Errors
/// Fails if a named site is unknown, the query of this hub fails, or the second one does. The
/// failure of a site is a missing part.
pub async fn answer_at(hub: &Arc<Hub>, request: &SqlRequest, now: i64) -> Result<SqlAnswer> {
    let scope = SiteScope::read(&request.sites)?;
    let is_combined = !request.combine.trim().is_empty();
    if scope == SiteScope::Own {
        if is_combined {
            return Err(Error::Invalid(
                "`combine` is over the rows of several sites; name them in `sites`".to_owned(),
            ));
        }
        return sql::answer_at(hub, request, now).await;
    }
    let times = whole_micros(&request.times_at(now)?);
    let part = SqlRequest {
        sql: request.sql.clone(),
        from: time_text(times.start),
        until: time_text(times.end),
        rows: if is_combined { MAX_ROWS } else { request.rows },
        seconds: request.longest().as_secs(),
        ..SqlRequest::default()
    };
    // Hubs of earlier versions refuse keys that they do not know.
    let text = json!({
        "sql": part.sql, "from": part.from, "until": part.until,
        "rows": part.rows, "seconds": part.seconds,
    });
    let question = Question::Post {
        path: "/api/v1/profiles/sql",
        text: text.to_string(),
        timeout: part.longest() + GRACE,
    };
    let (own, asked) = tokio::join!(sql::answer_at(hub, &part, now), ask(hub, &scope, question));
    let mut rows = SiteRows::new(own?, is_combined)?;
    let mut bytes = 0usize;
    let mut sites = Vec::new();
    for (name, body) in asked? {
        let added = body.and_then(|body| {
            let body = body.ok_or_else(|| SiteProblem::failed("its answer is empty"))?;
            bytes = bytes.saturating_add(body.len());
            if bytes > MAX_BYTES {
                return Err(SiteProblem::failed(
                    "the rows of all sites are too many; select fewer rows or columns",
                ));
            }
            rows.add(&name, read_json(&body)?)
        });
        sites.push(match added {
            Ok(()) => SiteAnswer::complete(&name),
            Err(problem) => SiteAnswer::missing(&name, problem),
        });
    }
    let mut answer = match is_combined {
        false => rows.into_answer(request.rows),
        true => {
            let second = SqlRequest {
                sql: request.combine.clone(),
                rows: request.rows,
                seconds: request.seconds,
                ..SqlRequest::default()
            };
            let (given, read, notes) = rows.into_given();
            let mut answer = sql::answer_over(hub, &second, &given).await?;
            read.write(&mut answer.coverage);
            answer.notes = notes;
            answer
        }
    };
    answer.partial = is_partial(&sites);
    answer.sites = sites;
    Ok(answer)
}

/// Sums of what was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReadSums([u64; 5]);

/// The keys of the sums.
const SUMS: [&str; 5] = ["segments_total", "segments", "rows", "bytes", "workers"];

impl ReadSums {
    fn add(&mut self, coverage: &Value) {
        for (sum, key) in self.0.iter_mut().zip(SUMS) {
            *sum = sum.saturating_add(coverage[key].as_u64().unwrap_or(0));
        }
    }

    fn write(self, coverage: &mut Value) {
        if let Some(coverage) = coverage.as_object_mut() {
            for (key, sum) in SUMS.into_iter().zip(self.0) {
                coverage.insert(key.to_owned(), sum.into());
            }
        }
    }
}

/// The rows of this hub and of its sites.
#[derive(Clone, Debug)]
struct SiteRows {
    columns: Vec<Value>,
    rows: Vec<Value>,
    notes: Vec<String>,
    read: ReadSums,
    is_truncated: bool,
    /// Whether all rows must be there.
    is_combined: bool,
}

impl SiteRows {
    /// Begins with the rows of this hub.
    fn new(own: SqlAnswer, is_combined: bool) -> Result<Self> {
        let columns = own.coverage["columns"].as_array().cloned().unwrap_or_default();
        if columns.iter().any(|column| column["name"] == SITE) {
            return Err(Error::Invalid(
                "a query of several sites has no column `site` of its own; give it another name".to_owned(),
            ));
        }
        let mut rows = Self {
            columns,
            rows: Vec::new(),
            notes: Vec::new(),
            read: ReadSums::default(),
            is_truncated: false,
            is_combined,
        };
        rows.add(LOCAL, own)
            .map_err(|problem| Error::Invalid(format!("this hub: {}", problem.reason)))?;
        Ok(rows)
    }

    /// Adds the rows of a site.
    fn add(&mut self, name: &str, answer: SqlAnswer) -> std::result::Result<(), SiteProblem> {
        let columns = answer.coverage["columns"].as_array();
        if columns != Some(&self.columns) {
            return Err(SiteProblem::failed("its columns are others; update its hub"));
        }
        let is_truncated = answer.coverage["truncated"] == true;
        if is_truncated && self.is_combined {
            return Err(SiteProblem::failed(format!(
                "it has more than {MAX_ROWS} rows for the second query; group or limit the first one"
            )));
        }
        if !answer.rows.iter().all(Value::is_object) {
            return Err(SiteProblem::failed("its answer has a row that is no object"));
        }
        self.rows.extend(answer.rows.into_iter().map(|mut row| {
            row[SITE] = name.into();
            row
        }));
        let notes = answer.notes.into_iter().take(MAX_NOTES);
        self.notes.extend(notes.map(|note| match name {
            LOCAL => note,
            site => format!("site {site}: {note}"),
        }));
        self.read.add(&answer.coverage);
        self.is_truncated |= is_truncated;
        Ok(())
    }

    fn columns(&self) -> Vec<Value> {
        let site = json!({ "name": SITE, "type": "Utf8" });
        [site].into_iter().chain(self.columns.iter().cloned()).collect()
    }

    /// Returns the rows as an answer.
    fn into_answer(mut self, most: u64) -> SqlAnswer {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let is_truncated = self.is_truncated || self.rows.len() > most;
        self.rows.truncate(most);
        let mut coverage = json!({
            "returned": self.rows.len(), "truncated": is_truncated, "columns": self.columns(),
        });
        self.read.write(&mut coverage);
        SqlAnswer {
            rows: self.rows,
            notes: self.notes,
            coverage,
            ..SqlAnswer::default()
        }
    }

    /// Returns the rows as a table, what was read for them, and notes.
    fn into_given(self) -> (GivenRows, ReadSums, Vec<String>) {
        let columns = self.columns();
        let given = GivenRows {
            columns,
            rows: self.rows,
        };
        (given, self.read, self.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(columns: &[&str], rows: Value, is_truncated: bool) -> SqlAnswer {
        let columns = columns
            .iter()
            .map(|name| json!({ "name": name, "type": "Int64" }));
        SqlAnswer {
            rows: serde_json::from_value(rows).unwrap(),
            coverage: json!({ "columns": columns.collect::<Vec<_>>(), "truncated": is_truncated,
                "segments": 2, "rows": 10 }),
            ..SqlAnswer::default()
        }
    }

    #[test]
    fn rows_have_the_name_of_their_site() {
        let mut rows = SiteRows::new(answer(&["n"], json!([{ "n": 1 }]), false), false).unwrap();
        rows.add("eu", answer(&["n"], json!([{ "n": 2 }, { "n": 3 }]), false))
            .unwrap();
        let whole = rows.clone().into_answer(100);
        assert_eq!(
            whole.rows,
            [
                json!({ "site": "local", "n": 1 }),
                json!({ "site": "eu", "n": 2 }),
                json!({ "site": "eu", "n": 3 })
            ]
        );
        assert_eq!(whole.coverage["columns"][0]["name"], "site");
        assert_eq!(
            (&whole.coverage["segments"], &whole.coverage["rows"]),
            (&json!(4), &json!(20))
        );
        assert_eq!(whole.coverage["truncated"], false);
        let part = rows.into_answer(2);
        assert_eq!((part.rows.len(), &part.coverage["truncated"]), (2, &json!(true)));
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let own = answer(&["n"], json!([]), false);
        let mut rows = SiteRows::new(own, true).unwrap();
        for (wrong, reason) in [
            (answer(&["m"], json!([]), false), "columns are others"),
            (answer(&["n"], json!([3]), false), "no object"),
            (answer(&["n"], json!([]), true), "second query"),
            (SqlAnswer::default(), "columns are others"),
        ] {
            let problem = rows.add("eu", wrong).unwrap_err();
            assert!(problem.reason.contains(reason), "{problem:?}");
        }
        assert!(rows.rows.is_empty());
        let error = SiteRows::new(answer(&["site"], json!([]), false), false).unwrap_err();
        assert!(error.to_string().contains("another name"), "{error}");
        // A sum of truncated rows would be wrong.
        assert!(SiteRows::new(answer(&["n"], json!([]), true), true).is_err());
    }
}
