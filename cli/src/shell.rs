//! Quotes words for a command line that a user will copy into a shell.

use backtrail_console::output::is_invisible;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Quotes a path. A path that begins like an option gets `./` before it.
pub fn path(path: &Path) -> String {
    let name = path.as_os_str();
    match name.as_bytes().first() {
        Some(b'-') => word(Path::new(".").join(path).as_os_str()),
        _ => word(name),
    }
}

/// Quotes a text as one word, if it needs quotes.
pub fn word(text: impl AsRef<OsStr>) -> String {
    let bytes = text.as_ref().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Ok(text) if !text.contains(is_invisible) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escaped(bytes),
    }
}

/// Returns whether a character needs no quotes in any shell, at any position of a word.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || "_-./:,+@%".contains(char)
}

/// Quotes control characters as bash, zsh and ksh do (`$'…'`).
fn escaped(bytes: &[u8]) -> String {
    let mut quoted = "$'".to_owned();
    for &byte in bytes {
        // Writing to a String cannot fail.
        let _ = match byte {
            b'\'' | b'\\' => write!(quoted, "\\{}", char::from(byte)),
            b' '..=b'~' => write!(quoted, "{}", char::from(byte)),
            // Always use three digits, so that a digit that follows is not part of the escape.
            _ => write!(quoted, "\\{byte:03o}"),
        };
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn plain_words_are_not_quoted() {
        assert_eq!(path(Path::new("/tmp/a-b_1/x.bundle")), "/tmp/a-b_1/x.bundle");
        assert_eq!(path(Path::new("two words")), "'two words'");
        assert_eq!(path(Path::new("-x.bundle")), "./-x.bundle");
    }

    #[test]
    fn quoted_words_reach_the_shell_unchanged() {
        let names: [&[u8]; 10] = [
            b"",
            b"two words",
            b"it's",
            b"$HOME",
            b"`id`;$(id)",
            b"~",
            b"a\\b\"c",
            b"*?[x]{a,b}#!&|<>",
            b"\xff\x1b[31m1'\\\n",
            "\u{e4}\u{20ac}".as_bytes(),
        ];
        for name in names {
            let script = format!("printf %s {}", word(OsStr::from_bytes(name)));
            let output = Command::new("bash").arg("-c").arg(&script).output().unwrap();
            assert_eq!(output.stdout, name, "{script}");
        }
    }
}
