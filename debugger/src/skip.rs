//! The code that steps pass over: libraries, and what the user named with `skip`, as in GDB.

use crate::error::{Error, Result};
use crate::own_code::CodeOrigin;
use crate::source::short;
use backtrail_symbolizer::is_named;
use regex::Regex;

/// The maximum number of rules. Each of them is checked at every address.
const MAX_RULES: usize = 1000;

/// The source files that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRule {
    /// The end of a path, whole names only.
    Name(String),
    /// A glob over the end of a path; `*` and `?` match no slash.
    Glob(String),
}

/// The functions that a rule names.
#[derive(Clone, Debug)]
pub enum FunctionRule {
    /// A name, or its last parts: `insert` means `Tree::insert` too.
    Name(String),
    /// A regular expression, which matches anywhere in the full name.
    Pattern(Regex),
}

impl PartialEq for FunctionRule {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(one), Self::Name(other)) => one == other,
            (Self::Pattern(one), Self::Pattern(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}

/// A rule of `skip`: code of these files and functions is passed over. A rule with both needs both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkipRule {
    /// The files; `None`: any.
    pub file: Option<FileRule>,
    /// The functions; `None`: any.
    pub function: Option<FunctionRule>,
}

impl SkipRule {
    /// Returns whether a function in a source file is passed over.
    #[must_use]
    pub fn matches(&self, function: &str, file: Option<&str>) -> bool {
        let names_file = |rule: &FileRule| match (rule, file) {
            (_, None) => false,
            (FileRule::Name(name), Some(file)) => is_path_end(file, name),
            (FileRule::Glob(pattern), Some(file)) => is_glob_of_end(pattern, file),
        };
        let names_function = |rule: &FunctionRule| match rule {
            FunctionRule::Name(name) => is_named(function, name),
            FunctionRule::Pattern(pattern) => pattern.is_match(function),
        };
        (self.file.is_some() || self.function.is_some())
            && self.file.as_ref().is_none_or(names_file)
            && self.function.as_ref().is_none_or(names_function)
    }
}

/// An entry of `info skip`.
#[derive(Clone, Debug, PartialEq)]
pub struct SkipEntry {
    /// Its number, from 1.
    pub number: u32,
    /// Whether it has an effect.
    pub enabled: bool,
    /// The rule.
    pub rule: SkipRule,
}

/// The rules of `skip`, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct SkipList {
    entries: Vec<SkipEntry>,
    last: u32,
}

impl SkipList {
    /// Returns all entries.
    #[must_use]
    pub fn entries(&self) -> &[SkipEntry] {
        &self.entries
    }

    /// Adds a rule, and returns its number.
    ///
    /// # Errors
    ///
    /// If there are too many rules.
    pub fn add(&mut self, rule: SkipRule) -> Result<u32> {
        if self.entries.len() >= MAX_RULES {
            return Err(Error::Cannot(format!(
                "there are {MAX_RULES} rules already; `skip delete` deletes rules"
            )));
        }
        self.last = self.last.saturating_add(1);
        self.entries.push(SkipEntry {
            number: self.last,
            enabled: true,
            rule,
        });
        Ok(self.last)
    }

    /// Deletes the rule of a number.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn delete(&mut self, number: u32) -> Result<()> {
        let at = self.entries.iter().position(|entry| entry.number == number);
        self.entries.remove(at.ok_or_else(|| none(number))?);
        Ok(())
    }

    /// Enables or disables the rule of a number.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn set_enabled(&mut self, number: u32, enabled: bool) -> Result<()> {
        let entry = self.entries.iter_mut().find(|entry| entry.number == number);
        entry.ok_or_else(|| none(number))?.enabled = enabled;
        Ok(())
    }

    /// Returns whether a rule that has an effect names code.
    #[must_use]
    pub fn names(&self, code: &CodeOrigin<'_>) -> bool {
        let function = code.function.unwrap_or("");
        self.enabled().any(|rule| rule.matches(function, code.file))
    }

    /// Returns the rules that have an effect.
    pub fn enabled(&self) -> impl Iterator<Item = &SkipRule> {
        let enabled = self.entries.iter().filter(|entry| entry.enabled);
        enabled.map(|entry| &entry.rule)
    }
}

fn none(number: u32) -> Error {
    Error::Cannot(format!("there is no skip rule {number}; `info skip` lists them"))
}

/// The code that one move passes over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFilter {
    /// Whether library code is passed over ([`crate::own_code`]).
    pub libraries: bool,
    /// The rules of `skip` that have an effect.
    pub rules: Vec<SkipRule>,
}

impl StepFilter {
    /// Returns whether no code is passed over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.libraries && self.rules.is_empty()
    }

    /// Returns whether a rule names a function in a source file.
    #[must_use]
    pub fn skips(&self, function: &str, file: Option<&str>) -> bool {
        self.rules.iter().any(|rule| rule.matches(function, file))
    }
}

/// Returns whether a path ends with a name, at a slash.
fn is_path_end(path: &str, name: &str) -> bool {
    let start = path.strip_suffix(name);
    !name.is_empty()
        && start.is_some_and(|start| start.is_empty() || start.ends_with('/') || name.starts_with('/'))
}

/// Returns whether a glob matches a path, or what follows one of its slashes.
fn is_glob_of_end(pattern: &str, path: &str) -> bool {
    if is_glob_of(pattern, path) {
        return true;
    }
    if !pattern.contains('/') {
        return is_glob_of(pattern, short(path));
    }
    let slashes = path.match_indices('/');
    !pattern.starts_with('/')
        && slashes
            .into_iter()
            .any(|(at, _)| is_glob_of(pattern, path.get(at + 1..).unwrap_or("")))
}

/// Returns whether a glob of `*` and `?` matches a whole text. Neither matches a slash.
///
/// The last `*` alone is tried again, so the time is bounded by the product of the lengths.
fn is_glob_of(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(from) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
                continue;
            }
            Some(b'?') if byte != b'/' => {}
            Some(&wanted) if wanted == byte && wanted != b'?' => {}
            _ => {
                // The last star takes one byte more.
                let Some((after, taken)) = star.filter(|&(_, taken)| text.get(taken) != Some(&b'/')) else {
                    return false;
                };
                star = Some((after, taken + 1));
                (at, from) = (after, taken + 1);
                continue;
            }
        }
        at += 1;
        from += 1;
    }
    pattern
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|&byte| byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (pattern, path, expected) in [
            ("*.h", "/usr/include/a.h", true),
            ("*.h", "/usr/include/a.hpp", false),
            ("util/*.c", "/home/me/util/log.c", true),
            ("util/*.c", "/home/me/util/deep/log.c", false),
            ("/home/*/util/*.c", "/home/me/util/log.c", true),
            ("/home/*.c", "/home/me/util/log.c", false),
            ("l?g.c", "/home/me/util/log.c", true),
            ("l?g.c", "/home/me/util/l/g.c", false),
            ("*o*o*.c", "foobarfoo.c", true),
            ("*", "/a/b", true),
            ("", "/a/b", false),
        ] {
            assert_eq!(is_glob_of_end(pattern, path), expected, "{pattern} {path}");
        }
        let long = "a".repeat(3000);
        assert!(!is_glob_of(&"*a".repeat(50), &format!("{long}b")));
    }

    #[test]
    fn rule_with_both_needs_both() {
        let function = Some(FunctionRule::Name("insert".to_owned()));
        let file = Some(FileRule::Name("util/tree.c".to_owned()));
        let both = SkipRule {
            file: file.clone(),
            function: function.clone(),
        };
        assert!(both.matches("Tree::insert", Some("/home/util/tree.c")));
        assert!(!both.matches("Tree::insert", Some("/home/myutil/tree.c")));
        assert!(!both.matches("Tree::find", Some("/home/util/tree.c")));
        assert!(!both.matches("insert", None));
        let function = SkipRule { function, file: None };
        assert!(function.matches("Tree::insert", None));
        assert!(!SkipRule::default().matches("insert", Some("tree.c")));
    }

    #[test]
    fn rules_are_numbered_once() {
        let mut list = SkipList::default();
        assert_eq!(list.add(SkipRule::default()).unwrap(), 1);
        assert_eq!(list.add(SkipRule::default()).unwrap(), 2);
        list.delete(2).unwrap();
        assert_eq!(list.add(SkipRule::default()).unwrap(), 3);
        list.set_enabled(1, false).unwrap();
        assert_eq!(list.enabled().count(), 1);
        assert!(list.delete(2).is_err());
    }
}
