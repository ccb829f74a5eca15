//! Simulated lives of groups.

use super::*;
use std::collections::BTreeSet;

/// A group, its builds, and the events so far, as a hub keeps them.
struct Simulation {
    builds: Builds,
    status: Option<Status>,
    seen: Vec<String>,
    reports: u64,
    once: BTreeSet<String>,
    events: Vec<String>,
    undetermined: u32,
    now: u64,
}

impl Simulation {
    fn new() -> Self {
        Self {
            builds: Builds::default(),
            status: None,
            seen: Vec::new(),
            reports: 0,
            once: BTreeSet::new(),
            events: Vec::new(),
            undetermined: 0,
            now: 1_000,
        }
    }

    /// Applies a transition as the database does: a second event with the same key is none.
    fn apply(&mut self, transition: Transition) {
        if let Some(status) = transition.status {
            self.status = Some(status);
        }
        if let Some(event) = transition.event
            && self.once.insert(event.once)
        {
            let build = event.build.unwrap_or_default();
            self.events
                .push(format!("{} {build}", event.kind).trim().to_owned());
        }
        self.undetermined += u32::from(transition.undetermined.is_some());
    }

    fn runs(&mut self, build: &str) {
        self.now += 1000;
        self.builds.add_run(build, self.now);
    }

    fn crash(&mut self, build: &str) {
        self.now += 10;
        self.reports += 1;
        let facts = ReportFacts {
            group: "g",
            time: self.now,
            build,
            reports: self.reports,
            seen_builds: &self.seen,
        };
        let transition = on_report(self.status.as_ref(), &facts, &self.builds);
        self.apply(transition);
        if !self.seen.iter().any(|seen| seen == build) {
            self.seen.push(build.to_owned());
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), InvalidAction> {
        self.now += 10;
        let status = self.status.clone().unwrap();
        let transition = on_action("g", &status, action, self.now, self.reports, &self.builds)?;
        self.apply(transition);
        Ok(())
    }

    fn resolve(&mut self, build: Option<&str>) {
        let build = build.map(str::to_owned);
        self.act(&Action::Resolve { build }).unwrap();
    }

    fn tick(&mut self, after: u64, is_escalating: bool) {
        self.now += after;
        let facts = TickFacts {
            group: "g",
            now: self.now,
            reports: self.reports,
            is_escalating,
            build: Some("1"),
        };
        let transition = on_tick(self.status.as_ref().unwrap(), &facts, &self.builds);
        self.apply(transition);
    }

    fn state(&self) -> &'static str {
        self.status.as_ref().unwrap().state.name()
    }

    /// Returns the events since the last call.
    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }
}

fn archive(until_escalating: bool, more_reports: Option<u64>, until: Option<u64>) -> Action {
    Action::Archive {
        until_escalating,
        more_reports,
        until,
    }
}

#[test]
fn old_build_after_a_fix_is_no_regression() {
    let mut group = Simulation::new();
    group.runs("1");
    for _ in 0..100 {
        group.crash("1");
    }
    assert_eq!(group.events(), ["new 1"]);
    group.resolve(Some("2"));
    group.runs("2");
    for _ in 0..100 {
        group.crash("1");
    }
    assert_eq!(
        (group.state(), group.events()),
        ("resolved", vec!["resolved 2".to_owned()])
    );
    group.runs("3");
    for _ in 0..100 {
        group.crash("3");
        group.crash("1");
    }
    assert_eq!(
        (group.state(), group.events()),
        ("regressed", vec!["regressed 3".to_owned()])
    );
    assert_eq!(group.undetermined, 0);
}

#[test]
fn crash_in_the_build_of_the_fix_is_a_regression() {
    let mut group = Simulation::new();
    group.runs("1");
    group.crash("1");
    // The build is named before any host runs it.
    group.resolve(Some("2"));
    group.crash("1");
    assert_eq!(group.state(), "resolved");
    group.crash("2");
    assert_eq!(group.state(), "regressed");
}

#[test]
fn fix_in_the_next_build_waits_for_a_newer_one() {
    let mut group = Simulation::new();
    group.runs("1");
    group.crash("1");
    group.runs("2");
    group.resolve(None);
    group.crash("1");
    group.crash("2");
    assert_eq!(group.state(), "resolved");
    group.runs("3");
    group.crash("3");
    assert_eq!(group.state(), "regressed");
    assert_eq!(group.events(), ["new 1", "resolved", "regressed 3"]);
}

#[test]
fn unknown_order_is_visible_and_alerts_no_user() {
    let mut group = Simulation::new();
    group.runs("1");
    group.crash("1");
    group.resolve(Some("2"));
    group.runs("2");
    group.events();
    group.crash("without heartbeat");
    assert_eq!((group.state(), group.undetermined), ("resolved", 1));
    assert_eq!(group.events(), [""; 0]);
    let mut group = Simulation::new();
    group.crash("1");
    group.resolve(None);
    group.crash("1");
    assert_eq!((group.state(), group.undetermined), ("resolved", 1));
}

#[test]
fn deleted_build_changes_no_state() {
    let mut group = Simulation::new();
    group.runs("1");
    group.crash("1");
    group.runs("2");
    group.resolve(Some("2"));
    // The whole row is gone, not only the entry of the list.
    let first = group.builds.first_ran("1").unwrap();
    group.builds = Builds::new([("1".to_owned(), Some(first))]);
    group.crash("1");
    assert_eq!((group.state(), group.undetermined), ("resolved", 0));
    group.runs("3");
    group.crash("3");
    assert_eq!(group.state(), "regressed");
}

#[test]
fn time_of_the_fix_is_remembered_once_its_build_runs() {
    let mut group = Simulation::new();
    group.runs("1");
    group.crash("1");
    group.resolve(Some("2"));
    let since = group.status.as_ref().unwrap().since;
    group.runs("2");
    group.tick(10, false);
    assert_eq!(group.status.as_ref().unwrap().since, since);
    group.builds = Builds::new([("1".to_owned(), group.builds.first_ran("1"))]);
    group.crash("1");
    assert_eq!((group.state(), group.undetermined), ("resolved", 0));
}

#[test]
fn second_regression_in_a_build_is_announced_again() {
    let mut group = Simulation::new();
    group.runs("1");
    group.crash("1");
    group.resolve(Some("1"));
    group.crash("1");
    group.resolve(Some("1"));
    group.crash("1");
    assert_eq!(
        group.events(),
        ["new 1", "resolved 1", "regressed 1", "resolved 1", "regressed 1"]
    );
}

#[test]
fn two_hubs_announce_one_event() {
    let status = Status {
        state: State::Resolved(Fix::NextBuild { after: 5 }),
        since: 5,
    };
    let builds = Builds::new([("2".to_owned(), Some(9))]);
    let event = |time: u64| {
        let facts = ReportFacts {
            group: "g",
            time,
            build: "2",
            reports: time,
            seen_builds: &[],
        };
        on_report(Some(&status), &facts, &builds).event.unwrap()
    };
    assert_eq!(event(20).once, event(30).once);
}

#[test]
fn first_crash_in_a_newer_build_is_announced_once() {
    let mut group = Simulation::new();
    group.runs("1");
    group.runs("2");
    group.runs("3");
    group.crash("2");
    group.crash("1");
    group.crash("3");
    group.crash("3");
    assert_eq!(group.events(), ["new 2", "first-in-build 3"]);
    group.crash("unheard");
    assert_eq!((group.events(), group.undetermined), (vec![], 1));
}

#[test]
fn archived_group_is_silent_until_its_condition() {
    let mut group = Simulation::new();
    group.runs("1");
    group.crash("1");
    group.act(&archive(false, Some(3), None)).unwrap();
    group.crash("1");
    group.crash("1");
    assert_eq!(group.state(), "archived");
    group.crash("1");
    assert_eq!(group.state(), "ongoing");
    group.act(&archive(false, None, Some(group.now + 500))).unwrap();
    group.tick(100, true);
    assert_eq!(group.state(), "archived");
    group.tick(500, false);
    assert_eq!(group.state(), "ongoing");
    group.act(&archive(true, None, None)).unwrap();
    group.tick(RECENT, false);
    assert_eq!(group.state(), "archived");
    group.tick(10, true);
    assert_eq!(group.state(), "escalating");
    group.act(&archive(false, None, None)).unwrap();
    group.runs("2");
    group.crash("2");
    group.tick(RECENT, true);
    assert_eq!(group.state(), "archived");
    group.act(&Action::Reopen).unwrap();
    assert_eq!(group.state(), "ongoing");
    assert_eq!(
        group.events(),
        [
            "new 1",
            "archived",
            "reopened 1",
            "archived",
            "reopened",
            "archived",
            "escalating 1",
            "archived",
            "reopened"
        ]
    );
}

#[test]
fn escalation_ends_after_a_day_of_calm() {
    let mut group = Simulation::new();
    group.crash("1");
    group.tick(10, true);
    group.tick(10, true);
    group.tick(DAY / 2, false);
    assert_eq!(group.state(), "escalating");
    group.tick(DAY, false);
    assert_eq!(group.state(), "ongoing");
    assert_eq!(group.events(), ["new 1", "escalating 1"]);
    group.tick(DAY, true);
    assert_eq!(group.events(), ["escalating 1"]);
}

#[test]
fn new_and_regressed_groups_become_ongoing() {
    let mut group = Simulation::new();
    group.crash("1");
    group.tick(RECENT - 10, false);
    assert_eq!(group.state(), "new");
    group.tick(10, false);
    assert_eq!((group.state(), group.events().len()), ("ongoing", 1));
}

#[test]
fn invalid_actions_are_refused() {
    let mut group = Simulation::new();
    group.crash("1");
    assert_eq!(group.act(&Action::Reopen), Err(InvalidAction::Open));
    assert_eq!(
        group.act(&archive(true, Some(1), None)),
        Err(InvalidAction::Conditions)
    );
    assert_eq!(
        group.act(&archive(false, Some(0), None)),
        Err(InvalidAction::Past)
    );
    assert_eq!(
        group.act(&archive(false, None, Some(1))),
        Err(InvalidAction::Past)
    );
    for build in ["", "a\nb", &"x".repeat(256)] {
        let build = Some(build.to_owned());
        assert_eq!(group.act(&Action::Resolve { build }), Err(InvalidAction::Build));
    }
    assert_eq!(group.state(), "new");
}
