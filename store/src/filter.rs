//! The filter of a query: conditions on columns and labels, and segments that cannot match.

use crate::schema::SampleColumn;
use crate::segment::SegmentEntry;
use backtrail_profile::UnixNanos;
use backtrail_pt::BuildId;
use regex::Regex;
use std::ops::Range;

/// A column that queries filter and group by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    /// The event's name.
    Event,
    /// The unit of the weights.
    Unit,
    /// The event's period.
    Period,
    /// The process id.
    Pid,
    /// The name of the process.
    Process,
    /// The thread id.
    Tid,
    /// The name of the thread.
    Thread,
    /// The processor.
    Cpu,
    /// A label by its key.
    Label(String),
}

impl Column {
    /// Returns the column of the table `samples`, or that of the context for a label.
    pub(crate) fn sample_column(&self) -> SampleColumn {
        match self {
            Self::Service => SampleColumn::Service,
            Self::Host => SampleColumn::Host,
            Self::Build => SampleColumn::Build,
            Self::Region => SampleColumn::Region,
            Self::Language => SampleColumn::Language,
            Self::Event => SampleColumn::Event,
            Self::Unit => SampleColumn::Unit,
            Self::Period => SampleColumn::Period,
            Self::Pid => SampleColumn::Pid,
            Self::Process => SampleColumn::Process,
            Self::Tid => SampleColumn::Tid,
            Self::Thread => SampleColumn::Thread,
            Self::Cpu => SampleColumn::Cpu,
            Self::Label(_) => SampleColumn::Context,
        }
    }

    /// Returns the name, which is that of the table's column or the label's key.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Label(key) => key,
            other => other.sample_column().name(),
        }
    }
}

/// A condition on a text. Numbers are texts in decimal. An absent value is the empty text.
#[derive(Clone, Debug)]
pub enum Condition {
    /// The text is one of these.
    In(Vec<String>),
    /// The text is none of these.
    NotIn(Vec<String>),
    /// The pattern is found in the text.
    Matches(Regex),
    /// The pattern is not found in the text.
    NotMatches(Regex),
}

impl Condition {
    /// Returns whether a text fulfills the condition.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        match self {
            Self::In(texts) => texts.iter().any(|one| one == text),
            Self::NotIn(texts) => texts.iter().all(|one| one != text),
            Self::Matches(pattern) => pattern.is_match(text),
            Self::NotMatches(pattern) => !pattern.is_match(text),
        }
    }
}

/// A condition on a column.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// The column.
    pub column: Column,
    /// The condition.
    pub condition: Condition,
}

impl Matcher {
    /// Returns the condition that a column is a text.
    #[must_use]
    pub fn equals(column: Column, text: &str) -> Self {
        Self {
            column,
            condition: Condition::In(vec![text.to_owned()]),
        }
    }
}

/// The samples of a query. All conditions must hold.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The time.
    pub time: Range<UnixNanos>,
    /// Conditions on columns.
    pub matchers: Vec<Matcher>,
    /// A module that a stack must have a frame of.
    pub module: Option<BuildId>,
}

impl Filter {
    /// Returns the filter of all samples of a time.
    #[must_use]
    pub fn of_time(time: Range<UnixNanos>) -> Self {
        Self {
            time,
            matchers: Vec::new(),
            module: None,
        }
    }

    /// Returns the filter with one more condition.
    #[must_use]
    pub fn with(mut self, matcher: Matcher) -> Self {
        self.matchers.push(matcher);
        self
    }

    /// Returns whether a segment may have a sample of the filter. `false` is certain.
    pub(crate) fn may_match(&self, entry: &SegmentEntry) -> bool {
        let in_time = entry.first < self.time.end.0 && self.time.start.0 <= entry.last;
        let has_module = self
            .module
            .as_ref()
            .is_none_or(|module| entry.build_ids.may_contain(module));
        let may_hold = |matcher: &Matcher| {
            let names = match matcher.column {
                Column::Service => &entry.services,
                Column::Host => &entry.hosts,
                Column::Event => &entry.events,
                _ => &None,
            };
            let names = names.as_ref();
            names.is_none_or(|names| names.iter().any(|name| matcher.condition.holds(name)))
        };
        in_time && has_module && self.matchers.iter().all(may_hold)
    }

    /// Returns the services of which a segment must have one, if the filter names them.
    pub(crate) fn services(&self) -> Option<Vec<String>> {
        self.matchers
            .iter()
            .find_map(|matcher| match (&matcher.column, &matcher.condition) {
                (Column::Service, Condition::In(services)) => Some(services.clone()),
                _ => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_hold_for_their_texts() {
        let texts = vec!["a".to_owned(), "b".to_owned()];
        let pattern = Regex::new("^wor").unwrap();
        for (condition, text, expected) in [
            (Condition::In(texts.clone()), "a", true),
            (Condition::In(texts.clone()), "", false),
            (Condition::NotIn(texts.clone()), "a", false),
            (Condition::NotIn(texts), "", true),
            (Condition::Matches(pattern.clone()), "worker", true),
            (Condition::Matches(pattern.clone()), "network", false),
            (Condition::NotMatches(pattern), "network", true),
        ] {
            assert_eq!(condition.holds(text), expected, "{condition:?} {text}");
        }
    }
}
