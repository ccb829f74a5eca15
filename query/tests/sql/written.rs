//! Queries over files that the store itself wrote.

use crate::store::Store;
use backtrail_profile::{UnixNanos, format::folded};
use backtrail_store::{MemoryCatalog, Origin, Writer};
use object_store::local::LocalFileSystem;
use serde_json::json;
use std::sync::Arc;

#[test]
fn files_of_the_store_are_read() {
    let mut store = Store::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let entries = runtime.block_on(async {
        let objects = Arc::new(LocalFileSystem::new_with_prefix(store.path()).unwrap());
        let mut writer = Writer::new(objects, Arc::new(MemoryCatalog::default()), Default::default());
        for (service, text) in [
            ("web", "main;parse 30\nmain;write 12\n"),
            ("api", "main;parse 5\n"),
        ] {
            let origin = Origin {
                service: service.into(),
                host: "a".into(),
                ..Origin::default()
            };
            let profile = folded::read(text.as_bytes()).unwrap();
            writer
                .write(&origin, &profile, UnixNanos(1_795_945_723_000_000_000))
                .await
                .unwrap();
        }
        writer.flush().await.unwrap()
    });
    store.segments = entries
        .iter()
        .map(|entry| serde_json::to_value(entry).unwrap())
        .collect();
    let rows = store.rows("SELECT service, sum(weight) AS w FROM samples GROUP BY 1 ORDER BY 1");
    assert_eq!(
        rows,
        [
            json!({"service": "api", "w": 5}),
            json!({"service": "web", "w": 42})
        ]
    );
    let rows = store.rows("SELECT folded(stack, weight) AS f FROM samples WHERE service = 'web'");
    assert_eq!(rows, [json!({"f": "main;parse 30\nmain;write 12\n"})]);
    let rows = store.rows("SELECT sum(weight) AS w FROM samples WHERE matches(stack, '^parse$')");
    assert_eq!(rows, [json!({"w": 35})]);
    for (table, minimum) in [("samples", 3), ("stacks", 2), ("frames", 3), ("contexts", 1)] {
        let rows = store.rows(&format!("SELECT * FROM {table}"));
        assert!(rows.len() >= minimum, "{table}: {rows:?}");
    }
    let rows = store.rows("SELECT date, hour, min(time) AS t FROM samples GROUP BY 1, 2");
    assert_eq!(
        rows,
        [json!({"date": "2026-11-29", "hour": 9, "t": "2026-11-29T09:48:43Z"})]
    );
    let listed = store.sql(&["SELECT count(*) AS n FROM samples", "--csv"]);
    assert_eq!(listed.text(), "n\n3\n", "{}", listed.error());
}
