//! A simulated deploy on 10 000 hosts.

use super::sampling::wants;
use super::state::{ReportFacts, on_report};
use super::*;
use backtrail_report::ReportId;
use std::collections::{BTreeMap, BTreeSet};

/// A group as the hub keeps it.
#[derive(Default)]
struct Group {
    status: Option<Status>,
    reports: u64,
    seen_builds: Vec<String>,
    samples: Vec<StoredSample>,
}

/// The hub: its groups, and the announced events.
#[derive(Default)]
struct Hub {
    builds: Builds,
    groups: BTreeMap<String, Group>,
    once: BTreeSet<String>,
    announced: Vec<(EventKind, String, Option<String>)>,
    reports: u64,
}

impl Hub {
    fn crash(&mut self, signature: &str, build: &str) {
        self.reports += 1;
        let time = 1_000_000 + self.reports;
        let report: ReportId = format!("{:020}", self.reports).parse().unwrap();
        let group = self.groups.entry(signature.to_owned()).or_default();
        group.reports += 1;
        let facts = ReportFacts {
            group: signature,
            time,
            build,
            reports: group.reports,
            seen_builds: &group.seen_builds,
        };
        let transition = on_report(group.status.as_ref(), &facts, &self.builds);
        group.status = transition.status.or(group.status.take());
        if let Some(event) = transition.event
            && self.once.insert(event.once)
        {
            self.announced.push((event.kind, event.group, event.build));
        }
        let facts = SampleFacts {
            report: &report,
            build,
            has_stack: true,
            is_known: !group.samples.is_empty(),
            reports: group.reports,
            now: time,
        };
        if let Some(reason) = wants(&facts, &group.samples) {
            group.samples.push(StoredSample {
                report,
                build: build.to_owned(),
                time,
                reason,
                is_pinned: false,
                expected_until: None,
            });
        }
        if !group.seen_builds.iter().any(|seen| seen == build) {
            group.seen_builds.push(build.to_owned());
        }
    }

    fn count(&self, kind: EventKind) -> usize {
        self.announced
            .iter()
            .filter(|(announced, _, _)| *announced == kind)
            .count()
    }
}

#[test]
fn deploy_with_three_defects_alerts_three_times() {
    let mut hub = Hub::default();
    hub.builds.add_run("1", 100);
    hub.builds.add_run("2", 200);
    // One in a thousand of 10 000 hosts crashes, with three signatures.
    for host in (0..10_000).filter(|host| host % 1000 == 7) {
        hub.crash(["post", "settle", "load"][host / 1000 % 3], "2");
    }
    let counts: Vec<u64> = hub.groups.values().map(|group| group.reports).collect();
    assert_eq!(counts, [3, 4, 3]);
    assert_eq!((hub.announced.len(), hub.count(EventKind::New)), (3, 3));
    assert!(
        hub.announced
            .iter()
            .all(|(_, _, build)| build.as_deref() == Some("2"))
    );
    let bundles: usize = hub.groups.values().map(|group| group.samples.len()).sum();
    assert!(bundles <= 10, "{bundles}");
    // A fix is in build 3. Hosts that still run build 2 crash on, and alert no user.
    for (group, hub_group) in &mut hub.groups {
        let status = hub_group.status.clone().unwrap();
        let build = Some("3".to_owned());
        let action = Action::Resolve { build };
        let transition = state::on_action(group, &status, &action, 2_000_000, 4, &hub.builds).unwrap();
        hub_group.status = transition.status;
    }
    hub.builds.add_run("3", 300);
    for at in 0..500 {
        hub.crash(["post", "settle", "load"][at % 3], "2");
    }
    assert_eq!(hub.announced.len(), 3);
    // The fix of one defect is wrong.
    for _ in 0..50 {
        hub.crash("post", "3");
    }
    assert_eq!((hub.announced.len(), hub.count(EventKind::Regressed)), (4, 1));
}
