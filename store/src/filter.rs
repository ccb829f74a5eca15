//! The filter of a query: conditions on columns and labels, and segments that cannot match.

use crate::frame_set::StackFilter;
use crate::origin_notes::{Names, OriginNotes};
use crate::schema::SampleColumn;
use crate::segment::SegmentEntry;
use backtrail_profile::UnixNanos;
use backtrail_pt::BuildId;
use regex::Regex;
use std::collections::BTreeSet;
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
    /// Conditions on the frames of stacks.
    pub stacks: StackFilter,
}

impl Filter {
    /// Returns the filter of all samples of a time.
    #[must_use]
    pub fn of_time(time: Range<UnixNanos>) -> Self {
        Self {
            time,
            matchers: Vec::new(),
            module: None,
            stacks: StackFilter::default(),
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

    /// Returns the notes of a segment that may be about samples of the filter.
    pub(crate) fn notes(&self, entry: &SegmentEntry) -> BTreeSet<String> {
        let mut all = OriginNotes::default();
        let others = entry.add_notes(&mut all);
        let selected = all.iter().filter(|(_, about)| {
            self.may_have(&Column::Service, &about.services) && self.may_have(&Column::Host, &about.hosts)
        });
        // A note of an unknown service is not about a selected one.
        let selects_service = self.matchers.iter().any(|one| one.column == Column::Service);
        let others = others.iter().filter(|_| !selects_service).cloned();
        selected.map(|(text, _)| text.to_owned()).chain(others).collect()
    }

    /// Returns whether one of some names of a column may be selected.
    fn may_have(&self, column: &Column, names: &Names) -> bool {
        let holds = |matcher: &Matcher| {
            let names = names.as_ref();
            names.is_none_or(|names| names.iter().any(|name| matcher.condition.holds(name)))
        };
        let mut matchers = self.matchers.iter().filter(|matcher| matcher.column == *column);
        matchers.all(holds)
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

    /// Returns a segment as an earlier version described it.
    fn earlier(services: &[&str]) -> SegmentEntry {
        let file = serde_json::json!({"rows": 1, "bytes": 1, "footer_crc": 0});
        let entry = serde_json::json!({
            "id": "0".repeat(32), "hour": 498_873, "level": 0, "first": 5, "last": 9,
            "samples": file, "stacks": file, "frames": file, "contexts": file,
            "services": services, "hosts": ["a"], "build_ids": "", "notes": ["damaged"],
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn earlier_notes_are_those_of_the_only_service() {
        let all = Filter::of_time(UnixNanos(0)..UnixNanos(9));
        let of = |service| all.clone().with(Matcher::equals(Column::Service, service));
        let (one, two) = (earlier(&["fuzz"]), earlier(&["fuzz", "shop"]));
        for (filter, entry, expected) in [
            (&all, &one, 1),
            (&all, &two, 1),
            (&of("fuzz"), &one, 1),
            (&of("fuzz"), &two, 0),
            (&of("shop"), &two, 0),
        ] {
            assert_eq!(filter.notes(entry).len(), expected, "{filter:?}");
        }
        let of_host = |host| all.clone().with(Matcher::equals(Column::Host, host));
        assert_eq!(of_host("a").notes(&one).len(), 1);
        assert_eq!(of_host("b").notes(&one).len(), 0);
    }
}
