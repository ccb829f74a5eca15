//! Lines of a `ptype` answer.

/// Returns an indented line.
pub(crate) fn line(text: &str, indent: usize) -> String {
    format!("{}{text}\n", " ".repeat(indent))
}
