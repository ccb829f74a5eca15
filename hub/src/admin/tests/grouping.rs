//! Rules and versions of the grouping in new indexes and in backups.

use super::*;
use crate::ingest::rules::{self, NewRule};
use crate::ingest::tests::grouping::{run_jobs, set_version};
use crate::ingest::versions;

/// Fills a hub that has a rule, the first version, and the second one beside it.
async fn fill_by_rules(hub: &TestHub) {
    set_version(hub, 1).await;
    fill(hub, clock::now()).await;
    let rule = NewRule::new("group-by audit as Audits", "ledger").unwrap();
    rules::add(&hub.database, &rule, "ada").await.unwrap();
    versions::compare(&hub.database, None, 30, "ada").await.unwrap();
    run_jobs(hub).await;
}

/// Returns the rows of an index, with those of the grouping. The history of keys differs: an index
/// that is computed by rules has keys in their groups from the start.
async fn dump_with_grouping(database: &Database) -> Vec<String> {
    let mut lines = dump(database).await;
    lines.retain(|line| !line.starts_with("move "));
    for query in [
        "SELECT 'rule ' || service || ' ' || action || ' ' || pattern || ' ' || author FROM rules ORDER BY 1",
        "SELECT 'version ' || version || ' ' || next_version || ' ' || switch_at || ' ' || revision FROM grouping_state",
        "SELECT 'next ' || key || ' ' || group_id || ' ' || title || ' ' || signature FROM next_groups ORDER BY 1",
        "SELECT 'rule move ' || key || ' ' || from_group || ' ' || to_group FROM key_moves \
         WHERE reason <> 'symbols' ORDER BY 1",
    ] {
        let rows: Vec<String> = sqlx::query_scalar(query)
            .fetch_all(database.reader())
            .await
            .unwrap();
        assert!(!rows.is_empty(), "{query}");
        lines.extend(rows);
    }
    lines
}

fn assert_equal(before: &[String], after: &[String], name: &str) {
    for (old, new) in before.iter().zip(after) {
        assert_eq!(old, new, "{name}");
    }
    assert_eq!(before.len(), after.len(), "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilt_index_keeps_rules_and_versions() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        fill_by_rules(&hub).await;
        let before = dump_with_grouping(&test.database).await;
        assert!(before.iter().any(|line| line.contains(" Audits ")), "{before:?}");
        test.database.close().await;
        rebuild::run(&test.address, test.folder(), &hub.objects)
            .await
            .unwrap();
        let database = Database::open(&test.address).await.unwrap();
        assert_equal(&before, &dump_with_grouping(&database).await, test.name());
        database.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_keeps_rules_and_versions() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        fill_by_rules(&hub).await;
        let before = dump_with_grouping(&test.database).await;
        let directory = test.folder().join("backup");
        backup::backup(&test.database, &hub.objects, &directory)
            .await
            .unwrap();
        let other = TestDatabase::sqlite().await;
        let objects = Objects::directory(&other.folder().join("objects")).unwrap();
        other.database.close().await;
        backup::restore(&other.address, other.folder(), &objects, &directory)
            .await
            .unwrap();
        let database = Database::open(&other.address).await.unwrap();
        assert_equal(&before, &dump_with_grouping(&database).await, test.name());
        database.close().await;
    }
}
