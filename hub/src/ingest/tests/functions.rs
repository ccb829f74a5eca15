//! Crashes with a function on the stack.

use super::*;
use crate::database::listing::{CrashFilter, GroupFilter};

/// Returns the number of groups with a function, and the crashes with it.
async fn found(hub: &TestHub, function: &str) -> (usize, Vec<String>) {
    let filter = GroupFilter {
        function: Some(function.to_owned()),
        limit: 9,
        ..GroupFilter::default()
    };
    let (groups, _) = hub.database.list_groups(&filter).await.unwrap();
    let filter = CrashFilter {
        function: Some(function.to_owned()),
        limit: 9,
        ..CrashFilter::default()
    };
    let (crashes, _) = hub.database.list_crashes(&filter).await.unwrap();
    (groups.len(), crashes.into_iter().map(|crash| crash.id).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_are_found_by_functions_of_their_stacks() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let name = test.name();
        for (number, function) in [(1, "Ledger::close<int>(int)"), (2, "audit"), (3, "audit_all")] {
            hub.take(vec![crash(number, number, "2.0", START)]).await;
            hub.store(id(number).as_str(), function, START).await;
        }
        hub.take(vec![crash(4, 2, "2.0", START)]).await;
        // Arguments and values of templates are not part of a name.
        let one = (1, vec![id(1).to_string()]);
        assert_eq!(found(&hub, "Ledger::close<long>(int) const").await, one, "{name}");
        assert_eq!(found(&hub, "Ledger::close").await.0, 0, "{name}");
        // Crashes at the same place have the same stack.
        let (groups, crashes) = found(&hub, "audit").await;
        assert_eq!((groups, crashes.len()), (1, 2), "{name}: {crashes:?}");
        assert_eq!(found(&hub, "").await, (0, Vec::new()), "{name}");
        assert_eq!(found(&hub, "%' OR 1 = 1 --").await, (0, Vec::new()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_earlier_versions_get_their_functions() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        hub.take(vec![crash(1, 1, "2.0", START)]).await;
        hub.store(id(1).as_str(), "audit", START).await;
        let forget: crate::Result<()> = transact!(hub.database, connection => {
            sqlx::query("DELETE FROM key_functions").execute(&mut *connection).await?;
            sqlx::query("UPDATE stack_keys SET lists_functions = 0").execute(&mut *connection).await?;
            Ok(())
        });
        forget.unwrap();
        assert_eq!(found(&hub, "audit").await.0, 0);
        assert_eq!(hub.database.list_functions_of_old_keys().await.unwrap(), 1);
        assert_eq!(hub.database.list_functions_of_old_keys().await.unwrap(), 0);
        assert_eq!(found(&hub, "audit").await.0, 1, "{}", test.name());
    }
}
