//! The programs to record, selected by their names.

use crate::ptrace::RawTid;
use backtrail_process::status;
use std::path::Path;

/// Patterns of program names. `*` is any text, and `?` one character.
///
/// A program has the name of its executable, and for a script also that of the script. Without
/// patterns, all programs are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramFilter(Vec<String>);

impl ProgramFilter {
    /// Selects the programs that match at least one pattern.
    #[must_use]
    pub fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    /// Returns whether all programs are recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the program that a process executes is recorded.
    pub(crate) fn selects(&self, pid: RawTid) -> bool {
        self.is_empty()
            || names(pid)
                .iter()
                .any(|name| self.0.iter().any(|pattern| matches(pattern, name)))
    }
}

/// Returns the name of the program of a process: that of its executable, or of its script.
pub(crate) fn program_name(pid: RawTid) -> String {
    let [executable, started] = names(pid);
    // The kernel cuts the second name.
    match started.is_empty() || executable.starts_with(&started) {
        true => executable,
        false => started,
    }
}

/// Returns the name of the executable, and the name under which it was started, at most 15 bytes
/// long. The second is that of a script.
fn names(pid: RawTid) -> [String; 2] {
    let path = status::program(pid).unwrap_or_default();
    let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
    let name = Path::new(path).file_name().unwrap_or_default();
    [
        name.to_string_lossy().into_owned(),
        status::thread_name(pid, pid).unwrap_or_default(),
    ]
}

/// Returns whether a pattern matches a whole name. The last `*` alone is tried again, so the time
/// is bounded by the product of the lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    while let Some(character) = name.get(from) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, from));
                at += 1;
                continue;
            }
            Some('?') => {}
            Some(wanted) if wanted == character => {}
            _ => {
                let Some((after, taken)) = star else {
                    return false;
                };
                star = Some((after, taken + 1));
                (at, from) = (after, taken + 1);
                continue;
            }
        }
        (at, from) = (at + 1, from + 1);
    }
    pattern
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|character| *character == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("test", "test", true),
            ("test", "tests", false),
            ("test*", "test_of_parser", true),
            ("*_test", "parser_test", true),
            ("*_test", "parser_test2", false),
            ("t?st", "tést", true),
            ("*a*b*c", "xxaxxbxbxc", true),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!matches(&"*a".repeat(50), &format!("{}b", "a".repeat(500))));
    }

    #[test]
    fn own_program_is_selected_by_its_name() {
        let pid = std::process::id() as RawTid;
        assert!(ProgramFilter::default().selects(pid));
        assert!(ProgramFilter::new(vec!["backtrail_recorder*".to_owned()]).selects(pid));
        assert!(!ProgramFilter::new(vec!["sleep".to_owned()]).selects(pid));
        assert!(program_name(pid).starts_with("backtrail_recorder"));
    }
}
