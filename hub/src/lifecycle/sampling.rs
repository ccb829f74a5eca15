//! The choice of the crashes whose bundles the hub keeps.
//!
//! A group keeps its first three bundles, one for each build, and a random sample of all its
//! crashes. The sample is a reservoir: of `n` reports, each is asked for with the chance `2/n`. The
//! chance depends on the report's identifier alone, so that all hubs decide alike, and a report
//! that is sent twice gets the same answer.
//!
//! The sample takes at most one bundle an hour, so that a storm of crashes sends few bundles.
//!
//! A bundle on its way counts as kept until its time is over.

use backtrail_report::{ReportId, WantReason};
use sha2::{Digest, Sha256};

/// The bundles that a group keeps first.
pub const FIRST: usize = 3;
/// The bundles of the random sample.
pub const RESERVOIR: usize = 2;
/// The least time between two bundles of the random sample, in microseconds.
pub const SAMPLE_EVERY: u64 = 3600 * 1_000_000;
/// The builds of which a group keeps a bundle.
pub const MAX_BUILDS: usize = 20;

/// A bundle that is stored, or on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSample {
    /// The report.
    pub report: ReportId,
    /// The build.
    pub build: String,
    /// The time of the report, in microseconds since 1970.
    pub time: u64,
    /// The reason for which it was asked for.
    pub reason: WantReason,
    /// Whether a user pinned it.
    pub is_pinned: bool,
    /// The time until which it counts as on its way. `None`: it is stored.
    pub expected_until: Option<u64>,
}

impl StoredSample {
    /// Returns whether the sample is stored, or still on its way.
    fn counts(&self, now: u64) -> bool {
        self.expected_until.is_none_or(|until| until > now)
    }
}

/// The facts of a report that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct SampleFacts<'a> {
    /// The report.
    pub report: &'a ReportId,
    /// Its build.
    pub build: &'a str,
    /// Whether the report has a stack.
    pub has_stack: bool,
    /// Whether a bundle with the same stack key was analyzed.
    pub is_known: bool,
    /// The number of reports of the group, with this one.
    pub reports: u64,
    /// The time, in microseconds since 1970.
    pub now: u64,
}

/// Returns whether the hub asks for the bundle of a report, and the reason.
///
/// `samples` are the bundles of the group.
#[must_use]
pub fn wants(facts: &SampleFacts<'_>, samples: &[StoredSample]) -> Option<WantReason> {
    let mut counted = samples.iter().filter(|sample| sample.counts(facts.now));
    if counted.clone().any(|sample| sample.report == *facts.report) {
        // The host asks again: the answer stays.
        return counted
            .find(|sample| sample.report == *facts.report && sample.expected_until.is_some())
            .map(|sample| sample.reason);
    }
    if counted.clone().count() < FIRST {
        return Some(match (facts.has_stack, facts.is_known) {
            (false, _) => WantReason::NoStack,
            (true, false) => WantReason::UnknownSignature,
            (true, true) => WantReason::FewSamples,
        });
    }
    if !facts.build.is_empty() && !counted.clone().any(|sample| sample.build == facts.build) {
        return Some(WantReason::NewBuild);
    }
    let mut sampled = counted.filter(|sample| sample.reason == WantReason::Sampled);
    let is_recent = |sample: &StoredSample| {
        sample.expected_until.is_some() || sample.time.saturating_add(SAMPLE_EVERY) > facts.now
    };
    if sampled.any(is_recent) {
        return None;
    }
    is_sampled(facts.report, facts.reports).then_some(WantReason::Sampled)
}

/// Returns whether the reservoir takes a report that is number `reports` of its group.
fn is_sampled(report: &ReportId, reports: u64) -> bool {
    // The hash is uniform below 2^32: it is below 2/n of that with the chance 2/n.
    let limit = ((RESERVOIR as u64) << 32) / reports.max(1);
    u64::from(rank(report)) < limit
}

/// Returns a number that depends on the report's identifier alone.
fn rank(report: &ReportId) -> u32 {
    let mut digest = Sha256::new();
    digest.update(b"sample ");
    digest.update(report.as_str());
    let bytes = digest.finalize();
    bytes
        .iter()
        .take(4)
        .fold(0, |rank, byte| rank << 8 | u32::from(*byte))
}

/// Returns the stored bundle that a new one replaces. The caller asks after the new one is stored.
///
/// The reservoir drops its oldest bundle, and the bundles of builds drop that of the oldest build.
/// Pinned and pushed bundles stay, and so do the group's first ones.
#[must_use]
pub fn to_drop<'a>(new: &StoredSample, samples: &'a [StoredSample]) -> Option<&'a ReportId> {
    let limit = match new.reason {
        WantReason::Sampled => RESERVOIR,
        WantReason::NewBuild => MAX_BUILDS,
        _ => return None,
    };
    let same: Vec<&StoredSample> = samples
        .iter()
        .filter(|sample| sample.expected_until.is_none())
        .filter(|sample| sample.reason == new.reason && sample.report != new.report)
        .collect();
    if same.len() < limit {
        return None;
    }
    let free = same.into_iter().filter(|sample| !sample.is_pinned);
    free.min_by_key(|sample| (sample.time, &sample.report))
        .map(|sample| &sample.report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ReportId {
        format!("{number:020}").parse().unwrap()
    }

    /// A group at the hub.
    #[derive(Default)]
    struct Group {
        samples: Vec<StoredSample>,
        reports: u64,
        asked: usize,
    }

    impl Group {
        /// Reports a crash. Its bundle arrives at once, or never.
        fn crash(&mut self, number: u64, build: &str, now: u64, arrives: bool) -> Option<WantReason> {
            self.reports += 1;
            let report = id(number);
            let facts = SampleFacts {
                report: &report,
                build,
                has_stack: true,
                is_known: self.samples.iter().any(|sample| sample.expected_until.is_none()),
                reports: self.reports,
                now,
            };
            let reason = wants(&facts, &self.samples)?;
            self.asked += 1;
            let new = StoredSample {
                report,
                build: build.to_owned(),
                time: now,
                reason,
                is_pinned: false,
                expected_until: (!arrives).then_some(now + 600),
            };
            let dropped = to_drop(&new, &self.samples).cloned();
            self.samples
                .retain(|sample| Some(&sample.report) != dropped.as_ref());
            self.samples.push(new);
            Some(reason)
        }
    }

    #[test]
    fn first_crashes_and_builds_are_wanted() {
        let mut group = Group::default();
        assert_eq!(group.crash(1, "1", 0, true), Some(WantReason::UnknownSignature));
        assert_eq!(group.crash(2, "1", 0, true), Some(WantReason::FewSamples));
        assert_eq!(group.crash(3, "1", 0, true), Some(WantReason::FewSamples));
        assert_eq!(group.crash(4, "2", 0, true), Some(WantReason::NewBuild));
    }

    #[test]
    fn crash_without_a_stack_is_wanted_within_the_first() {
        let report = id(1);
        let facts = SampleFacts {
            report: &report,
            build: "1",
            has_stack: false,
            is_known: false,
            reports: 1,
            now: 0,
        };
        assert_eq!(wants(&facts, &[]), Some(WantReason::NoStack));
    }

    #[test]
    fn ten_thousand_crashes_send_few_bundles() {
        let mut group = Group::default();
        for number in 0..10_000 {
            group.crash(number, "1", number * SAMPLE_EVERY, true);
        }
        // The expected number is 3 + 2 ln(10 000 / 3), about 19.
        assert!((8..35).contains(&group.asked), "{}", group.asked);
        assert_eq!(group.samples.len(), FIRST + RESERVOIR);
    }

    #[test]
    fn storm_of_crashes_samples_one_bundle_an_hour() {
        let mut group = Group::default();
        for number in 0..10_000 {
            group.crash(number, "1", number, true);
        }
        assert!((FIRST..=FIRST + 1).contains(&group.asked), "{}", group.asked);
    }

    #[test]
    fn reservoir_asks_with_the_expected_chance() {
        let count = (0..20_000).filter(|number| is_sampled(&id(*number), 100)).count();
        // 2 % of 20 000, within five standard deviations.
        assert!((300..500).contains(&count), "{count}");
    }

    #[test]
    fn bundles_on_their_way_count_until_they_expire() {
        let mut group = Group::default();
        for number in 0..3 {
            assert!(group.crash(number, "1", 0, false).is_some());
        }
        let report = id(77);
        let facts = |now: u64| SampleFacts {
            report: &report,
            build: "1",
            has_stack: true,
            is_known: false,
            reports: 1 << 40,
            now,
        };
        assert_eq!(wants(&facts(599), &group.samples), None);
        assert_eq!(
            wants(&facts(600), &group.samples),
            Some(WantReason::UnknownSignature)
        );
    }

    #[test]
    fn repeated_report_gets_the_same_answer() {
        let mut group = Group::default();
        let first = group.crash(1, "1", 0, false);
        assert_eq!(group.crash(1, "1", 5, false), first);
        let mut group = Group::default();
        group.crash(1, "1", 0, true);
        assert_eq!(group.crash(1, "1", 5, true), None);
    }

    #[test]
    fn pinned_and_first_bundles_are_not_dropped() {
        let sample = |number: u64, reason: WantReason, is_pinned: bool| StoredSample {
            report: id(number),
            build: "1".to_owned(),
            time: number,
            reason,
            is_pinned,
            expected_until: None,
        };
        let samples = [
            sample(1, WantReason::FewSamples, false),
            sample(2, WantReason::Sampled, true),
            sample(3, WantReason::Sampled, false),
        ];
        let new = sample(9, WantReason::Sampled, false);
        assert_eq!(to_drop(&new, &samples), Some(&id(3)));
        assert_eq!(to_drop(&new, &samples[..2]), None);
        assert_eq!(to_drop(&sample(9, WantReason::Pushed, false), &samples), None);
    }

    #[test]
    fn oldest_build_is_dropped_beyond_the_limit() {
        let mut group = Group::default();
        for number in 0..60 {
            group.crash(number, &format!("build {number}"), number, true);
        }
        let builds = group
            .samples
            .iter()
            .filter(|sample| sample.reason == WantReason::NewBuild);
        assert_eq!(builds.count(), MAX_BUILDS);
        assert!(group.samples.iter().all(|sample| sample.build != "build 3"));
    }
}
