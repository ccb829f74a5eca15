//! Words of a unit's command lines: written so that systemd reads what was meant, and told apart (systemd.service(5)).

use crate::error::{Error, Result};
use std::path::Path;

/// A program's path as the first word of a command line: systemd expands `%` in it, but no variables.
pub(super) fn program(path: &Path) -> Result<String> {
    let text = text(path)?;
    if !path.is_absolute() {
        return Err(Error::Unable(format!(
            "{text:?} must begin with a slash to stand in a unit"
        )));
    }
    Ok(quoted(&text.replace('%', "%%")))
}

/// A path as a further word, in which systemd would expand variables too.
pub(super) fn argument(path: &Path) -> Result<String> {
    Ok(quoted(&text(path)?.replace('%', "%%").replace('$', "$$")))
}

/// A path in a list of paths.
pub(super) fn listed(path: &Path) -> Result<String> {
    Ok(quoted(&text(path)?.replace('%', "%%")))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .filter(|text| !text.chars().any(char::is_control))
        .ok_or_else(|| {
            Error::Unable(format!(
                "the path {path:?} cannot stand in a unit: it is no plain text"
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

/// Where the first word of a command line ends, in bytes; `None`: a quote is not closed.
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

/// The words of a command line as they are written; `None`: a quote is not closed.
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
    fn what_systemd_would_expand_or_split_is_written_so_that_it_does_not() {
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
    fn words_are_told_apart_as_they_are_written() {
        assert_eq!(
            split(r#"/bin/sh -c "echo 'a b' \" ;" 'x y'z  \; ;"#).unwrap(),
            ["/bin/sh", "-c", r#""echo 'a b' \" ;""#, "'x y'z", r"\;", ";"]
        );
        assert_eq!(split("  ").unwrap(), Vec::<&str>::new());
        assert_eq!(split("a 'b"), None);
    }
}
