//! Changes of states with time.

use super::*;
use crate::clock::HOUR;
use crate::ingest::act::act;
use crate::ingest::tick::tick;
use crate::lifecycle::Action;

#[tokio::test(flavor = "multi_thread")]
async fn growing_share_of_hosts_escalates_once() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let start = START.div_euclid(HOUR) * HOUR;
        let now = start + 48 * HOUR + HOUR / 2;
        for host in 0..100 {
            let name = format!("web-{host}");
            hub.run(&name, "2.0", start).await;
            // The heartbeat of the present hour.
            let entry = Entry::Run {
                time: now,
                host: name,
                service: "ledger".to_owned(),
                build: "2.0".to_owned(),
                since: start,
            };
            hub.journal.write(vec![entry]).await.unwrap();
        }
        hub.take(vec![crash(0, 1, "2.0", start + HOUR)]).await;
        let group = hub.store(id(0).as_str(), "audit", start + HOUR).await;
        assert_eq!(tick(&hub.database, &hub.outbox, start + HOUR).await.unwrap(), 0);
        let storm = (1..31).map(|number| crash(number, 1, "2.0", now - clock::SECOND));
        hub.take(storm.collect()).await;
        assert_eq!(tick(&hub.database, &hub.outbox, now).await.unwrap(), 1);
        assert_eq!(tick(&hub.database, &hub.outbox, now + 1).await.unwrap(), 0);
        let row = hub.database.group(&group).await.unwrap();
        assert_eq!(row.state_name, "escalating", "{}", test.name());
        assert_eq!(hub.events().await, ["new", "escalating"]);
        // A day later the storm is over.
        assert_eq!(
            tick(&hub.database, &hub.outbox, now + 25 * HOUR).await.unwrap(),
            1
        );
        assert_eq!(hub.database.group(&group).await.unwrap().state_name, "ongoing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_groups_age_and_archives_end() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let now = clock::now();
        hub.take(vec![crash(1, 1, "2.0", now), crash(2, 2, "2.0", now)])
            .await;
        let aging = hub.store(id(1).as_str(), "audit", now).await;
        let archived = hub.store(id(2).as_str(), "close_account", now).await;
        let action = Action::Archive {
            until_escalating: false,
            more_reports: None,
            until: Some((now + 2 * HOUR).unsigned_abs()),
        };
        act(&hub.database, &hub.outbox, &archived, &action, "ada")
            .await
            .unwrap();
        assert_eq!(tick(&hub.database, &hub.outbox, now + HOUR).await.unwrap(), 0);
        assert_eq!(tick(&hub.database, &hub.outbox, now + 3 * HOUR).await.unwrap(), 1);
        assert_eq!(
            tick(&hub.database, &hub.outbox, now + 8 * 24 * HOUR)
                .await
                .unwrap(),
            1
        );
        for group in [&aging, &archived] {
            assert_eq!(hub.database.group(group).await.unwrap().state_name, "ongoing");
        }
        assert_eq!(
            hub.count("SELECT COUNT(*) FROM changes WHERE event = 'reopened'")
                .await,
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_has_one_holder_until_its_end() {
    for test in TestDatabase::all().await {
        let database = &test.database;
        assert!(database.take_lease("tick", HOUR).await.unwrap());
        assert!(
            !database.take_lease("tick", HOUR).await.unwrap(),
            "{}",
            test.name()
        );
        assert!(database.take_lease("other", 0).await.unwrap());
        assert!(database.take_lease("other", 0).await.unwrap());
    }
}
