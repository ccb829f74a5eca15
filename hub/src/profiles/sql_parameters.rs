//! The parameters of the page for SQL and of its views.

use super::parameter_names;
use super::sql::SqlRequest;
use super::sql_view::AnswerView;
use crate::error::{Error, Result};
use serde::Deserialize;

/// The longest query of an address in bytes.
const MAX_QUERY: usize = 100_000;
/// The names of all parameters.
const NAMES: [&str; 6] = ["sql", "from", "until", "sites", "combine", "as"];
/// The most rows of a view.
const ROWS: u64 = 10_000;
/// The longest time of a view's query in seconds.
const SECONDS: u64 = 60;

/// The parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqlParameters {
    /// The SQL text.
    pub sql: String,
    /// The start of the time, as in [`SqlRequest`].
    pub from: String,
    /// The end of the time.
    pub until: String,
    /// Other sites that are asked too.
    pub sites: String,
    /// A query over the rows of all sites.
    pub combine: String,
    /// The name of the view. Empty: the table.
    #[serde(rename = "as")]
    pub view: String,
}

impl SqlParameters {
    /// Reads the query of an address.
    ///
    /// # Errors
    /// Fails if the query is too long, has no SQL or an unknown parameter, or names an unknown view
    /// or a malformed time.
    pub fn read(query: &str, now: i64) -> Result<Self> {
        if query.len() > MAX_QUERY {
            return Err(Error::TooLarge(format!("a view has at most {MAX_QUERY} bytes")));
        }
        let mut parameters = Self::default();
        for (name, value) in form_urlencoded::parse(query.trim_start_matches('?').as_bytes()) {
            let field = match &*name {
                "sql" => &mut parameters.sql,
                "from" => &mut parameters.from,
                "until" => &mut parameters.until,
                "sites" => &mut parameters.sites,
                "combine" => &mut parameters.combine,
                "as" => &mut parameters.view,
                name => return Err(parameter_names::unknown(name, &NAMES)),
            };
            *field = value.into_owned();
        }
        if parameters.sql.trim().is_empty() {
            return Err(Error::Invalid("the view has no SQL".to_owned()));
        }
        if !parameters.view.is_empty() {
            AnswerView::named(&parameters.view)?;
        }
        parameters.clone().request().times_at(now)?;
        Ok(parameters)
    }

    /// Returns the query of an address with the parameters that say something.
    #[must_use]
    pub fn query(&self) -> String {
        let pairs = [
            ("sql", &self.sql),
            ("from", &self.from),
            ("until", &self.until),
            ("sites", &self.sites),
            ("combine", &self.combine),
            ("as", &self.view),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        query.finish()
    }

    /// Returns the request of a view.
    #[must_use]
    pub fn request(self) -> SqlRequest {
        SqlRequest {
            sql: self.sql,
            from: self.from,
            until: self.until,
            rows: ROWS,
            seconds: SECONDS,
            sites: self.sites,
            combine: self.combine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_written() {
        let now = crate::clock::now();
        let query = "sql=SELECT+%27%C3%A9%26%27&from=6h&sites=all&combine=SELECT+2&as=heat";
        let read = SqlParameters::read(&format!("?{query}"), now).unwrap();
        assert_eq!((&*read.sql, &*read.view), ("SELECT 'é&'", "heat"));
        assert_eq!(read.query(), query);
        for wrong in [
            "",
            "from=1h",
            "sql=+",
            "sql=a&as=pie",
            "sql=a&from=soon",
            "sql=a&frm=1h",
        ] {
            assert!(SqlParameters::read(wrong, now).is_err(), "{wrong}");
        }
        assert!(SqlParameters::read(&format!("sql={}", "x".repeat(MAX_QUERY)), now).is_err());
    }
}
