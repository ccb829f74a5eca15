//! Crashes with a function on the stack.

use super::*;
use crate::analysis::ExactCalls;
use crate::database::exact_calls::{self, BundleCalls};
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

/// Returns the calls of a function in a bundle.
fn calls_of(function: &str, build_id: Option<&str>, position: &str, calls: u64) -> ExactCalls {
    ExactCalls {
        function: function.to_owned(),
        build_id: build_id.map(str::to_owned),
        position: position.to_owned(),
        calls,
        instructions: 40,
        duration: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_calls_are_found_by_function_and_build() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        for number in [1, 2] {
            hub.take(vec![crash(number, number, "2.0", START)]).await;
            hub.store(id(number).as_str(), "audit", START).await;
            let build_id = format!("0{number}");
            let calls = [
                calls_of("Ledger::close<int>(int)", Some(&build_id), "t1#90", 2),
                calls_of("Ledger::close<long>(long)", Some(&build_id), "t1#10", 3),
                calls_of("audit", None, "t1#5", 1),
            ];
            let set: crate::Result<()> = transact!(hub.database, connection => {
                exact_calls::set(connection, id(number).as_str(), &calls).await
            });
            set.unwrap();
        }
        let find = async |function: &str, build_id: Option<&str>| {
            let found = hub.database.exact_calls(function, build_id, 9).await.unwrap();
            let view = |found: BundleCalls| (found.crash, found.position, found.calls);
            found.into_iter().map(view).collect::<Vec<_>>()
        };
        let of = |number| (id(number).to_string(), "t1#90".to_owned(), 5);
        // Overloads count as one function, whose newest call is the first.
        assert_eq!(
            find("Ledger::close<char>", None).await,
            [of(1), of(2)],
            "{}",
            test.name()
        );
        assert_eq!(find("Ledger::close<char>(char)", Some("02")).await, [of(2)]);
        assert_eq!(find("Ledger", None).await, []);
        assert_eq!(find("audit", None).await.len(), 2);
        assert_eq!(find("audit", Some("02")).await, []);
        // A bundle that is removed has no calls.
        let removed: crate::Result<()> = transact!(hub.database, connection => {
            reports::set_removed(connection, id(1).as_str()).await
        });
        removed.unwrap();
        assert_eq!(find("Ledger::close<char>", None).await, [of(2)]);
        assert_eq!(hub.count("SELECT COUNT(*) FROM exact_calls").await, 2);
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
