//! Rules of users: group by a function, ignore it, or ignore all frames up to it.
//!
//! A rule is one line:
//!
//! ```text
//! group-by PATTERN as NAME
//! ignore PATTERN
//! ignore-up-to PATTERN
//! ```
//!
//! A pattern is a glob such as `ledger::*`, or a regular expression between slashes such as
//! `/^ledger::(post|settle)$/`. The pattern is compared with the normalized name of the function.
//! With `module:` before it, the pattern is compared with the path and the file name of the module.

use super::normalize;
use crate::stack::Frame;
use regex::{Regex, RegexBuilder};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 500;
/// The longest name of a group, in bytes.
const MAX_NAME: usize = 120;
/// The most rules of a service.
pub const MAX_RULES: usize = 200;
/// The most memory of a compiled pattern, in bytes.
const MAX_COMPILED: usize = 256 << 10;

/// The effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleAction {
    /// All crashes with a matching frame are one group.
    GroupBy {
        /// The title of the group. `None`: the normalized name of the frame, after the cause.
        name: Option<String>,
    },
    /// Matching frames are dropped.
    Ignore,
    /// The innermost matching frames and all frames within them are dropped.
    IgnoreUpTo,
}

impl RuleAction {
    /// Returns the action's word: `group-by`, `ignore` or `ignore-up-to`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::GroupBy { .. } => "group-by",
            Self::Ignore => "ignore",
            Self::IgnoreUpTo => "ignore-up-to",
        }
    }
}

/// The text that a pattern is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Function,
    Module,
}

/// A rule of a user.
#[derive(Clone, Debug)]
pub struct Rule {
    action: RuleAction,
    subject: Subject,
    pattern: String,
    regex: Regex,
}

/// The reason for which a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRule {
    /// The action is unknown.
    #[error("a rule begins with `group-by`, `ignore` or `ignore-up-to`, not with `{0}`")]
    Action(String),
    /// The pattern is missing.
    #[error("the rule has no pattern: write `{0} PATTERN`, such as `{0} ledger::*`")]
    NoPattern(&'static str),
    /// The pattern is too long.
    #[error("the pattern has more than {MAX_PATTERN} bytes")]
    TooLong,
    /// The pattern has characters that no name has.
    #[error("the pattern has control characters, which no name has")]
    Unprintable,
    /// The pattern matches every name.
    #[error("the pattern `{0}` matches every function")]
    MatchesAll(String),
    /// The regular expression is wrong.
    #[error("the regular expression cannot be read: {0}")]
    Regex(String),
    /// The compiled pattern is too large.
    #[error("the pattern is too large: use fewer or smaller repetitions")]
    TooLarge,
    /// The name is missing or wrong.
    #[error("the name of the group has 1 to {MAX_NAME} bytes and no control characters")]
    Name,
    /// Only `group-by` has a name.
    #[error("`as NAME` is for `group-by` only")]
    UnusedName,
    /// The list of rules is too long.
    #[error("a service has at most {MAX_RULES} rules")]
    TooMany,
}

impl Rule {
    /// Builds a rule from an action's word and the rest of its line: a pattern, and for `group-by`
    /// possibly `as NAME`.
    ///
    /// # Errors
    /// Fails if the action, the pattern or the name is invalid.
    pub fn new(action: &str, text: &str) -> Result<Self, InvalidRule> {
        let action = match action {
            "group-by" => RuleAction::GroupBy { name: None },
            "ignore" => RuleAction::Ignore,
            "ignore-up-to" => RuleAction::IgnoreUpTo,
            other => return Err(InvalidRule::Action(other.chars().take(40).collect())),
        };
        let text = text.trim();
        if text.len() > MAX_PATTERN + MAX_NAME {
            return Err(InvalidRule::TooLong);
        }
        let (pattern, name) = match text.rsplit_once(" as ") {
            // A Rust name has ` as ` within angle brackets.
            Some((pattern, name)) if !name.contains('>') && !name.ends_with('/') => {
                (pattern.trim_end(), Some(name.trim()))
            }
            _ => (text, None),
        };
        let action = match (action, name) {
            (action, None) => action,
            (RuleAction::GroupBy { .. }, Some(name)) => RuleAction::GroupBy {
                name: Some(checked_name(name)?),
            },
            (_, Some(_)) => return Err(InvalidRule::UnusedName),
        };
        if pattern.is_empty() {
            return Err(InvalidRule::NoPattern(action.word()));
        }
        if !pattern.chars().all(super::printable::is_printable) {
            return Err(InvalidRule::Unprintable);
        }
        let (subject, body) = match pattern.strip_prefix("module:") {
            Some(body) => (Subject::Module, body),
            None => (Subject::Function, pattern),
        };
        Ok(Self {
            regex: compile(body)?,
            action,
            subject,
            pattern: pattern.to_owned(),
        })
    }

    /// Returns the action.
    #[must_use]
    pub fn action(&self) -> &RuleAction {
        &self.action
    }

    /// Returns the pattern as the user wrote it, with `module:` if it is there.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns whether the rule matches a frame, by the normalized name of its function and the
    /// path of its module.
    #[must_use]
    pub fn matches(&self, function: Option<&str>, module: Option<&str>) -> bool {
        match self.subject {
            Subject::Function => function.is_some_and(|name| self.regex.is_match(name)),
            Subject::Module => module.is_some_and(|path| {
                let name = path.rsplit('/').next().unwrap_or(path);
                self.regex.is_match(name) || self.regex.is_match(path)
            }),
        }
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(line: &str) -> Result<Self, InvalidRule> {
        let line = line.trim();
        let (action, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Self::new(action, rest)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.action.word(), self.pattern)?;
        match &self.action {
            RuleAction::GroupBy { name: Some(name) } => write!(formatter, " as {name}"),
            _ => Ok(()),
        }
    }
}

/// Returns a pattern that matches a frame: the normalized name of its function, or else the file
/// name of its module. `None`: no pattern can name the frame.
#[must_use]
pub fn pattern_of(frame: &Frame) -> Option<String> {
    let function = frame.function.as_deref().map(normalize);
    let module = frame.module.as_deref().filter(|path| !path.is_empty());
    let pattern = match (&function, module) {
        (Some(name), _) => name.clone(),
        (None, Some(path)) => format!("module:{}", path.rsplit('/').next().unwrap_or(path)),
        (None, None) => return None,
    };
    let rule = Rule::new("ignore", &pattern).ok()?;
    rule.matches(function.as_deref(), module).then_some(pattern)
}

fn checked_name(name: &str) -> Result<String, InvalidRule> {
    let is_valid =
        !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(super::printable::is_printable);
    is_valid.then(|| name.to_owned()).ok_or(InvalidRule::Name)
}

/// Compiles a glob, or a regular expression between slashes.
fn compile(body: &str) -> Result<Regex, InvalidRule> {
    if body.len() > MAX_PATTERN {
        return Err(InvalidRule::TooLong);
    }
    let inner = body.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    let expression = match inner.filter(|inner| !inner.is_empty()) {
        Some(inner) => inner.to_owned(),
        None => glob(body),
    };
    let regex = RegexBuilder::new(&expression)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(50)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => InvalidRule::TooLarge,
            // The last line has the reason; the lines before repeat the expression.
            error => InvalidRule::Regex(last_line(&error.to_string())),
        })?;
    // Names that no program has: a pattern that matches them matches all names.
    if regex.is_match("") || ["\u{1}x\u{2}", "\u{3}"].iter().all(|name| regex.is_match(name)) {
        return Err(InvalidRule::MatchesAll(body.to_owned()));
    }
    Ok(regex)
}

fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// Returns the regular expression of a glob, in which `*` is any text and `?` any character.
fn glob(pattern: &str) -> String {
    let mut expression = String::from("(?s)^");
    let mut buffer = [0; 4];
    for letter in pattern.chars() {
        match letter {
            '*' if expression.ends_with(".*") => {}
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            letter => expression.push_str(&regex::escape(letter.encode_utf8(&mut buffer))),
        }
    }
    expression.push('$');
    expression
}

/// The rules of a service, in their order.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Arc<Rule>>,
}

impl RuleSet {
    /// Builds a list of rules.
    ///
    /// # Errors
    /// Fails if the list has more than [`MAX_RULES`] entries.
    pub fn new(rules: Vec<Arc<Rule>>) -> Result<Self, InvalidRule> {
        if rules.len() > MAX_RULES {
            return Err(InvalidRule::TooMany);
        }
        Ok(Self { rules })
    }

    /// Reads rules, one per line. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// Returns the number of the first wrong line, from 1, and the reason.
    pub fn parse(text: &str) -> Result<Self, (usize, InvalidRule)> {
        let mut rules = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if rules.len() == MAX_RULES {
                return Err((at + 1, InvalidRule::TooMany));
            }
            let rule = line.parse().map_err(|reason| (at + 1, reason))?;
            rules.push(Arc::new(rule));
        }
        Ok(Self { rules })
    }

    /// Returns the rules in their order.
    #[must_use]
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(line: &str) -> Rule {
        line.parse().unwrap()
    }

    #[test]
    fn globs_match_whole_names() {
        let rule = rule("ignore ledger::*::po?t");
        assert!(rule.matches(Some("ledger::book::post"), None));
        assert!(!rule.matches(Some("ledger::book::post2"), None));
        assert!(!rule.matches(Some("my::ledger::book::post"), None));
        assert!(!rule.matches(None, Some("ledger::book::post")));
    }

    #[test]
    fn regular_expressions_match_parts_of_names() {
        let rule = rule("ignore-up-to /^ledger::(post|settle)$/");
        assert!(rule.matches(Some("ledger::post"), None));
        assert!(!rule.matches(Some("ledger::posting"), None));
        assert!(
            super::Rule::new("ignore", "/settle/")
                .unwrap()
                .matches(Some("a::settle"), None)
        );
    }

    #[test]
    fn modules_match_by_path_or_file_name() {
        let rule = rule("ignore module:libcrypto.so*");
        assert!(rule.matches(None, Some("/usr/lib/libcrypto.so.3")));
        assert!(!rule.matches(Some("libcrypto.so.3"), Some("/srv/ledger")));
    }

    #[test]
    fn name_of_a_group_is_after_the_last_as() {
        let rule = rule("group-by <ledger::A as ledger::B>::run as Settlement of accounts");
        assert_eq!(rule.pattern(), "<ledger::A as ledger::B>::run");
        let name = Some("Settlement of accounts".to_owned());
        assert_eq!(rule.action(), &RuleAction::GroupBy { name });
        let plain: super::Rule = "group-by <ledger::A as ledger::B>::run".parse().unwrap();
        assert_eq!(plain.action(), &RuleAction::GroupBy { name: None });
        assert!(plain.matches(Some("<ledger::A as ledger::B>::run"), None));
    }

    #[test]
    fn rule_is_printed_as_it_was_written() {
        for line in [
            "ignore a::*",
            "group-by /x/ as Y",
            "ignore-up-to module:libm.so.6",
        ] {
            assert_eq!(rule(line).to_string(), line);
        }
    }

    #[test]
    fn wrong_rules_are_refused_with_a_reason() {
        for (line, message) in [
            (
                "",
                "a rule begins with `group-by`, `ignore` or `ignore-up-to`, not with ``",
            ),
            (
                "drop x",
                "a rule begins with `group-by`, `ignore` or `ignore-up-to`, not with `drop`",
            ),
            (
                "ignore",
                "the rule has no pattern: write `ignore PATTERN`, such as `ignore ledger::*`",
            ),
            ("ignore *", "the pattern `*` matches every function"),
            ("ignore /.*/", "the pattern `/.*/` matches every function"),
            ("ignore /./", "the pattern `/./` matches every function"),
            (
                "ignore /(a/",
                "the regular expression cannot be read: unclosed group",
            ),
            ("ignore x as Y", "`as NAME` is for `group-by` only"),
            (
                "ignore /(x{1000}){1000}/",
                "the pattern is too large: use fewer or smaller repetitions",
            ),
            (
                "ignore a\u{7}b",
                "the pattern has control characters, which no name has",
            ),
            (
                "group-by x as \u{1b}[2J",
                "the name of the group has 1 to 120 bytes and no control characters",
            ),
        ] {
            assert_eq!(line.parse::<Rule>().unwrap_err().to_string(), message, "{line}");
        }
        let long = format!("ignore {}", "x".repeat(501));
        assert_eq!(long.parse::<Rule>().unwrap_err(), InvalidRule::TooLong);
    }

    #[test]
    fn pattern_of_a_frame_matches_it() {
        let frame = |function: Option<&str>, module: &str| Frame {
            function: function.map(str::to_owned),
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        for (function, module, expected) in [
            (
                Some("main.(*Server).handle.func2"),
                "/srv/x",
                Some("main.(*Server).handle.func"),
            ),
            (
                Some("<ledger::A as ledger::B>::run::h0123456789abcdef"),
                "/srv/x",
                Some("<ledger::A as ledger::B>::run"),
            ),
            (
                Some("int ns::Map<int>::at(int) const"),
                "",
                Some("ns::Map<T>::at"),
            ),
            (None, "/usr/lib/libvendor.so.3", Some("module:libvendor.so.3")),
            (Some("*"), "", None),
            (None, "", None),
        ] {
            let found = pattern_of(&frame(function, module));
            assert_eq!(found.as_deref(), expected, "{function:?}");
        }
    }

    #[test]
    fn wrong_line_of_a_list_is_named() {
        let rules = RuleSet::parse("# ours\n\nignore a\n  group-by b as B\n").unwrap();
        assert_eq!(rules.rules().len(), 2);
        let (line, _) = RuleSet::parse("ignore a\nnonsense\n").unwrap_err();
        assert_eq!(line, 2);
        let many = "ignore a\n".repeat(MAX_RULES + 1);
        assert_eq!(
            RuleSet::parse(&many).unwrap_err(),
            (MAX_RULES + 1, InvalidRule::TooMany)
        );
    }

    #[test]
    fn hostile_patterns_take_bounded_time() {
        let started = std::time::Instant::now();
        let name = "a".repeat(200);
        for pattern in ["/(a*)*b/", "/(a|aa)+$x/", "/(a?){50}a{50}z/", "*a*a*a*a*a*a*a*b"] {
            if let Ok(rule) = Rule::new("ignore", pattern) {
                for _ in 0..1000 {
                    assert!(!rule.matches(Some(&name), None));
                }
            }
        }
        assert!(started.elapsed().as_secs() < 20);
    }
}
