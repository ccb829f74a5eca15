//! The decision on a run: its events, and the state of its job afterward.

use super::threshold::Threshold;
use crate::notify::job_message::JobEvent;

/// The state of a job that its runs change. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobState {
    /// The time since which the threshold is crossed.
    pub alerting: Option<i64>,
    /// The time since which runs fail.
    pub failing: Option<i64>,
}

/// The facts of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunFacts<'a> {
    /// The run failed.
    Failed,
    /// The run has a result.
    Done {
        /// The watched number. `None`: the result has none.
        value: Option<f64>,
        /// The threshold.
        threshold: Option<&'a Threshold>,
    },
}

/// Returns the state after a run that ended at a time, and its events. A failure, a crossing and
/// a recovery is an event once. A result without the number changes nothing.
#[must_use]
pub fn decide(state: JobState, facts: &RunFacts<'_>, now: i64) -> (JobState, Vec<JobEvent>) {
    let mut events = Vec::new();
    let (value, threshold) = match *facts {
        RunFacts::Failed => {
            if state.failing.is_none() {
                events.push(JobEvent::Failed);
            }
            let failing = state.failing.or(Some(now));
            return (JobState { failing, ..state }, events);
        }
        RunFacts::Done { value, threshold } => (value, threshold),
    };
    let alerting = match (threshold, value, state.alerting) {
        (None, ..) => None,
        (Some(_), None, since) => since,
        (Some(threshold), Some(value), since) => match (threshold.is_crossed(value), since) {
            (true, None) => {
                events.push(JobEvent::Alert);
                Some(now)
            }
            (false, Some(_)) => {
                events.push(JobEvent::Recovered);
                None
            }
            (_, since) => since,
        },
    };
    let state = JobState {
        alerting,
        failing: None,
    };
    (state, events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_jobs::threshold::Comparison;

    /// Runs a sequence of results, and returns the events of each.
    fn events(results: &[Option<f64>], is_failed: impl Fn(usize) -> bool) -> Vec<Vec<JobEvent>> {
        let threshold = Threshold {
            column: "v".to_owned(),
            comparison: Comparison::Above,
            value: 10.0,
        };
        let mut state = JobState::default();
        let run = |(at, value): (usize, &Option<f64>)| {
            let facts = match is_failed(at) {
                true => RunFacts::Failed,
                false => RunFacts::Done {
                    value: *value,
                    threshold: Some(&threshold),
                },
            };
            let (next, events) = decide(state, &facts, at as i64);
            state = next;
            events
        };
        results.iter().enumerate().map(run).collect()
    }

    #[test]
    fn crossing_is_an_event_once_until_it_recovers() {
        let results = [
            Some(1.0),
            Some(11.0),
            Some(12.0),
            None,
            Some(9.0),
            Some(9.0),
            Some(11.0),
        ];
        let found = events(&results, |_| false);
        let expected = [
            vec![],
            vec![JobEvent::Alert],
            vec![],
            vec![],
            vec![JobEvent::Recovered],
            vec![],
            vec![JobEvent::Alert],
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn failure_is_an_event_once_and_keeps_the_alert() {
        let results = [Some(11.0), None, None, Some(11.0), None, Some(1.0)];
        let found = events(&results, |at| matches!(at, 1 | 2 | 4));
        let expected = [
            vec![JobEvent::Alert],
            vec![JobEvent::Failed],
            vec![],
            vec![],
            vec![JobEvent::Failed],
            vec![JobEvent::Recovered],
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn job_without_threshold_has_no_alert() {
        let state = JobState {
            alerting: Some(1),
            failing: Some(1),
        };
        let facts = RunFacts::Done {
            value: Some(1.0),
            threshold: None,
        };
        assert_eq!(decide(state, &facts, 2), (JobState::default(), vec![]));
    }
}
