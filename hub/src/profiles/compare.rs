//! The other selection of a comparison.

use super::selection::{Selection, SelectionParameters};
use crate::error::{Error, Result};
use serde::Deserialize;

/// The parameters of a comparison. The base is the earlier profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CompareParameters {
    /// Empty: no comparison. `earlier`: with the same length of time before. `other`: with the
    /// values below.
    pub compare: String,
    /// The start of the base. Empty: that of the selection.
    pub base_from: String,
    /// The end of the base.
    pub base_until: String,
    /// The build of the base.
    pub base_build: String,
    /// The labels of the base.
    pub base_labels: String,
}

impl CompareParameters {
    /// Returns all parameters that say something, by name.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, &str)> {
        let pairs = [
            ("compare", self.compare.as_str()),
            ("base_from", &self.base_from),
            ("base_until", &self.base_until),
            ("base_build", &self.base_build),
            ("base_labels", &self.base_labels),
        ];
        let is_used = |(name, _): &(&str, &str)| *name == "compare" || self.compare == "other";
        pairs
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .filter(is_used)
            .collect()
    }

    /// Returns the base of a comparison. `None`: nothing is compared.
    ///
    /// # Errors
    /// Fails if a value is malformed, or the base is the selection itself.
    pub fn base(&self, selection: &SelectionParameters) -> Result<Option<Selection>> {
        match self.compare.as_str() {
            "" => Ok(None),
            "earlier" => {
                let mut base = selection.selection()?;
                let length = base.times.end - base.times.start;
                base.times = base.times.start.saturating_sub(length)..base.times.start;
                Ok(Some(base))
            }
            "other" => {
                let or = |other: &str, own: &str| match other {
                    "" => own.to_owned(),
                    other => other.to_owned(),
                };
                let base = SelectionParameters {
                    from: or(&self.base_from, &selection.from),
                    until: or(&self.base_until, &selection.until),
                    build: or(&self.base_build, &selection.build),
                    labels: or(&self.base_labels, &selection.labels),
                    ..selection.clone()
                };
                if base == *selection {
                    return Err(Error::Invalid(
                        "the base of the comparison is the selection itself; choose another time, build or label"
                            .to_owned(),
                    ));
                }
                base.selection().map(Some)
            }
            other => Err(Error::Invalid(format!(
                "compare is earlier or other, not \"{other}\""
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_base_ends_where_the_selection_begins() {
        let selection = SelectionParameters {
            from: "2026-11-29T09:00".to_owned(),
            until: "2026-11-29T10:00".to_owned(),
            ..SelectionParameters::default()
        };
        let compare = CompareParameters {
            compare: "earlier".to_owned(),
            ..CompareParameters::default()
        };
        let base = compare.base(&selection).unwrap().unwrap();
        let chosen = selection.selection().unwrap();
        assert_eq!(base.times.end, chosen.times.start);
        assert_eq!(
            base.times.end - base.times.start,
            chosen.times.end - chosen.times.start
        );
    }

    #[test]
    fn other_base_has_the_values_that_differ() {
        let selection = SelectionParameters {
            build: "2".to_owned(),
            service: "shop".to_owned(),
            ..SelectionParameters::default()
        };
        let mut compare = CompareParameters {
            compare: "other".to_owned(),
            base_build: "1".to_owned(),
            ..CompareParameters::default()
        };
        let base = compare.base(&selection).unwrap().unwrap();
        let values: Vec<_> = base.columns.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["shop", "1"]);
        compare.base_build.clear();
        assert!(
            compare
                .base(&selection)
                .unwrap_err()
                .to_string()
                .contains("selection itself")
        );
        compare.compare = "x".to_owned();
        assert!(compare.base(&selection).is_err());
        compare.compare.clear();
        assert!(compare.base(&selection).unwrap().is_none());
    }
}
