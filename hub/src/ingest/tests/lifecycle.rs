//! States of groups through reports, moves of keys, and actions of people.

use super::*;
use crate::ingest::act::act;
use crate::ingest::{journal, states};
use crate::lifecycle::Action;

fn resolve(build: &str) -> Action {
    Action::Resolve {
        build: Some(build.to_owned()),
    }
}

async fn state_of(hub: &TestHub, group: &str) -> String {
    hub.database.group(group).await.unwrap().state_name
}

/// Lets the job of a new group run.
async fn announce(hub: &TestHub, group: &str, now: i64) {
    let done: crate::Result<()> = transact!(hub.database, connection => {
        states::announce(connection, &hub.outbox, group, None, now).await
    });
    done.unwrap();
}

async fn group_of(hub: &TestHub, number: u64) -> String {
    let report = hub.database.report(id(number).as_str()).await.unwrap();
    hub.database.group_of_key(&report.key).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_build_is_no_regression_and_newer_one_is() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        for (build, at) in [("1.0", 0), ("2.0", 1), ("3.0", 2), ("4.0", 3)] {
            hub.run("web-1", build, START + at * clock::HOUR).await;
        }
        let time = START + 4 * clock::HOUR;
        hub.take(vec![crash(1, 1, "2.0", time)]).await;
        assert_eq!(hub.events().await, [""; 0]);
        let group = hub.store(id(1).as_str(), "audit", time + 2).await;
        hub.take(vec![crash(2, 1, "1.0", time + 3)]).await;
        hub.take(vec![crash(3, 1, "2.0", time + 4)]).await;
        assert_eq!(hub.events().await, ["new"], "{}", test.name());
        hub.take(vec![crash(4, 1, "3.0", time + 5)]).await;
        assert_eq!(hub.events().await, ["new", "first-in-build"]);

        let status = act(&hub.database, &hub.outbox, &group, &resolve("4.0"), "ada").await;
        assert_eq!(status.unwrap().state.name(), "resolved");
        hub.take(vec![crash(5, 1, "3.0", time + 6), crash(6, 1, "1.0", time + 7)])
            .await;
        assert_eq!(state_of(&hub, &group).await, "resolved");
        // No heartbeat names this build.
        hub.take(vec![crash(7, 1, "hotfix", time + 8)]).await;
        let row = hub.database.group(&group).await.unwrap();
        assert_eq!(row.state_name, "resolved");
        assert_eq!(
            row.undetermined.as_deref(),
            Some("No heartbeat orders build hotfix and build 4.0, which has the fix.")
        );
        hub.take(vec![crash(8, 1, "4.0", time + 9), crash(9, 1, "4.0", time + 10)])
            .await;
        let row = hub.database.group(&group).await.unwrap();
        assert_eq!((row.state_name.as_str(), row.undetermined), ("regressed", None));
        assert_eq!(
            hub.count("SELECT COUNT(*) FROM changes WHERE event = 'regressed'")
                .await,
            1
        );
        // One message for each event that the channel takes.
        assert_eq!(hub.count("SELECT COUNT(*) FROM deliveries").await, 3);
        let changes = hub.database.changes(&group, 10).await.unwrap();
        let resolved = changes.iter().find(|change| change.event == "resolved").unwrap();
        assert_eq!(resolved.actor.as_deref(), Some("ada"));
        let audit = hub.database.audit(10).await.unwrap();
        assert_eq!((audit[0].action.as_str(), &audit[0].subject), ("resolve", &group));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_addresses_are_not_announced_again() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![crash(1, 1, "2.0", START), crash(2, 2, "2.0", START)])
            .await;
        let provisional = group_of(&hub, 1).await;
        assert_eq!(hub.events().await, [""; 0]);
        announce(&hub, &provisional, START + 60 * clock::SECOND).await;
        announce(&hub, &provisional, START + 61 * clock::SECOND).await;
        assert_eq!(hub.events().await, ["new"]);
        // A person resolves it before its symbols come.
        hub.database
            .assign_group(&provisional, Some("ada"))
            .await
            .unwrap();
        act(&hub.database, &hub.outbox, &provisional, &resolve("9.0"), "ada")
            .await
            .unwrap();
        let group = hub
            .store(id(1).as_str(), "audit", START + 90 * clock::SECOND)
            .await;
        assert_ne!(group, provisional);
        let row = hub.database.group(&provisional).await.unwrap();
        assert_eq!(
            (&row.id, row.state_name.as_str(), row.assignee.as_deref()),
            (&group, "resolved", Some("ada")),
            "{}",
            test.name()
        );
        // Other addresses of the same crash join the group, which stays as it is.
        let joined = hub
            .store(id(2).as_str(), "audit", START + 91 * clock::SECOND)
            .await;
        assert_eq!(joined, group);
        assert_eq!(hub.events().await, ["new", "resolved"]);
        assert_eq!(hub.database.changes(&group, 10).await.unwrap().len(), 2);
        assert_eq!(hub.count("SELECT COUNT(*) FROM groups").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn symbols_of_a_fixed_build_are_a_regression() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.run("web-1", "1.0", START).await;
        hub.run("web-1", "2.0", START + 1).await;
        hub.take(vec![crash(1, 1, "1.0", START + 2)]).await;
        let group = hub.store(id(1).as_str(), "audit", START + 3).await;
        act(&hub.database, &hub.outbox, &group, &resolve("2.0"), "ada")
            .await
            .unwrap();
        // The new build has other addresses, so that its first report is unknown.
        hub.take(vec![crash(2, 5, "2.0", START + 4)]).await;
        assert_eq!(state_of(&hub, &group).await, "resolved");
        assert_eq!(hub.store(id(2).as_str(), "audit", START + 5).await, group);
        assert_eq!(state_of(&hub, &group).await, "regressed", "{}", test.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_actions_change_nothing() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![crash(1, 1, "1.0", START)]).await;
        let group = group_of(&hub, 1).await;
        let error = act(&hub.database, &hub.outbox, &group, &Action::Reopen, "ada")
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "the group is open already");
        let error = act(&hub.database, &hub.outbox, "none", &Action::Reopen, "ada")
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "there is no group none");
        assert!(hub.database.audit(10).await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_gives_the_same_groups_and_counts() {
    for (test, fresh) in TestDatabase::all().await.iter().zip(TestDatabase::all().await) {
        let hub = TestHub::new(test);
        hub.run("web-1", "1.0", START).await;
        for part in 0..5_u64 {
            let reports = (part * 20..part * 20 + 20)
                .map(|number| crash(number, number % 4, &format!("{part}.0"), START + number as i64));
            hub.take(reports.collect()).await;
        }
        let recorder = Recorder::new(Outbox::new(String::new(), &[]));
        let replayed = journal::replay(&fresh.database, &hub.objects, &recorder, true).await;
        let (segments, damaged) = replayed.unwrap();
        // A batch may be split, but never lost.
        assert!((6..=101).contains(&segments) && damaged == 0, "{segments}");
        for query in [
            "SELECT id || ' ' || state || ' ' || first_build || ' ' || last_build FROM groups ORDER BY id",
            "SELECT id || ' ' || reports || ' ' || hosts || ' ' || state_since FROM groups ORDER BY id",
            "SELECT id || ' ' || key || ' ' || bundle FROM reports ORDER BY id",
            "SELECT key || ' ' || group_id || ' ' || reports FROM stack_keys ORDER BY key",
            "SELECT group_id || ' ' || build || ' ' || hour || ' ' || reports FROM group_hours ORDER BY 1",
        ] {
            let rows = async |database: &Database| -> Vec<String> {
                sqlx::query_scalar(query)
                    .fetch_all(database.reader())
                    .await
                    .unwrap()
            };
            let expected = rows(&test.database).await;
            assert!(!expected.is_empty());
            assert_eq!(rows(&fresh.database).await, expected, "{}: {query}", test.name());
        }
    }
}
