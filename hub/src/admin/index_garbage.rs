//! Indexes of builds that no request names any more, and whose files the hub does not have.
//!
//! They cannot be made again, and so stay as long as profiles may need them. A request for a build
//! renews its record ([`IndexRecord::renew`](crate::symbols::index_record::IndexRecord)).

use crate::clock::DAY;
use crate::database::Database;
use crate::error::Result;
use crate::objects::{self, Objects};
use futures_util::TryStreamExt;

/// The parts of an index. The record comes first, because it makes the others visible.
const PARTS: [&str; 3] = ["json", "gsym", "types"];
/// The age from which a part without a record is garbage.
const UNFINISHED: i64 = DAY;

/// Removes the indexes of builds that were not used for `age`, and returns their number. Builds
/// with files keep theirs.
///
/// # Errors
/// Fails if the database or the object store fails. The rest is done by the next run.
pub async fn run(database: &Database, store: &Objects, age: i64, now: i64) -> Result<u64> {
    let mut removed = 0;
    let mut listed = std::pin::pin!(store.list("symbols"));
    while let Some(object) = listed.try_next().await? {
        let name = object.key.strip_prefix("symbols/").unwrap_or_default();
        let Some((build_id, part)) = name.rsplit_once('.') else {
            continue;
        };
        let is_garbage = match part {
            "json" => object.changed <= now - age,
            // A job that was killed left it, or this run did.
            _ => {
                object.changed <= now - UNFINISHED
                    && store.get(&objects::symbols(build_id, "json")).await?.is_none()
            }
        };
        if !is_garbage || database.has_build(build_id).await? {
            continue;
        }
        for part in PARTS {
            store.delete(&objects::symbols(build_id, part)).await?;
        }
        removed += u64::from(part == "json");
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::database::blobs::{self, BuildFile, FileKind};
    use crate::database::tests::testing::TestDatabase;
    use crate::database::transact;
    use crate::ingest::tests::TestHub;
    use crate::symbols::index_record::{IndexRecord, IndexSources};

    async fn parts(store: &Objects) -> Vec<String> {
        let listed = store.list("symbols").map_ok(|object| object.key);
        let mut keys: Vec<String> = listed.try_collect().await.unwrap();
        keys.sort();
        keys
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unused_indexes_of_builds_without_files_are_removed() {
        let test = TestDatabase::sqlite().await;
        let hub = TestHub::new(&test);
        let (database, store) = (&hub.database, &hub.objects);
        for id in ["aa00", "bb00"] {
            for part in ["gsym", "types"] {
                store.put(&objects::symbols(id, part), vec![1]).await.unwrap();
            }
            let record = IndexRecord::new(IndexSources::default(), None);
            record.write(store, id).await.unwrap();
        }
        // A job was killed before its record.
        store
            .put(&objects::symbols("cc00", "gsym"), vec![1])
            .await
            .unwrap();
        let file = BuildFile {
            build_id: "bb00".to_owned(),
            kind: FileKind::Debuginfo,
            sha256: "0".repeat(64),
            name: "b".to_owned(),
            size: 1,
            origin: "upload".to_owned(),
            detail: 1,
            created: 0,
        };
        transact!(database, connection => { blobs::use_in_build(connection, &file).await }).unwrap();
        let age = 90 * DAY;
        let now = clock::now();
        assert_eq!(run(database, store, age, now).await.unwrap(), 0);
        assert_eq!(parts(store).await.len(), 7);
        assert_eq!(run(database, store, age, now + 89 * DAY).await.unwrap(), 0);
        let kept = [
            "aa00.gsym",
            "aa00.json",
            "aa00.types",
            "bb00.gsym",
            "bb00.json",
            "bb00.types",
        ];
        assert_eq!(parts(store).await, kept.map(|name| format!("symbols/{name}")));
        assert_eq!(run(database, store, age, now + 91 * DAY).await.unwrap(), 1);
        assert_eq!(
            parts(store).await,
            kept[3..]
                .iter()
                .map(|name| format!("symbols/{name}"))
                .collect::<Vec<_>>()
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn use_renews_a_record_once_a_day() {
        let test = TestDatabase::sqlite().await;
        let hub = TestHub::new(&test);
        let store = &hub.objects;
        let record = IndexRecord::new(IndexSources::default(), None);
        record.write(store, "aa00").await.unwrap();
        let now = clock::now();
        assert!(!record.clone().renew(store, "aa00", now).await.unwrap());
        assert!(record.renew(store, "aa00", now + 2 * DAY).await.unwrap());
        let renewed = IndexRecord::read(store, "aa00").await.unwrap().unwrap();
        assert_eq!((renewed.made, renewed.used), (record.made, Some(now + 2 * DAY)));
        assert!(!renewed.renew(store, "aa00", now + 2 * DAY + 1).await.unwrap());
    }
}
