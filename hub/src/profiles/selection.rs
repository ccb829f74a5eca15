//! The selection of samples that a page or a program asks for, read from the query of an address.

use super::sites::scope::SiteScope;
use crate::clock;
use crate::error::{Error, Result};
use backtrail_profile::Rules;
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The range of times unless one is chosen.
const DEFAULT_RANGE: &str = "1h";
/// The event that is shown first if nothing chooses one.
pub const FIRST_EVENT: &str = "cpu";
/// The longest text of a parameter in bytes.
const MAX_TEXT: usize = 4096;
/// The most memory of a compiled expression in bytes.
pub(super) const MAX_EXPRESSION: usize = 1 << 20;
/// Functions in which threads wait for work.
pub(super) const IDLE: &str = "^(_{0,2}(sched_|x64_sys_)?(epoll_p?wait2?|poll|ppoll|select|pselect6?|futex|nanosleep|\
    clock_nanosleep|accept4?|pause|io_getevents|rt_sigtimedwait)|do_(epoll_wait|poll|futex|idle)|\
    cpu_idle|default_idle|pv_native_safe_halt|mwait_idle|intel_idle|acpi_idle.*|poll_idle|\
    pthread_cond_(timed)?wait.*|sem_(timed)?wait.*|runtime\\.(gopark|park_m|findRunnable|futexsleep|notetsleepg?)|\
    std::thread::(park|sleep).*|jdk\\.internal\\.misc\\.Unsafe\\.park|java\\.lang\\.Object\\.wait.*)$";

/// The parameters of a selection. An empty text selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectionParameters {
    /// The start: a time as `2026-11-29T09:30`, or a length before the end as `15m` or `7d`.
    pub from: String,
    /// The end: a time. Empty: now.
    pub until: String,
    /// The service.
    pub service: String,
    /// The host.
    pub host: String,
    /// The build.
    pub build: String,
    /// The region.
    pub region: String,
    /// The language.
    pub language: String,
    /// The event, as `cpu`.
    pub event: String,
    /// The name of the thread.
    pub thread: String,
    /// Labels, as [`labels`] reads them.
    pub labels: String,
    /// An expression. Only stacks with a matching function are shown.
    pub focus: String,
    /// An expression. Stacks with a matching function are left out.
    pub ignore: String,
    /// An expression. Matching functions are removed from stacks.
    pub hide: String,
    /// An expression. Callers of the outermost matching function are removed.
    pub show_from: String,
    /// `hide`: stacks of threads that wait for work are left out.
    pub idle: String,
    /// Other sites that are asked too: `all`, or names separated by commas.
    pub sites: String,
}

/// A selection that was checked.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The times in nanoseconds since 1970.
    pub times: Range<u64>,
    /// Columns with the value that they must have.
    pub columns: Vec<(Column, String)>,
    /// Labels with the value that they must have.
    pub labels: Vec<(String, String)>,
    /// The rules on stacks.
    pub rules: Rules,
    /// Other sites that are asked too.
    pub sites: SiteScope,
}

/// A column that a selection may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    /// The service.
    Service,
    /// The host.
    Host,
    /// The build.
    Build,
    /// The region.
    Region,
    /// The language.
    Language,
    /// The event.
    Event,
    /// The name of the thread.
    Thread,
}

impl Column {
    /// All columns, in the order of the form.
    pub const ALL: [Self; 7] = [
        Self::Service,
        Self::Event,
        Self::Host,
        Self::Build,
        Self::Region,
        Self::Language,
        Self::Thread,
    ];

    /// Returns the name in addresses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Host => "host",
            Self::Build => "build",
            Self::Region => "region",
            Self::Language => "language",
            Self::Event => "event",
            Self::Thread => "thread",
        }
    }

    /// Returns the column of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }
}

impl SelectionParameters {
    /// The names of all parameters.
    pub const NAMES: [&'static str; 16] = [
        "from",
        "until",
        "service",
        "host",
        "build",
        "region",
        "language",
        "event",
        "thread",
        "labels",
        "focus",
        "ignore",
        "hide",
        "show_from",
        "idle",
        "sites",
    ];

    /// Returns the value of a column.
    #[must_use]
    pub fn column(&self, column: Column) -> &str {
        match column {
            Column::Service => &self.service,
            Column::Host => &self.host,
            Column::Build => &self.build,
            Column::Region => &self.region,
            Column::Language => &self.language,
            Column::Event => &self.event,
            Column::Thread => &self.thread,
        }
    }

    /// Returns all parameters that select something, by name.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, &str)> {
        let others = [
            ("from", &self.from),
            ("until", &self.until),
            ("labels", &self.labels),
            ("focus", &self.focus),
            ("ignore", &self.ignore),
            ("hide", &self.hide),
            ("show_from", &self.show_from),
            ("idle", &self.idle),
            ("sites", &self.sites),
        ];
        let columns = Column::ALL.map(|column| (column.name(), self.column(column)));
        let others = others.map(|(name, value)| (name, value.as_str()));
        columns
            .into_iter()
            .chain(others)
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Fails if a time, an expression or a label is malformed, or a text is too long.
    pub fn selection(&self) -> Result<Selection> {
        self.selection_at(clock::now())
    }

    /// Checks the parameters at a time in microseconds since 1970.
    ///
    /// # Errors
    /// As [`Self::selection`].
    pub fn selection_at(&self, now: i64) -> Result<Selection> {
        if let Some((name, _)) = self.pairs().iter().find(|(_, value)| value.len() > MAX_TEXT) {
            return Err(Error::TooLarge(format!("{name} is longer than {MAX_TEXT} bytes")));
        }
        let columns = Column::ALL
            .into_iter()
            .map(|column| (column, self.column(column).to_owned()))
            .filter(|(_, value)| !value.is_empty());
        Ok(Selection {
            times: times(&self.from, &self.until, now)?,
            columns: columns.collect(),
            labels: labels(&self.labels)?,
            rules: self.rules()?,
            sites: SiteScope::read(&self.sites)?,
        })
    }

    fn rules(&self) -> Result<Rules> {
        let ignore = match (self.idle.as_str(), self.ignore.as_str()) {
            ("hide", "") => IDLE.to_owned(),
            ("hide", ignore) => format!("(?:{IDLE})|(?:{ignore})"),
            ("" | "show", ignore) => ignore.to_owned(),
            (other, _) => {
                return Err(Error::Invalid(format!("idle is hide or show, not \"{other}\"")));
            }
        };
        // A wrong expression must not hide in the larger one.
        expression("ignore", &self.ignore)?;
        Ok(Rules {
            focus: expression("focus", &self.focus)?,
            ignore: expression("ignore", &ignore)?,
            show_from: expression("show_from", &self.show_from)?,
            hide: expression("hide", &self.hide)?,
            collapse: Vec::new(),
        })
    }
}

fn expression(name: &str, text: &str) -> Result<Option<Regex>> {
    if text.is_empty() {
        return Ok(None);
    }
    let compiled = RegexBuilder::new(text).size_limit(MAX_EXPRESSION).build();
    compiled.map(Some).map_err(|error| {
        let error = error.to_string();
        // The last line has the reason, the others show the place.
        let reason = error.lines().last().unwrap_or_default().trim();
        let reason = reason.strip_prefix("error: ").unwrap_or(reason);
        Error::Invalid(format!("{name} is no regular expression: {reason}"))
    })
}

/// Reads labels: `key=value`, separated by commas. `\,` is a comma of a label, and `\\` a
/// backslash.
///
/// # Errors
/// Fails if one has no key or no value, or another comparison.
pub fn labels(text: &str) -> Result<Vec<(String, String)>> {
    let pairs = separated(text).into_iter();
    let read = pairs.map(|pair| {
        let invalid =
            |reason: &str| Error::Invalid(format!("the label \"{pair}\" {reason}; write key=value"));
        let (key, value) = pair.split_once('=').ok_or_else(|| invalid("has no value"))?;
        match key.trim() {
            "" => Err(invalid("has no key")),
            key if key.ends_with('!') => Err(invalid("is no equality, the only comparison")),
            key => Ok((key.to_owned(), value.trim().to_owned())),
        }
    });
    read.collect()
}

/// Returns the parts of a text between commas that no backslash precedes, without empty ones.
fn separated(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let letter = match (letter, letters.peek()) {
            (',', _) => {
                parts.push(String::new());
                continue;
            }
            ('\\', Some(',' | '\\')) => letters.next().unwrap_or(letter),
            _ => letter,
        };
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    let parts = parts.into_iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

/// Returns the text of labels, as [`labels`] reads it.
#[must_use]
pub fn text_of_labels(labels: &[(String, String)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let pairs = labels
        .iter()
        .map(|(key, value)| format!("{}={}", escaped(key), escaped(value)));
    pairs.collect::<Vec<_>>().join(",")
}

/// Returns a range of times in nanoseconds since 1970.
fn times(from: &str, until: &str, now: i64) -> Result<Range<u64>> {
    let now = u64::try_from(now).unwrap_or(0).saturating_mul(1000);
    let end = match until {
        "" | "now" => now,
        until => time(until)
            .or_else(|| Some(now.saturating_sub(length(until)?)))
            .ok_or_else(|| malformed("until", until))?,
    };
    let from = if from.is_empty() { DEFAULT_RANGE } else { from };
    let start = match time(from) {
        Some(start) => start,
        None => end.saturating_sub(length(from).ok_or_else(|| malformed("from", from))?),
    };
    if start >= end {
        return Err(Error::Invalid(
            "the range of times is empty: from is not before until".to_owned(),
        ));
    }
    Ok(start..end)
}

/// Returns a length in nanoseconds.
fn length(text: &str) -> Option<u64> {
    let length = text.strip_prefix('-').unwrap_or(text);
    humantime::parse_duration(length).ok().map(nanoseconds)
}

fn malformed(name: &str, text: &str) -> Error {
    let text: String = text.chars().take(64).collect();
    Error::Invalid(format!(
        "{name} is no time: \"{text}\"; write 2026-11-29T09:30 in UTC, or a length such as 15m or 7d"
    ))
}

/// Returns a time in nanoseconds since 1970.
fn time(text: &str) -> Option<u64> {
    // Inputs of browsers leave out the seconds.
    let with_seconds = match text.len() {
        10 => format!("{text}T00:00:00"),
        16 => format!("{text}:00"),
        _ => text.to_owned(),
    };
    let time = humantime::parse_rfc3339_weak(&with_seconds).ok()?;
    Some(nanoseconds(
        time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO),
    ))
}

fn nanoseconds(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a time as addresses have it, in UTC and to the microsecond.
#[must_use]
pub fn time_text(nanoseconds: u64) -> String {
    let time: SystemTime = UNIX_EPOCH + Duration::from_micros(nanoseconds / 1000);
    let text = humantime::format_rfc3339_micros(time).to_string();
    let text = text.trim_end_matches('Z').trim_end_matches('0');
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-29T09:30:00Z in microseconds.
    const NOW: i64 = 1_795_944_600_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn range(from: &str, until: &str) -> Result<Range<u64>> {
        times(from, until, NOW)
    }

    #[test]
    fn ranges_are_times_or_lengths() {
        let now = 1_795_944_600 * SECOND;
        assert_eq!(range("", "").unwrap(), now - 3600 * SECOND..now);
        assert_eq!(range("15m", "now").unwrap(), now - 900 * SECOND..now);
        assert_eq!(range("-7d", "").unwrap(), now - 7 * 86_400 * SECOND..now);
        assert_eq!(
            range("15m", "5m").unwrap(),
            now - 1200 * SECOND..now - 300 * SECOND
        );
        assert_eq!(range("2026-11-29T09:29", "").unwrap(), now - 60 * SECOND..now);
        assert_eq!(
            range("2026-11-28", "2026-11-29 09:30:00").unwrap(),
            now - (86_400 + 9 * 3600 + 1800) * SECOND..now
        );
        assert_eq!(time_text(now), "2026-11-29T09:30:00");
        let part = time_text(now + 20_000_000);
        assert_eq!(part, "2026-11-29T09:30:00.02");
        assert_eq!(
            range(&part, "2026-11-29T09:30:00.0402").unwrap(),
            now + 20_000_000..now + 40_200_000
        );
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for (from, until) in [("soon", ""), ("1h", "2026-13-01"), ("1 parsec", "")] {
            let error = range(from, until).unwrap_err().to_string();
            assert!(error.contains("is no time"), "{error}");
        }
        let error = range("2026-11-30", "").unwrap_err().to_string();
        assert!(error.starts_with("the range of times is empty"), "{error}");
    }

    #[test]
    fn parameters_become_a_selection() {
        let parameters = SelectionParameters {
            service: "shop".to_owned(),
            event: "cpu".to_owned(),
            labels: "route=/cart, user=7".to_owned(),
            focus: "^handle".to_owned(),
            ..SelectionParameters::default()
        };
        let selection = parameters.selection_at(NOW).unwrap();
        let columns: Vec<_> = selection
            .columns
            .iter()
            .map(|(column, value)| (column.name(), value.as_str()))
            .collect();
        assert_eq!(columns, [("service", "shop"), ("event", "cpu")]);
        assert_eq!(selection.labels[1], ("user".to_owned(), "7".to_owned()));
        assert!(selection.rules.focus.is_some());
        assert_eq!(parameters.pairs().len(), 4);
    }

    #[test]
    fn wrong_expressions_and_labels_are_named() {
        let refused = |change: fn(&mut SelectionParameters)| {
            let mut parameters = SelectionParameters::default();
            change(&mut parameters);
            parameters.selection_at(NOW).unwrap_err().to_string()
        };
        assert_eq!(
            refused(|parameters| parameters.focus = "(".to_owned()),
            "focus is no regular expression: unclosed group"
        );
        assert!(
            refused(|parameters| {
                parameters.ignore = ")(".to_owned();
                parameters.idle = "hide".to_owned();
            })
            .starts_with("ignore is no regular expression")
        );
        assert!(
            refused(|parameters| parameters.hide = "a{1000}{1000}".to_owned())
                .starts_with("hide is no regular expression")
        );
        assert_eq!(
            refused(|parameters| parameters.labels = "a".to_owned()),
            "the label \"a\" has no value; write key=value"
        );
        assert_eq!(
            refused(|parameters| parameters.labels = "k!=plain".to_owned()),
            "the label \"k!=plain\" is no equality, the only comparison; write key=value"
        );
        assert_eq!(
            refused(|parameters| parameters.labels = "=".to_owned()),
            "the label \"=\" has no key; write key=value"
        );
    }

    #[test]
    fn labels_with_commas_are_written_with_a_backslash() {
        let owned = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let all = [owned("a", "x,y"), owned("b", r"C:\new\,"), owned("c", "1=2")];
        let text = text_of_labels(&all);
        assert_eq!(text, r"a=x\,y,b=C:\\new\\\,,c=1=2");
        assert_eq!(labels(&text).unwrap(), all);
        // A backslash before another letter is itself.
        assert_eq!(
            labels(r"a=C:\new, ,b=").unwrap(),
            [owned("a", r"C:\new"), owned("b", "")]
        );
    }

    #[test]
    fn idle_stacks_are_those_that_wait() {
        let parameters = SelectionParameters {
            idle: "hide".to_owned(),
            ..SelectionParameters::default()
        };
        let rules = parameters.selection_at(NOW).unwrap().rules;
        let idle = rules.ignore.unwrap();
        for name in [
            "epoll_wait",
            "__x64_sys_futex",
            "pv_native_safe_halt",
            "runtime.gopark",
        ] {
            assert!(idle.is_match(name), "{name}");
        }
        for name in ["main", "handle_poll_result", "futex_table_lookup"] {
            assert!(!idle.is_match(name), "{name}");
        }
    }
}
