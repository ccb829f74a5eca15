//! The command `sql`, for people at a terminal.

use crate::store::Store;
use std::fs;

#[test]
fn table_is_printed_without_a_catalog() {
    let store = Store::sample(100);
    // Files that are not of the store are ignored.
    fs::write(store.path().join("kind=samples/notes.txt"), "x").unwrap();
    let answer = store.sql(&["SELECT service, count(*) AS n FROM samples GROUP BY 1 ORDER BY 1"]);
    let table = "\
+---------+-----+
| service | n   |
+---------+-----+
| api     | 150 |
| web     | 150 |
+---------+-----+
";
    assert_eq!(answer.text(), table, "{}", answer.error());
    assert!(
        answer
            .error()
            .starts_with("2 rows, from 3 of 3 segments with 300 rows; ")
    );
    let csv = store.sql(&["SELECT DISTINCT hour FROM samples ORDER BY 1", "--csv"]);
    assert_eq!(csv.text(), "hour\n9\n10\n");
    let json = store.sql(&[
        "--json",
        "SELECT sum(weight) > 0 AS b FROM samples WHERE hour = 9",
    ]);
    assert_eq!(
        (json.text(), json.coverage()["segments"].clone()),
        ("{\"b\":true}\n".into(), 1.into())
    );
}

#[test]
fn folder_that_is_no_store_is_reported() {
    let store = Store::new();
    assert!(store.sql(&["SELECT * FROM samples"]).0.status.success());
    store.sql(&["SELECT nothing FROM samples"]).failure(3);
    let mut store = Store::sample(10);
    fs::write(store.file(0, "frames"), "not Parquet").unwrap();
    let failure = store.sql(&["SELECT 1"]).failure(1);
    assert!(failure.contains(&store.key(0, "frames")), "{failure}");
    store.segments.clear();
    let answer = store.request("{\"sql\": \"SELECT 1\"}", &["--objects", "/no/such/folder"]);
    assert!(!answer.0.status.success());
}
