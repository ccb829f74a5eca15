//! Samples of idle threads that are not stored, by the names of their functions.

use super::read_push::ReadPush;
use super::selection::{IDLE, MAX_EXPRESSION};
use crate::config::DropIdle;
use crate::error::{Error, Result};
use backtrail_profile::{Frame, FrameId, Id, Profile};
use backtrail_store::IdleCounts;
use regex::{RegexSet, RegexSetBuilder};

/// The rule of a hub.
#[derive(Clone, Debug)]
pub struct IdleRule {
    functions: RegexSet,
}

impl IdleRule {
    /// Returns the rule of a configuration. `None`: all samples are stored.
    ///
    /// # Errors
    /// Fails if an expression is malformed or too large.
    pub fn new(config: &DropIdle) -> Result<Option<Self>> {
        let expressions = match config {
            DropIdle::Listed(false) => return Ok(None),
            DropIdle::Listed(true) => vec![IDLE.to_owned()],
            DropIdle::Functions(expressions) if expressions.is_empty() => return Ok(None),
            DropIdle::Functions(expressions) => {
                let whole = expressions.iter().map(|text| format!("^(?:{text})$"));
                whole.collect()
            }
        };
        let built = RegexSetBuilder::new(expressions)
            .size_limit(MAX_EXPRESSION)
            .build();
        let functions = built.map_err(|error| {
            Error::Configuration(format!("`profiles.drop_idle` has a wrong expression: {error}"))
        })?;
        Ok(Some(Self { functions }))
    }

    /// Removes the samples with a function of the rule. Only names that came with the profile
    /// count. Returns the numbers of removed samples.
    pub(super) fn apply(&self, push: &mut ReadPush) -> IdleCounts {
        let mut counts = IdleCounts::default();
        let profile = &push.profile;
        let frames = profile.frames.iter();
        let is_idle: Vec<bool> = frames
            .map(|(id, frame)| self.is_idle(profile, id, *frame))
            .collect();
        if !is_idle.contains(&true) {
            return counts;
        }
        // A stack with an idle caller is idle too. Callers come first.
        let mut idle_stacks = vec![false; profile.stacks.len()];
        for (stack, caller, frame) in profile.stacks.iter() {
            let is_idle =
                idle_stacks.get(caller.index()) == Some(&true) || is_idle.get(frame.index()) == Some(&true);
            if let Some(place) = idle_stacks.get_mut(stack.index()) {
                *place = is_idle;
            }
        }
        let origins = &mut push.origins;
        let samples = push.profile.samples.iter();
        let keeps: Vec<bool> = samples
            .enumerate()
            .map(|(index, sample)| {
                let is_idle = idle_stacks.get(sample.stack.index()) == Some(&true);
                if is_idle {
                    let origin = origins.of_sample.get(index).map_or(0, |origin| *origin as usize);
                    let origin = origins.origins.get(origin);
                    counts.add(origin.map_or("", |origin| &origin.service), 1);
                }
                !is_idle
            })
            .collect();
        let mut kept = keeps.iter();
        push.profile.samples.retain(|_| kept.next() == Some(&true));
        let mut kept = keeps.iter();
        origins.of_sample.retain(|_| kept.next() == Some(&true));
        counts
    }

    fn is_idle(&self, profile: &Profile, id: FrameId, frame: Frame) -> bool {
        let matches = |function| {
            let function = profile.functions.get(function);
            function.is_some_and(|function| self.functions.is_match(profile.text(function.name)))
        };
        match frame {
            Frame::Function { function, .. } => matches(function),
            _ => profile.lines_of(id).iter().any(|line| matches(line.function)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::push::PushedProfile;
    use crate::profiles::read;
    use crate::profiles::sample_times::Arrival;
    use backtrail_store::Origin;

    fn push(folded: &str) -> ReadPush {
        let pushed = PushedProfile {
            bytes: folded.as_bytes().to_vec(),
            ..PushedProfile::default()
        };
        let origin = Origin {
            service: "shop".into(),
            ..Origin::default()
        };
        read::read(&pushed, &origin, Arrival::now(90)).unwrap()
    }

    #[test]
    fn idle_samples_are_removed_and_counted() {
        let rule = IdleRule::new(&DropIdle::Listed(true)).unwrap().unwrap();
        let mut push = push("main;work 5\nmain;run;epoll_wait 9\nmain;futex;do_futex 2\nmain;polling 3\n");
        let counts = rule.apply(&mut push);
        assert_eq!(counts.of(Some(&["shop".to_owned()])), 2);
        let weights: Vec<_> = push.profile.samples.iter().map(|sample| sample.weight).collect();
        assert_eq!(weights, [5, 3]);
        assert!(push.origins.of_sample.is_empty() || push.origins.of_sample.len() == 2);
    }

    #[test]
    fn own_expressions_match_whole_names() {
        let rule = IdleRule::new(&DropIdle::Functions(vec!["wait|park.*".to_owned()]));
        let rule = rule.unwrap().unwrap();
        let mut push = push("main;wait 5\nmain;wait_more 9\nmain;park_it 2\nmain;epoll_wait 3\n");
        assert_eq!(rule.apply(&mut push).of(None), 2);
        assert_eq!(push.profile.samples.len(), 2);
    }

    #[test]
    fn wrong_expressions_are_errors_of_the_configuration() {
        for wrong in ["(", "a{1000}{1000}"] {
            let rule = IdleRule::new(&DropIdle::Functions(vec![wrong.to_owned()]));
            let error = rule.unwrap_err().to_string();
            assert!(error.contains("drop_idle"), "{error}");
        }
        assert!(IdleRule::new(&DropIdle::Listed(false)).unwrap().is_none());
    }
}
