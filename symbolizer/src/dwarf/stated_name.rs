//! Names as entries state them, which may mark the start of template arguments.

use std::borrow::Cow;

/// The start of a name that has its arguments after a bar: `_STN|vector|<int>`.
pub(super) const MARK: &[u8] = b"_STN|";

/// Returns a name as the source has it, with its arguments if it states them.
pub(super) fn stated(name: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(name.strip_prefix(MARK).unwrap_or(name));
    if !name.starts_with(MARK) {
        return text;
    }
    match text.find("|<").or_else(|| text.find("| <")) {
        Some(bar) => Cow::Owned(format!("{}{}", &text[..bar], &text[bar + 1..])),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::stated;

    #[test]
    fn marked_names_are_joined() {
        for (name, expected) in [
            ("_STN|vector|<int>", "vector<int>"),
            ("_STN|operator|| <int>", "operator| <int>"),
            ("_STN|f", "f"),
            ("vector<int>", "vector<int>"),
            ("operator||", "operator||"),
        ] {
            assert_eq!(stated(name.as_bytes()), expected);
        }
    }
}
