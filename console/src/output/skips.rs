//! The answer of `skip` and `info skip`.

use super::text::Text;
use backtrail_debugger::skip::{FileRule, FunctionRule, SkipEntry};
use serde::Serialize;

/// A rule of `skip`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkipView {
    /// Its number.
    pub number: u32,
    /// Whether it has an effect.
    pub enabled: bool,
    /// The source file: the end of its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The source files, as a glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_glob: Option<String>,
    /// The function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The functions, as a regular expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_regex: Option<String>,
}

impl From<&SkipEntry> for SkipView {
    fn from(entry: &SkipEntry) -> Self {
        let mut view = Self {
            number: entry.number,
            enabled: entry.enabled,
            file: None,
            file_glob: None,
            function: None,
            function_regex: None,
        };
        match &entry.rule.file {
            Some(FileRule::Name(name)) => view.file = Some(name.clone()),
            Some(FileRule::Glob(glob)) => view.file_glob = Some(glob.clone()),
            None => {}
        }
        match &entry.rule.function {
            Some(FunctionRule::Name(name)) => view.function = Some(name.clone()),
            Some(FunctionRule::Pattern(regex)) => view.function_regex = Some(regex.to_string()),
            None => {}
        }
        view
    }
}

impl SkipView {
    /// Returns the files and functions, such as `function f of files *.h`.
    fn rule(&self) -> String {
        let function = match (&self.function, &self.function_regex) {
            (Some(name), _) => Some(format!("function {name}")),
            (None, Some(regex)) => Some(format!("functions /{regex}/")),
            (None, None) => None,
        };
        let file = match (&self.file, &self.file_glob) {
            (Some(name), _) => Some(format!("file {name}")),
            (None, Some(glob)) => Some(format!("files {glob}")),
            (None, None) => None,
        };
        match (function, file) {
            (Some(function), Some(file)) => format!("{function} of {file}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => String::new(),
        }
    }
}

/// Renders the rules as lines of text.
pub(super) fn render(skips: &[SkipView], to: &mut Text) {
    if skips.is_empty() {
        to.line("No code is skipped; `skip function NAME` and `skip file NAME` add rules.");
        return;
    }
    for skip in skips {
        let disabled = if skip.enabled { "" } else { " (disabled)" };
        to.line(format!("Skip {}: {}{disabled}", skip.number, skip.rule()));
    }
}
