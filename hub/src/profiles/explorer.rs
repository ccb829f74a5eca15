//! The parameters of the explorer: a selection, a comparison, a chart, and choices of the view.

use super::compare::CompareParameters;
use super::parameter_names;
use super::selection::{Selection, SelectionParameters, time_text};
use crate::error::{Error, Result};
use axum::extract::Query;
use axum::http::Uri;
use axum::http::uri::InvalidUri;
use serde::Deserialize;

/// The longest query of an address in bytes.
const MAX_QUERY: usize = 8192;

/// The parameters of the explorer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExplorerParameters {
    /// The samples.
    #[serde(flatten)]
    pub selection: SelectionParameters,
    /// The samples that they are compared with.
    #[serde(flatten)]
    pub compare: CompareParameters,
    /// The chart, the shown part of the time, and the choices of the view.
    #[serde(flatten)]
    pub shown: ShownParameters,
}

/// The chart, the shown part of the time, and the choices of the view.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ShownParameters {
    /// The chart: `heat`, `distribution`, or weights over time.
    pub chart: String,
    /// The values of a distribution: `host`, `thread`, or those of samples.
    pub per: String,
    /// The start of the part of the time that the view shows. Empty: all of it.
    pub part_from: String,
    /// The end of that part.
    pub part_until: String,
    /// The search in the view.
    pub find: String,
    /// The kept part of stacks: `callers`, `callees`, or all.
    pub keep: String,
    /// The tab of the view.
    pub view: String,
}

impl ShownParameters {
    /// Returns all parameters by name.
    fn all(&self) -> [(&'static str, &str); 7] {
        [
            ("chart", &self.chart),
            ("per", &self.per),
            ("part_from", &self.part_from),
            ("part_until", &self.part_until),
            ("find", &self.find),
            ("keep", &self.keep),
            ("view", &self.view),
        ]
    }

    /// Returns the parameters that say something.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.all().into_iter().filter(|(_, value)| !value.is_empty())
    }
}

impl ExplorerParameters {
    /// The names of all parameters but those of the selection.
    pub const MORE_NAMES: [&'static str; 12] = [
        "compare",
        "base_from",
        "base_until",
        "base_build",
        "base_labels",
        "chart",
        "per",
        "part_from",
        "part_until",
        "find",
        "keep",
        "view",
    ];

    /// Reads the query of an address.
    ///
    /// # Errors
    /// Fails if the query is too long, has an unknown parameter or repeats one. Fails if a
    /// selection is malformed.
    pub fn read(query: &str) -> Result<Self> {
        if query.len() > MAX_QUERY {
            return Err(Error::TooLarge(format!("a view has at most {MAX_QUERY} bytes")));
        }
        parameter_names::check(query.trim_start_matches('?'), &Self::MORE_NAMES)?;
        let wrong = |error: &str| Error::Invalid(format!("the view is no query of an address: {error}"));
        let address = format!("/?{}", query.trim_start_matches('?'));
        let address: Uri = address
            .parse()
            .map_err(|error: InvalidUri| wrong(&error.to_string()))?;
        let Query(parameters) =
            Query::<Self>::try_from_uri(&address).map_err(|error| wrong(&error.body_text()))?;
        parameters.view_selection().selection()?;
        parameters.compare.base(&parameters.view_selection())?;
        Ok(parameters)
    }

    /// Returns the parameters that say something.
    pub fn pairs(&self) -> Vec<(&'static str, &str)> {
        let selection = self.selection.pairs().into_iter();
        selection
            .chain(self.compare.pairs())
            .chain(self.shown.pairs())
            .collect()
    }

    /// Returns the query of an address with these parameters.
    #[must_use]
    pub fn query(&self) -> String {
        encoded(self.pairs())
    }

    /// Returns the same with another chart.
    #[must_use]
    pub fn with_chart(&self, chart: &str, per: &str) -> Self {
        let mut other = self.clone();
        chart.clone_into(&mut other.shown.chart);
        per.clone_into(&mut other.shown.per);
        other
    }

    /// Returns the same with times that stay what they are.
    #[must_use]
    pub fn with_times_of(&self, selection: &Selection) -> Self {
        let mut other = self.clone();
        other.selection.from = time_text(selection.times.start);
        other.selection.until = time_text(selection.times.end);
        other
    }

    /// Returns the samples that the view shows: those of a part of the time.
    #[must_use]
    pub fn view_selection(&self) -> SelectionParameters {
        let mut selection = self.selection.clone();
        if !self.shown.part_from.is_empty() && !self.shown.part_until.is_empty() {
            selection.from.clone_from(&self.shown.part_from);
            selection.until.clone_from(&self.shown.part_until);
        }
        selection
    }

    /// Returns the query of the view, and one more parameter.
    #[must_use]
    pub fn view_query(&self, more: Option<(&'static str, &str)>) -> String {
        let selection = self.view_selection();
        let pairs = selection.pairs().into_iter().chain(self.compare.pairs());
        encoded(pairs.chain(more))
    }

    /// Returns the fragment of the view's address: what a person chose in it.
    #[must_use]
    pub fn view_choices(&self) -> String {
        let is_choice = |(name, _): &(&str, &str)| matches!(*name, "find" | "keep" | "view");
        encoded(self.shown.pairs().filter(is_choice))
    }
}

fn encoded<'a>(pairs: impl IntoIterator<Item = (&'static str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        query.append_pair(name, value);
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_keep_their_known_parameters() {
        let query = "?service=shop&chart=heat&find=%5Ea%26b&compare=earlier&base_build=3";
        let read = ExplorerParameters::read(query).unwrap();
        assert_eq!(
            read.query(),
            "service=shop&compare=earlier&chart=heat&find=%5Ea%26b"
        );
        assert_eq!(read.view_choices(), "find=%5Ea%26b");
        assert_eq!(
            read.with_chart("", "").query(),
            "service=shop&compare=earlier&find=%5Ea%26b"
        );
    }

    #[test]
    fn view_has_the_part_of_the_time() {
        let query = "from=2026-11-29T09:00&until=2026-11-29T10:00&part_from=2026-11-29T09:01&part_until=2026-11-29T09:02";
        let read = ExplorerParameters::read(query).unwrap();
        assert_eq!(
            read.view_query(Some(("format", "folded"))),
            "from=2026-11-29T09%3A01&until=2026-11-29T09%3A02&format=folded"
        );
        let times = read.selection.selection().unwrap();
        assert!(
            read.with_times_of(&times)
                .query()
                .contains("from=2026-11-29T09%3A00%3A00&")
        );
    }

    #[test]
    fn malformed_views_are_refused() {
        for (query, problem) in [
            ("from=soon", "from is no time"),
            ("part_from=x&part_until=y", "until is no time"),
            ("color=red", "the parameter \"color\" is unknown"),
            ("compare=x", "compare is earlier or other"),
            ("focus=(", "focus is no regular expression"),
            ("service=a&service=b", "the view is no query of an address"),
        ] {
            let error = ExplorerParameters::read(query).unwrap_err().to_string();
            assert!(error.starts_with(problem), "{query}: {error}");
        }
        assert!(ExplorerParameters::read(&"a".repeat(9000)).is_err());
    }
}
