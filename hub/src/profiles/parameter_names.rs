//! The names of parameters. A misspelled one would select everything.

use super::selection::SelectionParameters;
use crate::error::{Error, Result};

/// The longest unknown name that a sentence has, in characters.
const MAX_SHOWN: usize = 64;

/// Checks that all parameters of an address are those of a selection, or in a list.
///
/// # Errors
/// Fails with a sentence that has the unknown name and the known ones.
pub fn check(query: &str, more: &[&str]) -> Result<()> {
    let is_known = |name: &str| SelectionParameters::NAMES.contains(&name) || more.contains(&name);
    let found = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| !is_known(name));
    let Some((name, _)) = found else {
        return Ok(());
    };
    let known: Vec<&str> = SelectionParameters::NAMES.iter().chain(more).copied().collect();
    Err(unknown(&name, &known))
}

/// Returns the error of an unknown parameter.
pub(super) fn unknown(name: &str, known: &[&str]) -> Error {
    let name: String = name.chars().take(MAX_SHOWN).collect();
    Error::Invalid(format!(
        "the parameter \"{}\" is unknown; the parameters are {}",
        name.escape_debug(),
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameter_is_named_with_the_known_ones() {
        check("service=shop&from=1h&format=pprof", &["format"]).unwrap();
        check("", &[]).unwrap();
        for query in ["servcie=exp", "from=1h&Service=exp", "format=pprof", "&=a"] {
            let error = check(query, &["rows"]).unwrap_err().to_string();
            assert!(error.contains("is unknown; the parameters are"), "{error}");
            assert!(error.contains("service") && error.ends_with("rows"), "{error}");
        }
    }

    #[test]
    fn names_are_those_of_the_fields() {
        let fields = serde_json::to_value(SelectionParameters::default()).unwrap();
        let fields: Vec<_> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        let mut names = SelectionParameters::NAMES;
        names.sort_unstable();
        let mut sorted = fields;
        sorted.sort_unstable();
        assert_eq!(names.as_slice(), sorted);
    }
}
