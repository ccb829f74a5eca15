//! Selection of samples by event, time, thread and labels.

use crate::profile::Profile;
use crate::sample::{EventId, LabelValue, Sample, UnixNanos};
use regex::Regex;
use std::ops::Range;

/// Conditions on a sample. All of them must hold. The default has none.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The event type.
    pub event: Option<EventId>,
    /// The time. Samples without a time do not match.
    pub time: Option<Range<UnixNanos>>,
    /// A pattern in the name of the thread or of its process, or equal to one of their ids.
    pub thread: Option<Regex>,
    /// A pattern in the values of each of these labels.
    pub labels: Vec<(String, Regex)>,
}

impl Filter {
    /// Returns whether a sample of a profile fulfills the conditions.
    #[must_use]
    pub fn matches(&self, profile: &Profile, sample: &Sample) -> bool {
        self.event.is_none_or(|event| event == sample.event)
            && self
                .time
                .as_ref()
                .is_none_or(|range| sample.time.is_some_and(|time| range.contains(&time)))
            && self
                .thread
                .as_ref()
                .is_none_or(|pattern| is_thread(profile, sample, pattern))
            && self
                .labels
                .iter()
                .all(|(key, pattern)| has_label(profile, sample, key, pattern))
    }
}

fn is_thread(profile: &Profile, sample: &Sample, pattern: &Regex) -> bool {
    let thread = sample.thread.and_then(|thread| profile.threads.get(thread));
    thread.is_some_and(|thread| {
        pattern.is_match(profile.text(thread.name))
            || pattern.is_match(profile.text(thread.process_name))
            || pattern.as_str() == thread.tid.to_string()
            || pattern.as_str() == thread.pid.to_string()
    })
}

fn has_label(profile: &Profile, sample: &Sample, key: &str, pattern: &Regex) -> bool {
    let mut labels = profile.labels(sample.labels).iter();
    labels.any(|label| {
        profile.text(label.key) == key
            && match label.value {
                LabelValue::Text(value) => pattern.is_match(profile.text(value)),
                LabelValue::Number(value, _) => pattern.is_match(&value.to_string()),
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Label, Thread};
    use crate::stacks::StackId;
    use backtrail_pt::{Pid, Tid};

    #[test]
    fn all_conditions_must_hold() {
        let mut profile = Profile::default();
        let event = profile.event("cpu", "count", 1).unwrap();
        let [process_name, name, key, value] =
            ["redis", "io_thread", "route", "/pay"].map(|text| profile.string(text).unwrap());
        let thread = Thread {
            pid: Pid(40),
            tid: Tid(41),
            process_name,
            name,
        };
        let thread = profile.threads.intern(thread).unwrap();
        let label = Label {
            key,
            value: LabelValue::Text(value),
        };
        let labels = profile.label_set(vec![label]).unwrap();
        profile.add(event, 1, StackId::EMPTY).unwrap();
        let sample = Sample {
            time: Some(UnixNanos(50)),
            thread: Some(thread),
            labels,
            ..profile.samples[0]
        };
        let pattern = |text| Regex::new(text).unwrap();
        let matching = Filter {
            event: Some(event),
            time: Some(UnixNanos(50)..UnixNanos(51)),
            thread: Some(pattern("^io_")),
            labels: vec![("route".into(), pattern("pay"))],
        };
        assert!(matching.matches(&profile, &sample));
        assert!(!matching.matches(&profile, &profile.samples[0]));
        let other = |change: fn(&mut Filter)| {
            let mut filter = matching.clone();
            change(&mut filter);
            filter.matches(&profile, &sample)
        };
        assert!(!other(|filter| filter.time = Some(UnixNanos(51)..UnixNanos(60))));
        assert!(!other(|filter| filter.labels[0].0 = "host".into()));
        assert!(other(|filter| filter.thread = Regex::new("41").ok()));
        assert!(!other(|filter| filter.thread = Regex::new("^worker").ok()));
    }
}
