//! Quoting of words for a shell, so that suggested command lines work with any file name.

use backtrail_debugger::output::is_invisible;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns a path as a word of a shell's command line. A path never looks like an option.
pub fn path(path: &Path) -> String {
    let name = path.as_os_str();
    match name.as_bytes().first() {
        Some(b'-') => word(Path::new(".").join(path).as_os_str()),
        _ => word(name),
    }
}

/// A text as one word of a shell's command line: as it is where it means itself, else in quotes.
pub fn word(text: impl AsRef<OsStr>) -> String {
    let bytes = text.as_ref().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Ok(text) if !text.contains(is_invisible) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => escaped(bytes),
    }
}

/// Returns whether every shell reads this byte literally, at any place in a word.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || "_-./:,+@%".contains(char)
}

/// In the quotes that bash, zsh and ksh have for what cannot be shown.
fn escaped(bytes: &[u8]) -> String {
    let mut quoted = "$'".to_owned();
    for &byte in bytes {
        // Writing to a String cannot fail.
        let _ = match byte {
            b'\'' | b'\\' => write!(quoted, "\\{}", char::from(byte)),
            b' '..=b'~' => write!(quoted, "{}", char::from(byte)),
            // Always three digits, so that what follows is no fourth.
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
    fn what_needs_no_quotes_has_none() {
        assert_eq!(path(Path::new("/tmp/a-b_1/x.bundle")), "/tmp/a-b_1/x.bundle");
        assert_eq!(path(Path::new("two words")), "'two words'");
        assert_eq!(path(Path::new("-x.bundle")), "./-x.bundle");
    }

    #[test]
    fn a_shell_reads_what_was_meant() {
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
