//! The format argument of commands, as in `print/x`.

/// Splits `/x NAME` into the letters and the rest.
pub(super) fn format_of(arguments: &str) -> (&str, &str) {
    match arguments.strip_prefix('/') {
        Some(rest) => {
            let (format, expression) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (format, expression.trim())
        }
        None => ("", arguments.trim()),
    }
}
