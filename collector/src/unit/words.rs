//! Quotes and splits the words of a unit's command lines (systemd.service(5)).

use crate::error::{Error, Result};
use std::path::Path;

/// Quotes a program's path as the first word of a command line, where systemd expands `%` but no
/// variables.
pub(super) fn program(path: &Path) -> Result<String> {
    let text = text(path)?;
    if !path.is_absolute() {
        return Err(Error::Unable(format!("{text:?} must begin with a slash")));
    }
    Ok(quoted(&text.replace('%', "%%")))
}

/// Quotes a path as another word, where systemd also expands variables.
pub(super) fn argument(path: &Path) -> Result<String> {
    Ok(quoted(&text(path)?.replace('%', "%%").replace('$', "$$")))
}

/// Quotes a path in a list of paths.
pub(super) fn listed(path: &Path) -> Result<String> {
    Ok(quoted(&text(path)?.replace('%', "%%")))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .filter(|text| !text.chars().any(char::is_control))
        .ok_or_else(|| {
            Error::Unable(format!(
                "the path {path:?} cannot be written in a unit, because it has control characters or is not UTF-8"
            ))
        })
}

fn quoted(word: &str) -> String {
    let plain = |char: char| !char.is_whitespace() && !"\"'\\;#".contains(char);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns where the first word of a command line ends, in bytes. `None`: a quote is not closed.
pub(super) fn first(line: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, char) in line.char_indices() {
        match (quote, char) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), close) if open == close => quote = None,
            (None, '"' | '\'') => quote = Some(char),
            (None, space) if space.is_whitespace() => return Some(at),
            _ => {}
        }
    }
    quote.is_none().then_some(line.len())
}

/// Splits a command line into its words, with their quotes. `None`: a quote is not closed.
pub(super) fn split(mut line: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    loop {
        line = line.trim_start();
        if line.is_empty() {
            return Some(words);
        }
        let (word, rest) = line.split_at_checked(first(line)?)?;
        words.push(word);
        line = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(
            program(Path::new("/usr/bin/backtrail")).unwrap(),
            "/usr/bin/backtrail"
        );
        assert_eq!(
            program(Path::new("/opt/a b/100%$x")).unwrap(),
            "\"/opt/a b/100%%$x\""
        );
        assert_eq!(argument(Path::new("/a$x%i")).unwrap(), "/a$$x%%i");
        assert_eq!(listed(Path::new(r#"/a"\b"#)).unwrap(), r#""/a\"\\b""#);
        assert!(program(Path::new("backtrail")).is_err());
        assert!(argument(Path::new("/a\nExecStart=/bin/evil")).is_err());
    }

    #[test]
    fn command_lines_are_split_into_words() {
        assert_eq!(
            split(r#"/bin/sh -c "echo 'a b' \" ;" 'x y'z  \; ;"#).unwrap(),
            ["/bin/sh", "-c", r#""echo 'a b' \" ;""#, "'x y'z", r"\;", ";"]
        );
        assert_eq!(split("  ").unwrap(), Vec::<&str>::new());
        assert_eq!(split("a 'b"), None);
    }
}
