//! Rules and versions of the grouping: their effect on past crashes, on new ones, and on decisions.

use super::*;
use crate::analysis::Progress;
use crate::database::jobs::{Job, JobQueue};
use crate::database::rules::MAX_ALL_RULES;
use crate::grouping::rules::MAX_RULES;
use crate::ingest::act::act;
use crate::ingest::rules::{NewRule, RuleChange};
use crate::ingest::{regroup_all, rules, versions};
use crate::lifecycle::Action;
use tokio::sync::watch;

/// Stores the bundle of a report with a stack, innermost function first. Returns the group.
async fn store(hub: &TestHub, number: u64, functions: &[&str], cause: &CrashCause) -> String {
    let frames = functions.iter().flat_map(|name| symbolized(name).frames);
    let symbolized = Symbolized {
        frames: frames.collect(),
        cause: cause.clone(),
        missing: Vec::new(),
    };
    let row = hub.database.report(id(number).as_str()).await.unwrap();
    let result: crate::Result<String> = transact!(hub.database, connection => {
        let key = stack_keys::find(connection, &row.key).await?.unwrap();
        let moment = (START, "symbols");
        let group = regroup::regroup(connection, &hub.outbox, &key, &symbolized, &row, moment).await?;
        groups::recount(connection, &group).await?;
        Ok(group)
    });
    result.unwrap()
}

fn cause(signal: i32, code: i32, fault_address: Option<u64>) -> CrashCause {
    CrashCause::of(&CrashFacts {
        signal,
        code,
        fault_address,
        ..CrashFacts::default()
    })
}

fn null() -> CrashCause {
    symbolized("x").cause
}

/// Takes one report for each stack, and stores its bundle. Returns the groups.
async fn fill(hub: &TestHub, stacks: &[(&[&str], CrashCause)]) -> Vec<String> {
    let mut all = Vec::new();
    for (number, (functions, cause)) in (1..).zip(stacks) {
        hub.take(vec![crash(number, number, "1.0", START)]).await;
        all.push(store(hub, number, functions, cause).await);
    }
    all
}

/// Leases the next job that groups keys again, also if another hub has it or it is not due.
async fn lease(hub: &TestHub) -> Option<Job> {
    let result: crate::Result<()> = transact!(hub.database, connection => {
        sqlx::query("UPDATE jobs SET run_at = 0, lease_until = 0 WHERE kind = 'regroup'")
            .execute(&mut *connection)
            .await?;
        Ok(())
    });
    result.unwrap();
    hub.database.lease_job(JobQueue::Grouping).await.unwrap()
}

/// Runs all jobs that group keys again.
pub(crate) async fn run_jobs(hub: &TestHub) {
    while let Some(job) = lease(hub).await {
        let (progress, _) = watch::channel(Progress::default());
        regroup_all::run(&hub.database, &job, &progress).await.unwrap();
    }
}

pub(crate) async fn set_version(hub: &TestHub, version: i64) {
    let result: crate::Result<()> = transact!(hub.database, connection => {
        sqlx::query("UPDATE grouping_state SET version = $1")
            .bind(version)
            .execute(&mut *connection)
            .await?;
        Ok(())
    });
    result.unwrap();
}

async fn add(hub: &TestHub, line: &str) -> String {
    let rule = NewRule::new(line, "").unwrap();
    rules::add(&hub.database, &rule, "ada").await.unwrap().id
}

/// Returns title, reports, state and assignee of all groups.
async fn groups_of(hub: &TestHub) -> Vec<(String, i64, String, Option<String>)> {
    let filter = crate::database::listing::GroupFilter {
        limit: 1000,
        ..Default::default()
    };
    let (rows, _) = hub.database.list_groups(&filter).await.unwrap();
    let mut all: Vec<_> = rows
        .into_iter()
        .map(|row| (row.title, row.reports, row.state_name, row.assignee))
        .collect();
    all.sort();
    all
}

const DELIVERIES: &str = "SELECT COUNT(*) FROM deliveries";

#[tokio::test(flavor = "multi_thread")]
async fn rule_splits_a_group_and_keeps_its_decisions() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let (post, settle) = (["app::fail", "ledger::post"], ["app::fail", "ledger::settle"]);
        let stacks: [(&[&str], _); 3] = [(&post, null()), (&settle, null()), (&["ledger::load"], null())];
        let before = fill(&hub, &stacks).await;
        assert_eq!(before[0], before[1]);
        let resolve = Action::Resolve {
            build: Some("9.0".to_owned()),
        };
        act(&hub.database, &hub.outbox, &before[0], &resolve, "ada")
            .await
            .unwrap();
        hub.database.assign_group(&before[0], Some("bo")).await.unwrap();
        hub.database
            .add_comment(&before[0], "ada", "known")
            .await
            .unwrap();
        let alerts = hub.count(DELIVERIES).await;
        let titles = groups_of(&hub).await;

        let rule = add(&hub, "ignore app::*").await;
        // The rule holds for new crashes before the job runs.
        hub.take(vec![crash(9, 9, "1.0", START)]).await;
        let new = store(&hub, 9, &post, &null()).await;
        let alerts_of_new = hub.count(DELIVERIES).await;
        run_jobs(&hub).await;
        let decided = |title: &str, reports| {
            let title = format!("SIGSEGV null access in ledger::{title}");
            (title, reports, "resolved".to_owned(), Some("bo".to_owned()))
        };
        let after = groups_of(&hub).await;
        assert_eq!(after[2], decided("settle", 1), "{}", test.name());
        assert_eq!(after[1].1, 2, "{after:?}");
        assert_eq!(after[1].3.as_deref(), Some("bo"), "{after:?}");
        assert_eq!(after.len(), 3);
        assert_eq!(hub.count(DELIVERIES).await, alerts_of_new, "{}", test.name());
        let successor = hub.database.group(&before[0]).await.unwrap();
        assert_ne!(successor.id, before[0]);
        assert_eq!(hub.database.comments(&successor.id, 9).await.unwrap().len(), 1);
        let moves = hub.database.moves(&new, 9).await.unwrap();
        assert!(moves.iter().any(|moved| moved.reason == "rules"), "{moves:?}");
        // A bundle of a moved key stays in its group, and a known key is counted there.
        assert_eq!(store(&hub, 1, &post, &null()).await, new);
        hub.take(vec![crash(10, 1, "1.0", START)]).await;
        assert_eq!(hub.database.group(&new).await.unwrap().reports, 3);

        rules::remove(&hub.database, &rule, "ada").await.unwrap();
        run_jobs(&hub).await;
        let back = groups_of(&hub).await;
        assert_eq!(back.len(), 2, "{back:?}");
        assert_eq!((&back[0].0, back[0].1), (&titles[0].0, 4));
        assert_eq!(back[0].3.as_deref(), Some("bo"));
        assert_eq!(hub.database.group(&before[0]).await.unwrap().id, before[0]);
        assert_eq!(hub.count(DELIVERIES).await, alerts_of_new);
        assert!(alerts > 0 && hub.database.rules().await.unwrap().is_empty());
        let audit = hub.database.audit(9).await.unwrap();
        let entry = audit.iter().find(|entry| entry.action == "add rule").unwrap();
        assert_eq!((&*entry.subject, &*entry.actor), ("ignore app::*", "ada"));
        assert!(audit.iter().any(|entry| entry.action == "delete rule"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_group_is_not_hidden_by_a_resolved_one() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let stacks: [(&[&str], _); 2] = [(&["ledger::post"], null()), (&["ledger::settle"], null())];
        let before = fill(&hub, &stacks).await;
        let resolve = Action::Resolve {
            build: Some("9.0".to_owned()),
        };
        act(&hub.database, &hub.outbox, &before[0], &resolve, "ada")
            .await
            .unwrap();
        let alerts = hub.count(DELIVERIES).await;
        add(&hub, "group-by ledger::* as Ledger").await;
        run_jobs(&hub).await;
        let after = groups_of(&hub).await;
        assert_eq!(after, [("Ledger".to_owned(), 2, "new".to_owned(), None)]);
        assert_eq!(hub.count(DELIVERIES).await, alerts, "{}", test.name());
        for id in &before {
            assert_eq!(hub.database.group(id).await.unwrap().title, "Ledger");
        }
        assert_eq!(hub.count("SELECT COUNT(*) FROM group_hosts").await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unannounced_group_is_announced_under_its_new_identifier() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![crash(1, 1, "1.0", START)]).await;
        add(&hub, "group-by module:ledger as Ledger").await;
        run_jobs(&hub).await;
        assert_eq!(hub.count(DELIVERIES).await, 0);
        let group = hub
            .database
            .group_of_key(&stack_key_of(&hub, 1).await)
            .await
            .unwrap();
        let due = "SELECT COUNT(*) FROM jobs WHERE kind = 'announce'";
        assert_eq!(hub.count(due).await, 2, "{}", test.name());
        let result: crate::Result<()> = transact!(hub.database, connection => {
            for _ in 0..2 {
                super::super::states::announce(connection, &hub.outbox, &group, None, START).await?;
            }
            Ok(())
        });
        result.unwrap();
        assert_eq!(hub.events().await, ["new"]);
        assert_eq!(hub.count(DELIVERIES).await, 1);
    }
}

async fn stack_key_of(hub: &TestHub, number: u64) -> String {
    hub.database.report(id(number).as_str()).await.unwrap().key
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_off_job_goes_on_where_it_ended() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let crashes = (1..=450).map(|number| crash(number, number, "1.0", START));
        hub.take(crashes.collect()).await;
        add(&hub, "group-by module:ledger as Ledger").await;
        let job = lease(&hub).await.unwrap();
        let (progress, mut seen) = watch::channel(Progress::default());
        tokio::select! {
            biased;
            changed = seen.changed() => changed.unwrap(),
            ended = regroup_all::run(&hub.database, &job, &progress) => panic!("too early: {ended:?}"),
        }
        let moved = "SELECT COUNT(*) FROM key_moves";
        let first = hub.count(moved).await;
        assert!((100..450).contains(&first), "{first}");
        let job = lease(&hub).await.unwrap();
        assert!(job.done_to.is_some());
        regroup_all::run(&hub.database, &job, &progress).await.unwrap();
        assert_eq!(hub.count(moved).await, 450, "{}", test.name());
        let found = groups_of(&hub).await;
        assert_eq!((found.len(), &*found[0].0, found[0].1), (1, "Ledger", 450));
        assert_eq!(
            hub.count("SELECT COUNT(*) FROM jobs WHERE kind = 'regroup'")
                .await,
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn later_change_ends_the_job_of_an_earlier_one() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    hub.take(vec![crash(1, 1, "1.0", START)]).await;
    add(&hub, "group-by module:ledger as One").await;
    let job = lease(&hub).await.unwrap();
    add(&hub, "group-by module:led* as Two").await;
    let (progress, _) = watch::channel(Progress::default());
    regroup_all::run(&hub.database, &job, &progress).await.unwrap();
    assert_eq!(hub.count("SELECT COUNT(*) FROM key_moves").await, 0);
    run_jobs(&hub).await;
    assert_eq!(groups_of(&hub).await[0].0, "One");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_hubs_use_a_rule_from_its_commit_on() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let other = Database::open(&test.address).await.unwrap();
        let before = other.grouping_policy().await.unwrap();
        assert!(before.rules("ledger").rules().is_empty());
        let own = NewRule::new("ignore own::*", "ledger").unwrap();
        rules::add(&hub.database, &own, "ada").await.unwrap();
        add(&hub, "ignore all::*").await;
        let after = other.grouping_policy().await.unwrap();
        let count = |service: &str| after.rules(service).rules().len();
        assert_eq!((count("ledger"), count("bank")), (2, 1), "{}", test.name());
        assert_ne!(before.revision, after.revision);
        other.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trial_shows_merges_and_splits_and_changes_nothing() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let (post, settle) = (["app::fail", "ledger::post"], ["app::fail", "ledger::settle"]);
        let stacks: [(&[&str], _); 3] = [(&post, null()), (&settle, null()), (&["ledger::post"], null())];
        fill(&hub, &stacks).await;
        let before = groups_of(&hub).await;
        let change = |line: &str, service: &str| RuleChange {
            add: Some(NewRule::new(line, service).unwrap()),
            remove: None,
        };
        let tried = rules::try_change(&hub.database, &change("ignore app::*", ""))
            .await
            .unwrap();
        assert_eq!((tried.keys, tried.all_keys), (3, 3));
        assert_eq!((tried.trial.moved_keys, tried.trial.splits.len()), (2, 1));
        assert_eq!(tried.trial.merges.len(), 1);
        assert!(tried.trial.merges[0].to.title.ends_with("ledger::post"));
        let tried = rules::try_change(&hub.database, &change("ignore app::*", "bank"))
            .await
            .unwrap();
        assert_eq!((tried.keys, tried.all_keys), (0, 0));
        assert_eq!(groups_of(&hub).await, before, "{}", test.name());
        assert!(hub.database.rules().await.unwrap().is_empty());
        let rule = add(&hub, "ignore app::*").await;
        run_jobs(&hub).await;
        let remove = RuleChange {
            add: None,
            remove: Some(rule),
        };
        let tried = rules::try_change(&hub.database, &remove).await.unwrap();
        assert_eq!(tried.trial.moved_keys, 2);
        assert_eq!(tried.removed.unwrap().line(), "ignore app::*");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_bounded_in_number_and_not_repeated() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    add(&hub, "ignore a::*").await;
    let again = NewRule::new("ignore a::*", " ").unwrap();
    let error = rules::add(&hub.database, &again, "ada").await.unwrap_err();
    assert_eq!(error.to_string(), "this rule is there already");
    let result: crate::Result<()> = transact!(hub.database, connection => {
        for number in 2..=MAX_ALL_RULES {
            let service = format!("service {}", number / (MAX_RULES / 2));
            sqlx::query("INSERT INTO rules (id, position, service, action, pattern, created, author) \
                         VALUES ($1, $2, $3, 'ignore', $4, 0, '')")
                .bind(number.to_string())
                .bind(number as i64)
                .bind(service)
                .bind(format!("f{number}"))
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    });
    result.unwrap();
    let more = NewRule::new("ignore b::*", "").unwrap();
    let error = rules::add(&hub.database, &more, "ada").await.unwrap_err();
    assert!(
        error.to_string().starts_with("the hub has at most 500 rules"),
        "{error}"
    );
    let error = rules::remove(&hub.database, "x", "ada").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no rule x");
    assert!(NewRule::new("ignore x", &"s".repeat(256)).is_err());
    assert!(NewRule::new("ignore x", "a\nb").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn service_has_a_bounded_number_of_rules() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    for number in 0..MAX_RULES {
        let service = if number % 2 == 0 { "" } else { "ledger" };
        let rule = NewRule::new(&format!("ignore f{number}"), service).unwrap();
        rules::add(&hub.database, &rule, "ada").await.unwrap();
    }
    let rule = NewRule::new("ignore one::more", "").unwrap();
    let error = rules::add(&hub.database, &rule, "ada").await.unwrap_err();
    assert!(
        error.to_string().starts_with("a service has at most 200 rules"),
        "{error}"
    );
    let rule = NewRule::new("ignore one::more", "bank").unwrap();
    rules::add(&hub.database, &rule, "ada").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn second_version_runs_beside_the_first_and_replaces_it() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        set_version(&hub, 1).await;
        let abort = cause(6, -6, None);
        let (post, settle) = (
            ["raise", "abort", "app::fail", "ledger::post"],
            ["raise", "abort", "app::fail", "ledger::settle"],
        );
        let stacks: [(&[&str], _); 5] = [
            (&post, abort.clone()),
            (&settle, abort.clone()),
            (&["ledger::load"], cause(11, 1, Some(0x7000_0000_0000))),
            (&["ledger::load"], cause(11, 128, None)),
            (&["ledger::save"], null()),
        ];
        let before = fill(&hub, &stacks).await;
        assert!(before[0] == before[1] && before[2] != before[3]);
        hub.database.assign_group(&before[4], Some("bo")).await.unwrap();
        let alerts = hub.count(DELIVERIES).await;
        let old = groups_of(&hub).await;

        versions::compare(&hub.database, None, 30, "ada").await.unwrap();
        run_jobs(&hub).await;
        assert_eq!(groups_of(&hub).await, old, "nothing moves before the switch");
        let change = hub.database.version_change(10).await.unwrap();
        assert_eq!((change.keys, change.all_keys), (5, 5), "{}", test.name());
        assert_eq!((change.merged, change.split), (2, 1));
        assert_eq!((change.merges[0].1, change.merges[0].2), (2, 2));
        assert_eq!(change.splits[0].1, "SIGABRT in app::fail");
        let next = hub.database.next_groups_of(&before[0], 9).await.unwrap();
        assert_eq!(next.len(), 2);
        assert!(
            next.iter()
                .any(|one| one.signature == "SIGABRT | app::fail | ledger::post")
        );
        let with = hub.database.merged_with(&before[2], 9).await.unwrap();
        assert_eq!((with.len(), &with[0].id), (1, &before[3]));
        // A new key has both groups at once.
        hub.take(vec![crash(6, 6, "1.0", START)]).await;
        assert_eq!(hub.database.version_change(10).await.unwrap().keys, 6);
        let alerts_of_new = hub.count(DELIVERIES).await;

        let now = clock::now();
        assert!(!versions::switch_if_due(&hub.database, now).await.unwrap());
        assert!(
            versions::switch_if_due(&hub.database, now + 31 * clock::DAY)
                .await
                .unwrap()
        );
        assert!(
            !versions::switch_if_due(&hub.database, now + 32 * clock::DAY)
                .await
                .unwrap()
        );
        run_jobs(&hub).await;
        let titles: Vec<String> = groups_of(&hub).await.into_iter().map(|group| group.0).collect();
        assert_eq!(titles.len(), 5, "{titles:?}");
        for title in [
            "SIGABRT in ledger::post",
            "SIGSEGV invalid access in ledger::load",
        ] {
            assert!(titles.iter().any(|one| one == title), "{titles:?}");
        }
        let (loaded, other) = (
            hub.database.group(&before[2]).await.unwrap(),
            hub.database.group(&before[3]).await.unwrap(),
        );
        assert_eq!(
            (&loaded.id, loaded.reports, loaded.grouping_version),
            (&other.id, 2, 2)
        );
        let saved = hub.database.group(&before[4]).await.unwrap();
        assert_eq!(saved.assignee.as_deref(), Some("bo"));
        let moves = hub.database.moves(&loaded.id, 9).await.unwrap();
        assert!(
            moves.len() == 2 && moves.iter().all(|moved| moved.reason == "version"),
            "{moves:?}"
        );
        assert_eq!(hub.count(DELIVERIES).await, alerts_of_new, "{}", test.name());
        assert!(alerts > 0);
        assert_eq!(hub.count("SELECT COUNT(*) FROM next_groups").await, 0);
        assert_eq!(
            hub.count("SELECT COUNT(*) FROM groups WHERE grouping_version <> 2")
                .await,
            0
        );
        let audit = hub.database.audit(9).await.unwrap();
        assert_eq!(
            (&*audit[0].action, &*audit[0].actor),
            ("switch grouping", "the hub")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_ends_without_a_switch() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    set_version(&hub, 1).await;
    fill(&hub, &[(&["ledger::load"], null())]).await;
    assert!(versions::switch(&hub.database, "ada").await.is_err());
    assert!(versions::cancel(&hub.database, "ada").await.is_err());
    for (version, days) in [(Some(1), 30), (Some(77), 30), (None, 0), (None, 400)] {
        assert!(
            versions::compare(&hub.database, version, days, "ada")
                .await
                .is_err()
        );
    }
    versions::compare(&hub.database, None, 1, "ada").await.unwrap();
    run_jobs(&hub).await;
    versions::cancel(&hub.database, "ada").await.unwrap();
    assert_eq!(hub.count("SELECT COUNT(*) FROM next_groups").await, 0);
    run_jobs(&hub).await;
    assert_eq!(
        hub.count("SELECT COUNT(*) FROM key_moves WHERE reason <> 'symbols'")
            .await,
        0
    );
    assert!(hub.database.grouping_policy().await.unwrap().next.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn report_before_the_column_keeps_its_group() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![crash(1, 1, "1.0", START)]).await;
        let result: crate::Result<()> = transact!(hub.database, connection => {
            sqlx::query("UPDATE stack_keys SET report_cause = NULL").execute(&mut *connection).await?;
            Ok(())
        });
        result.unwrap();
        add(&hub, "ignore unrelated::*").await;
        run_jobs(&hub).await;
        assert_eq!(
            hub.count("SELECT COUNT(*) FROM key_moves").await,
            0,
            "{}",
            test.name()
        );
    }
}
