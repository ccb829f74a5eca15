//! The form of a job: from fields to a definition, and back.

use crate::error::{Error, Result};
use crate::profiles::regressions::RegressionParameters;
use crate::profiles::selection::SelectionParameters;
use crate::query_jobs::definition::{JobDefinition, JobQuery};
use crate::query_jobs::threshold::{Comparison, Threshold};
use crate::server::pages::jobs::JobForm;
use serde::Deserialize;

/// The fields of the form. Fields of other kinds of queries are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobFields {
    /// The key of the form.
    pub csrf: String,
    name: String,
    kind: String,
    schedule: String,
    from: String,
    sites: String,
    sql: String,
    combine: String,
    service: String,
    event: String,
    host: String,
    build: String,
    labels: String,
    focus: String,
    count: String,
    before: String,
    after: String,
    column: String,
    comparison: String,
    value: String,
    enabled: String,
    metrics: String,
}

impl JobFields {
    /// Returns the definition.
    ///
    /// # Errors
    /// Fails if a field is malformed.
    pub fn definition(&self) -> Result<JobDefinition> {
        Ok(JobDefinition {
            name: self.name.trim().to_owned(),
            query: self.query()?,
            schedule: self.schedule.parse()?,
            threshold: self.threshold()?,
            enabled: !self.enabled.is_empty(),
            metrics: !self.metrics.is_empty(),
        })
    }

    fn query(&self) -> Result<JobQuery> {
        let text = |text: &str| text.trim().to_owned();
        let selection = || SelectionParameters {
            from: text(&self.from),
            sites: text(&self.sites),
            service: text(&self.service),
            event: text(&self.event),
            host: text(&self.host),
            build: text(&self.build),
            labels: text(&self.labels),
            focus: text(&self.focus),
            ..SelectionParameters::default()
        };
        Ok(match self.kind.as_str() {
            "sql" => JobQuery::Sql {
                sql: self.sql.replace("\r\n", "\n"),
                from: text(&self.from),
                sites: text(&self.sites),
                combine: self.combine.replace("\r\n", "\n").trim().to_owned(),
            },
            "top" => JobQuery::Top {
                selection: selection(),
                rows: self.count(20)?,
            },
            "series" => JobQuery::Series {
                selection: selection(),
                intervals: self.count(60)?,
            },
            "regression" => JobQuery::Regression {
                compare: RegressionParameters {
                    service: text(&self.service),
                    before: text(&self.before),
                    after: text(&self.after),
                    event: text(&self.event),
                    from: text(&self.from),
                    sites: text(&self.sites),
                    ..RegressionParameters::default()
                },
            },
            _ => {
                return Err(Error::Invalid(
                    "the query of a job is sql, top, series or regression".to_owned(),
                ));
            }
        })
    }

    fn count(&self, usual: u32) -> Result<u32> {
        match self.count.trim() {
            "" => Ok(usual),
            text => text
                .parse()
                .map_err(|_| Error::Invalid("the number of rows or intervals is a number".to_owned())),
        }
    }

    fn threshold(&self) -> Result<Option<Threshold>> {
        let column = self.column.trim();
        if column.is_empty() {
            return Ok(None);
        }
        let invalid = |reason: &str| Error::Invalid(reason.to_owned());
        let comparison = Comparison::of_sign(&self.comparison);
        Ok(Some(Threshold {
            column: column.to_owned(),
            comparison: comparison.ok_or_else(|| invalid("the comparison is >, >=, < or <="))?,
            value: self
                .value
                .trim()
                .parse()
                .map_err(|_| invalid("the value of a threshold is a number"))?,
        }))
    }
}

/// Returns the form of a job that is there.
#[must_use]
pub fn filled(job: &JobDefinition) -> JobForm {
    let mut values = vec![
        ("name", job.name.clone()),
        ("kind", job.query.kind().to_owned()),
        ("schedule", job.schedule.to_string()),
    ];
    let selected = |selection: &SelectionParameters| {
        vec![
            ("from", selection.from.clone()),
            ("sites", selection.sites.clone()),
            ("service", selection.service.clone()),
            ("event", selection.event.clone()),
            ("host", selection.host.clone()),
            ("build", selection.build.clone()),
            ("labels", selection.labels.clone()),
            ("focus", selection.focus.clone()),
        ]
    };
    match &job.query {
        JobQuery::Sql {
            sql,
            from,
            sites,
            combine,
        } => values.extend([
            ("sql", sql.clone()),
            ("from", from.clone()),
            ("sites", sites.clone()),
            ("combine", combine.clone()),
        ]),
        JobQuery::Top { selection, rows } => {
            values.extend(selected(selection));
            values.push(("count", rows.to_string()));
        }
        JobQuery::Series { selection, intervals } => {
            values.extend(selected(selection));
            values.push(("count", intervals.to_string()));
        }
        JobQuery::Regression { compare } => values.extend([
            ("service", compare.service.clone()),
            ("event", compare.event.clone()),
            ("from", compare.from.clone()),
            ("sites", compare.sites.clone()),
            ("before", compare.before.clone()),
            ("after", compare.after.clone()),
        ]),
    }
    if let Some(threshold) = &job.threshold {
        values.extend([
            ("column", threshold.column.clone()),
            ("comparison", threshold.comparison.sign().to_owned()),
            ("value", threshold.value.to_string()),
        ]);
    }
    JobForm {
        values,
        is_enabled: job.enabled,
        is_metrics: job.metrics,
    }
}

/// Returns the form of a new job.
#[must_use]
pub fn empty() -> JobForm {
    JobForm {
        values: vec![("schedule", "hourly".to_owned())],
        is_enabled: true,
        is_metrics: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fields that a browser sends for a form.
    fn sent(form: &JobForm) -> JobFields {
        let mut values: serde_json::Map<_, _> = form
            .values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone().into()))
            .collect();
        if form.is_enabled {
            values.insert("enabled".to_owned(), "1".into());
        }
        if form.is_metrics {
            values.insert("metrics".to_owned(), "1".into());
        }
        serde_json::from_value(values.into()).unwrap()
    }

    #[test]
    fn form_keeps_all_of_a_job() {
        let queries = [
            r#"{"kind":"sql","sql":"SELECT 1","from":"6h","sites":"all","combine":"SELECT 2"}"#,
            r#"{"kind":"top","selection":{"service":"s","labels":"a=b","focus":"f","sites":"eu"},"rows":7}"#,
            r#"{"kind":"series","selection":{"host":"h","build":"2","event":"cpu"},"intervals":9}"#,
            r#"{"kind":"regression","compare":{"service":"s","before":"1","after":"2","from":"3d","sites":"eu"}}"#,
        ];
        for (at, query) in queries.into_iter().enumerate() {
            let threshold = r#","threshold":{"column":"a","comparison":"<=","value":-1.5}"#;
            let threshold = if at % 2 == 0 { threshold } else { "" };
            let text = format!(
                r#"{{"name":"j","schedule":"every 5m","enabled":{},"metrics":true,"query":{query}{threshold}}}"#,
                at < 2
            );
            let job = JobDefinition::read(&text).unwrap();
            assert_eq!(sent(&filled(&job)).definition().unwrap(), job, "{text}");
        }
    }

    #[test]
    fn malformed_fields_are_refused() {
        let fields = |pairs: &[(&str, &str)]| -> JobFields {
            let usual = [("name", "j"), ("kind", "top"), ("schedule", "hourly")];
            let all = usual.iter().chain(pairs);
            let values: serde_json::Map<_, _> = all
                .map(|(name, value)| ((*name).to_owned(), (*value).into()))
                .collect();
            serde_json::from_value(values.into()).unwrap()
        };
        assert!(fields(&[]).definition().is_ok());
        for wrong in [
            &[("kind", "")][..],
            &[("schedule", "")],
            &[("count", "many")],
            &[("column", "a"), ("comparison", ">")],
            &[("column", "a"), ("comparison", "=="), ("value", "1")],
        ] {
            assert!(fields(wrong).definition().is_err(), "{wrong:?}");
        }
    }
}
