//! Samples: few bundles of many reports, and exact counts.

use super::*;
use std::collections::HashSet;

const FUNCTIONS: [&str; 3] = ["close_account", "open_account", "audit"];

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_reports_send_few_bundles() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let mut asked: HashSet<String> = HashSet::new();
        let mut stored: HashSet<String> = HashSet::new();
        for part in 0..20_u64 {
            let numbers = part * 500..(part + 1) * 500;
            let reports: Vec<_> = numbers
                .map(|number| crash(number, number % 3, "2.0", START + number as i64 * 10_000))
                .collect();
            let now = START + (part as i64 + 1) * 5 * clock::SECOND;
            // One report of each part is sent twice.
            let twice = reports[7].clone();
            let mut outcomes = hub.take(reports).await;
            outcomes.extend(hub.take(vec![twice]).await);
            for outcome in outcomes.iter().filter(|outcome| outcome.wants.is_some()) {
                let report = outcome.id.to_string();
                asked.insert(report.clone());
                let number: usize = report.parse().unwrap();
                // The bundles of one place never arrive.
                if number % 3 != 2 && stored.insert(report.clone()) {
                    hub.store(&report, FUNCTIONS[number % 3], now).await;
                }
            }
        }
        let name = test.name();
        assert!((9..=20).contains(&asked.len()), "{name}: {}", asked.len());
        assert_eq!(hub.count("SELECT COUNT(*) FROM reports").await, 10_000, "{name}");
        assert_eq!(hub.count("SELECT COUNT(*) FROM groups").await, 3, "{name}");
        let counts: Vec<i64> = sqlx::query_scalar("SELECT reports FROM groups ORDER BY reports")
            .fetch_all(test.database.reader())
            .await
            .unwrap();
        assert_eq!(counts, [3333, 3333, 3334], "{name}");
        let hours = "SELECT CAST(SUM(reports) AS BIGINT) FROM group_hours";
        assert_eq!(hub.count(hours).await, 10_000, "{name}");
        assert_eq!(hub.count("SELECT MIN(hosts) FROM groups").await, 1000, "{name}");
        // The place without a bundle waits for its job, the others are announced once.
        assert_eq!(hub.events().await, ["new", "new"], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn report_sent_twice_gets_the_same_answer() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let first = hub.take(vec![crash(1, 1, "2.0", START)]).await;
        assert!(first[0].wants.is_some());
        assert_eq!(hub.take(vec![crash(1, 1, "2.0", START)]).await, first);
        hub.store(id(1).as_str(), "audit", START).await;
        let again = hub.take(vec![crash(1, 1, "2.0", START)]).await;
        assert_eq!(again[0].wants, None, "{}", test.name());
        assert_eq!(hub.count("SELECT reports FROM groups").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_bundle_is_removed() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        // Three first bundles, then one of each of 21 builds.
        for number in 0..24_u64 {
            let build = format!("2.{}", number.saturating_sub(2));
            let time = START + number as i64 * clock::HOUR;
            let outcome = hub.take(vec![crash(number, 1, &build, time)]).await;
            assert!(outcome[0].wants.is_some(), "{number}");
            hub.store(id(number).as_str(), "audit", time).await;
        }
        let removed = "SELECT id FROM reports WHERE bundle = 'removed'";
        let removed: Vec<String> = sqlx::query_scalar(removed)
            .fetch_all(test.database.reader())
            .await
            .unwrap();
        assert_eq!(removed, [id(3).to_string()], "{}", test.name());
        assert_eq!(hub.count("SELECT bundles FROM groups").await, 23);
    }
}
